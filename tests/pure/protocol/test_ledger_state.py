"""A ledger's states, and the table of legal steps."""

import attrs
import pytest

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import (
    Fragment,
    LedgerRecord,
    LedgerState,
    LedgerStateError,
    Member,
)
from tests.pure.topology.notation import quorum_of
from topology.location import Location


def ensemble_of(names: str) -> tuple[Member, ...]:
    return tuple(
        Member(InstanceId(name * 32), f"sn-{name}", Location(name, "r1")) for name in names
    )


def ledger_in(state: LedgerState) -> LedgerRecord:
    return LedgerRecord(
        ledger=LedgerId(9),
        state=state,
        epoch=Epoch(4),
        quorum=quorum_of("3/3/2 m2"),
        fragments=(Fragment(EntryId(0), ensemble_of("abc")),),
        last_entry=EntryId(7) if state is LedgerState.CLOSED else None,
    )


def changed(ledger: LedgerRecord, change: str) -> LedgerRecord:
    match change:
        case "opened":
            return ledger.opened()
        case "taken over":
            return ledger.taken_over()
        case _:
            return ledger.closed(EntryId(3))


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("allocated", "opened", "open"),
        ("allocated", "taken over", "in_recovery"),
        ("allocated", "closed", None),
        ("open", "opened", None),
        ("open", "taken over", "in_recovery"),
        ("open", "closed", "closed"),
        ("in_recovery", "opened", None),
        ("in_recovery", "taken over", "in_recovery"),
        ("in_recovery", "closed", "closed"),
        ("closed", "opened", None),
        ("closed", "taken over", None),
        ("closed", "closed", None),
    ],
)
def test_each_change_starts_from_the_states_it_may_start_from(
    before: str, change: str, after: str | None
) -> None:
    ledger = ledger_in(LedgerState(before))
    if after is None:
        with pytest.raises(LedgerStateError, match=f"ledger 9 is {before}, at epoch 4"):
            changed(ledger, change)
        return

    assert changed(ledger, change).state.value == after


def test_every_takeover_takes_the_next_epoch_and_nothing_else_does() -> None:
    ledger = ledger_in(LedgerState.OPEN)

    assert ledger.taken_over().taken_over().epoch == 6
    assert ledger.closed(EntryId(3)).epoch == 4


def test_closing_changes_the_state_and_the_end_and_nothing_else() -> None:
    ledger = ledger_in(LedgerState.OPEN)
    closed = ledger.closed(NO_ENTRY)

    assert attrs.evolve(closed, state=LedgerState.OPEN, last_entry=None) == ledger
    assert closed.last_entry == -1


def test_an_entry_belongs_to_the_last_fragment_that_starts_at_or_below_it() -> None:
    fragments = tuple(
        Fragment(EntryId(first), ensemble_of(names))
        for first, names in [(0, "abc"), (5, "abd"), (9, "bcd")]
    )
    ledger = attrs.evolve(ledger_in(LedgerState.OPEN), fragments=fragments)

    assert [
        ledger.fragment_of(EntryId(entry)).first_entry for entry in (0, 4, 5, 8, 9, 99)
    ] == [
        0,
        0,
        5,
        5,
        9,
        9,
    ]


def test_a_fragments_rule_uses_the_regions_of_its_members() -> None:
    rule = Fragment(EntryId(0), ensemble_of("aab")).rule(quorum_of("3/3/2 m2"))

    assert not rule.is_ack(0, 0b011)
    assert rule.is_ack(0, 0b101)


def test_a_new_fragment_begins_where_the_last_one_ends() -> None:
    ledger = ledger_in(LedgerState.OPEN)
    new = Fragment(EntryId(5), ensemble_of("abd"))

    assert ledger.with_fragment(new).fragments == (*ledger.fragments, new)
    assert ledger.with_fragment(new).fragment_of(EntryId(4)) == ledger.fragments[0]
    assert ledger.with_fragment(new).fragment_of(EntryId(5)) == new


def test_a_fragment_without_entries_gives_way_to_the_next() -> None:
    first = Fragment(EntryId(5), ensemble_of("abd"))
    second = Fragment(EntryId(5), ensemble_of("abe"))
    ledger = ledger_in(LedgerState.IN_RECOVERY).with_fragment(first)

    assert ledger.with_fragment(second).fragments == (ledger.fragments[0], second)


@pytest.mark.parametrize("state", [LedgerState.ALLOCATED, LedgerState.CLOSED])
def test_a_ledger_that_is_not_being_written_gets_no_fragment(state: LedgerState) -> None:
    with pytest.raises(LedgerStateError):
        ledger_in(state).with_fragment(Fragment(EntryId(5), ensemble_of("abd")))


def test_a_run_of_entries_ends_with_its_fragment() -> None:
    ledger = ledger_in(LedgerState.OPEN)
    for first, names in ((5, "abd"), (9, "abe")):
        ledger = ledger.with_fragment(Fragment(EntryId(first), ensemble_of(names)))
    ends = [ledger.end_of_run(EntryId(entry), EntryId(20)) for entry in (0, 4, 5, 8, 9, 12)]

    assert ends == [4, 4, 8, 8, 20, 20]
    assert ledger.end_of_run(EntryId(0), EntryId(2)) == 2
