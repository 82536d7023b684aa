"""The laws of recovery over random histories, and proof that the checks can fail."""

from collections import Counter

import pytest
from hypothesis import settings

from geolog.protocol.ids import EntryId
from geolog.protocol.messages import Answer
from geolog.protocol.recovery import CannotDecide, CloseAt, Recovery, RecoveryEffect
from tests.pure.protocol.ledger_history import History, Variant
from topology.quorum import AckRule


def played(seed: int, variant: Variant) -> History:
    history = History(seed, variant)
    try:
        history.run()
        history.check_end()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    return history


def seeds_count() -> int:
    return 20 * settings().max_examples


def test_recovery_keeps_its_laws_over_random_histories() -> None:
    sometimes: Counter[str] = Counter()

    for seed in range(seeds_count()):
        history = played(seed, Variant())
        match history.outcome:
            case CloseAt(last):
                sometimes["closed"] += 1
                sometimes["closed with entries rewritten"] += last >= history.start
                sometimes["closed above what was answered"] += last > history.lac
                sometimes["closed after more than one batch"] += history.batches_count > 1
                sometimes["closed although some were silent"] += bool(history.silent)
            case CannotDecide(entry):
                sometimes["a rewrite failed"] += entry in history.failed
                sometimes["neither was proven"] += entry not in history.failed
            case None:
                sometimes["the fence was not taken"] += 1

    assert min(sometimes.values()) > 0, sometimes
    assert len(sometimes) == 8, sometimes


def test_an_undecided_recovery_is_decided_once_all_members_answer_again() -> None:
    for seed in range(seeds_count()):
        history = played(seed, Variant())
        if isinstance(history.outcome, CannotDecide):
            history.run_again()
            history.check_end()

            assert isinstance(history.outcome, CloseAt), f"seed {seed}: {history.outcome}"


class BlocksOneEarly(AckRule):
    """Planted bug 5: one ABSENT too few."""

    def is_block(self, entry: int, mask: int) -> bool:
        with_one_more = [mask | 1 << slot for slot in self.write_set(entry)]
        return any(self.is_block_within(self.write_mask(entry), more) for more in with_one_more)


class SilenceIsAbsence(Recovery):
    """Planted bug 4: a time-out is taken as ABSENT."""

    def on_silence(self, slot: int) -> list[RecoveryEffect]:
        effects = []
        for entry in range(self._first, self._first + self._batch_entries):
            effects += self.on_answer(slot, EntryId(entry), Answer.ABSENT)
        return effects or super().on_silence(slot)


class DamageIsAbsence(Recovery):
    """Planted bug 3: CORRUPT is taken as ABSENT."""

    def on_answer(self, slot: int, entry: EntryId, answer: Answer) -> list[RecoveryEffect]:
        is_damage = answer in (Answer.CORRUPT, Answer.UNKNOWN)
        return super().on_answer(slot, entry, Answer.ABSENT if is_damage else answer)


def from_the_first_entry(_lac: EntryId, _fragment_first: EntryId) -> EntryId:
    """Planted bug 2: recovery starts from LAC -1, whatever the LAC and the fragment."""
    return EntryId(0)


PLANTED = {
    "one ABSENT too few": Variant(is_planted=True, rule=BlocksOneEarly),
    "reads that do not fence": Variant(is_planted=True, reads_fence=False),
    "a time-out taken as ABSENT": Variant(is_planted=True, core=SilenceIsAbsence),
    "CORRUPT taken as ABSENT": Variant(is_planted=True, core=DamageIsAbsence),
    "a start at -1": Variant(is_planted=True, first=from_the_first_entry),
}


def seed_that_shows(variant: Variant) -> int | None:
    for seed in range(2000):
        try:
            played(seed, variant)
        except AssertionError as broken:
            if "were answered OK" not in str(broken):
                raise
            return seed
    return None


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_planted_bug_loses_answered_entries_and_is_found(name: str) -> None:
    assert seed_that_shows(PLANTED[name]) is not None


def test_the_same_weak_check_finds_nothing_without_a_planted_bug() -> None:
    assert seed_that_shows(Variant(is_planted=True)) is None
