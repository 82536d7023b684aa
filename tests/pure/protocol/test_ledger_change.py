"""How the holder of a ledger's epoch judges a conflict."""

import attrs
import pytest

from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from tests.pure.protocol.test_ledger_state import ensemble_of, ledger_in

OPEN = attrs.evolve(
    ledger_in(LedgerState.OPEN),
    fragments=(
        Fragment(EntryId(0), ensemble_of("abc")),
        Fragment(EntryId(10), ensemble_of("abd")),
    ),
)
NEW = Fragment(EntryId(20), ensemble_of("abe"))
CHANGE = LedgerChange(
    state=LedgerState.OPEN, epoch=Epoch(4), lasts=OPEN.fragments[-1:], fragments=(NEW,)
)
CLOSE = LedgerChange(
    state=LedgerState.OPEN, epoch=Epoch(4), lasts=OPEN.fragments[-1:], last_entry=EntryId(30)
)
REPAIRED = attrs.evolve(  # By a copier.
    OPEN, fragments=(Fragment(EntryId(0), ensemble_of("abf")), OPEN.fragments[1])
)


def test_a_change_adds_its_fragment_to_the_record_that_was_read() -> None:
    assert CHANGE.over(OPEN).fragments == (*OPEN.fragments, NEW)
    assert CHANGE.over(OPEN).state is LedgerState.OPEN


def test_changes_of_others_to_earlier_fragments_are_kept() -> None:
    assert CHANGE.over(REPAIRED).fragments == (*REPAIRED.fragments, NEW)
    assert CLOSE.over(REPAIRED) == attrs.evolve(
        REPAIRED, state=LedgerState.CLOSED, last_entry=EntryId(30)
    )


def test_a_recovery_stores_its_fragments_and_the_end_at_once() -> None:
    taken = OPEN.taken_over()
    change = LedgerChange(
        state=LedgerState.IN_RECOVERY,
        epoch=taken.epoch,
        lasts=taken.fragments[-1:],
        fragments=(Fragment(EntryId(10), ensemble_of("abx")), NEW),
        last_entry=EntryId(30),
    )

    assert change.over(taken).fragments == (OPEN.fragments[0], *change.fragments)
    assert change.judge(change.over(taken)) is Judgement.STORED
    assert change.judge(taken) is Judgement.TRY_AGAIN
    assert change.judge(taken.taken_over()) is Judgement.TAKEN


@pytest.mark.parametrize(
    ("found", "judgement"),
    [
        (OPEN, "try_again"),
        (REPAIRED, "try_again"),
        (CHANGE.over(OPEN), "stored"),
        (CHANGE.over(REPAIRED), "stored"),
        (OPEN.taken_over(), "taken"),
        (CHANGE.over(OPEN).taken_over(), "taken"),
        (OPEN.closed(EntryId(30)), "taken"),
        (OPEN.with_fragment(Fragment(EntryId(20), ensemble_of("abz"))), "taken"),
    ],
)
def test_an_ensemble_change_is_judged_by_the_record_found(
    found: LedgerRecord, judgement: str
) -> None:
    assert CHANGE.judge(found).value == judgement


@pytest.mark.parametrize(
    ("found", "judgement"),
    [
        (OPEN, "try_again"),
        (REPAIRED, "try_again"),
        (OPEN.closed(EntryId(30)), "stored"),
        (REPAIRED.closed(EntryId(30)), "stored"),
        (OPEN.closed(EntryId(29)), "taken"),
        (OPEN.taken_over(), "taken"),
        (OPEN.taken_over().closed(EntryId(30)), "taken"),  # Under another's epoch.
        (CHANGE.over(OPEN), "taken"),
    ],
)
def test_a_close_is_judged_by_the_record_found(found: LedgerRecord, judgement: str) -> None:
    assert CLOSE.judge(found).value == judgement


def test_a_close_may_follow_a_change_whose_outcome_was_never_known() -> None:
    close = attrs.evolve(CLOSE, lasts=(*CLOSE.lasts, NEW))

    assert close.judge(OPEN) is Judgement.TRY_AGAIN
    assert close.judge(CHANGE.over(OPEN)) is Judgement.TRY_AGAIN


def test_an_empty_change_fails_an_assertion() -> None:
    with pytest.raises(AssertionError, match="the change is empty"):
        LedgerChange(state=LedgerState.OPEN, epoch=Epoch(4), lasts=OPEN.fragments[-1:])
