"""Preflight: the risks of taking nodes away, judged from metadata."""

import pytest

from geolog.admin.preflight import Risk, judge
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from topology.location import Location
from topology.quorum import QuorumConfig

ALL = "abcdef"
REGION_OF = dict(zip(ALL, ["us", "us", "eu", "eu", "ap", "ap"], strict=True))
QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)
STRIPED = QuorumConfig(ensemble_size=4, write_quorum=2, ack_quorum=2, min_regions=1)


def ledger(
    state: LedgerState, *ensembles: str, quorum: QuorumConfig = QUORUM
) -> list[LedgerRecord]:
    """A ledger with a fragment of ten entries for each ensemble."""
    return [
        LedgerRecord(
            ledger=LedgerId(7),
            state=state,
            epoch=Epoch(1),
            quorum=quorum,
            fragments=tuple(
                Fragment(EntryId(10 * number), tuple(map(member, ensemble)))
                for number, ensemble in enumerate(ensembles)
            ),
            last_entry=EntryId(10 * len(ensembles) - 1)
            if state is LedgerState.CLOSED
            else None,
        )
    ]


def member(name: str) -> Member:
    return Member(InstanceId(name), f"node-{name}", Location.parse(f"/{REGION_OF[name]}/r"))


def risks(
    ledgers: list[LedgerRecord],
    leaving: str,
    *,
    live: str = ALL,
    unproven: int = 0,
) -> list[tuple[str, bool]]:
    """The risks, and whether each exists already."""
    report = judge(
        [f"node-{name}" for name in leaving],
        {InstanceId(name) for name in leaving},
        {InstanceId(name) for name in live},
        {LedgerId(7): {0: unproven}} if unproven else {},
        ledgers,
    )
    return [(risk.risk, risk.is_so_now) for risk in report.risks]


@pytest.mark.parametrize(
    ("leaving", "expected"),
    [
        ("a", []),
        ("ac", [("appends", False), ("recovery", False)]),
        ("ace", [("appends", False), ("recovery", False), ("reads", False)]),
        ("b", []),
    ],
)
def test_an_open_ledger_needs_ack_sets_and_blocking_sets(
    leaving: str, expected: list[tuple[str, bool]]
) -> None:
    assert risks(ledger(LedgerState.OPEN, "ace"), leaving) == expected


def test_existing_risks_are_marked() -> None:
    found = risks(ledger(LedgerState.OPEN, "ace"), "a", live="abdef")

    assert found == [("appends", False), ("recovery", False)]
    assert risks(ledger(LedgerState.OPEN, "ace"), "a", live="abdf") == [
        ("appends", True),
        ("recovery", True),
        ("reads", False),
    ]


def test_a_closed_ledger_needs_one_copy_of_each_entry() -> None:
    closed = ledger(LedgerState.CLOSED, "ace")

    assert risks(closed, "ac") == []
    assert risks(closed, "ac", live="abcdf") == [("reads", False)]


def test_every_fragment_and_every_write_set_is_checked() -> None:
    closed = ledger(LedgerState.CLOSED, "abcd", "cdef", quorum=STRIPED)

    assert risks(closed, "ac") == []
    assert risks(closed, "ab") == [("reads", False)]
    assert risks(closed, "ef") == [("reads", False)]


def test_entries_without_a_copy_at_the_remaining_members_are_at_risk() -> None:
    closed = ledger(LedgerState.CLOSED, "ace")

    assert risks(closed, "a", unproven=3) == [("reads", False)]
    assert risks(closed, "b", unproven=3) == [], "it has no copy of it"


def test_a_ledger_made_ahead_is_not_at_risk() -> None:
    assert risks(ledger(LedgerState.ALLOCATED, "ace"), "ac") == []


def test_a_risk_has_a_kind_and_a_reason() -> None:
    report = judge(["node-a"], {InstanceId("a")}, set(), {}, ledger(LedgerState.CLOSED, "ace"))

    assert not report.is_safe
    assert report.risks == [
        Risk(
            ledger=7,
            stream="",
            state="closed",
            risk="reads",
            why="entries of fragment 0 would have no copy at a node that is up",
            is_so_now=True,
        )
    ]
