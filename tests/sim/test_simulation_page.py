"""docs/SIMULATION.md names every event of the trace and every fault, as the code does."""

from pathlib import Path

from sim.world.fault_ambushes import Ambush
from sim.world.faults import FAULTS
from sim.world.trace import EVENTS

PAGE = (Path(__file__).parents[2] / "docs" / "SIMULATION.md").read_text(encoding="utf-8")


def test_the_page_names_each_event_as_the_code_does() -> None:
    missing = [
        f"| `{event}` | {meaning} |"
        for event, meaning in EVENTS.items()
        if f"| `{event}` | {meaning} |" not in PAGE
    ]

    assert missing == []


def test_the_page_names_each_fault_as_the_code_does() -> None:
    strikes = {
        kind: fault.strike if isinstance(fault, Ambush) else fault
        for kind, fault in FAULTS.items()
    }
    rows = [f"| `{kind}` | {(one.__doc__ or '').strip()} |" for kind, one in strikes.items()]

    assert [row for row in rows if row not in PAGE] == []
