"""docs/SIMULATION.md lists each trace event, fault and law of the code."""

from pathlib import Path

from sim.laws.history.all_laws import HISTORY_LAWS
from sim.laws.state.all_laws import all_state_laws, all_wire_laws
from sim.world.faults.all_faults import FAULTS
from sim.world.faults.ambushes import Ambush
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


def test_the_page_lists_each_state_law_and_wire_law() -> None:
    assert _laws_of("| law | what is checked |") == {
        law for law, _ in (*all_state_laws(), *all_wire_laws())
    }


def test_the_page_lists_each_history_law() -> None:
    assert _laws_of("| law | what a history shows |") == set(HISTORY_LAWS)


def _laws_of(head: str) -> set[str]:
    """The first cells of the table with this head."""
    rows = PAGE.partition(head)[2].partition("\n\n")[0].splitlines()[2:]
    return {row.split("|")[1].strip(" `") for row in rows}
