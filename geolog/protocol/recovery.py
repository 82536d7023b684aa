"""Agrees on a ledger's last entry after its writer is gone.

Theory of operation. The fence is taken, and gave the highest LAC that the fenced members saw.
Recovery starts at max(LAC + 1, first entry of the last fragment), because everything below is
acknowledged. It asks the write set of each further entry, a batch at a time, with reads that
also fence, so that an ABSENT stays true. It decides entry by entry, in order:

- One intact HAVE is enough: the entry is written again to its write set and must reach an ack
  set.
- A blocking set of ABSENT proves that the entry was never acknowledged: the ledger ends before
  it.
- CORRUPT, UNKNOWN and silence prove nothing. When all members have answered or failed and
  neither rule holds, recovery gives up for now (`CannotDecide`). It is tried again when more
  members answer.

`CloseAt` is returned only after every entry before the end has reached an ack set, so a ledger
closed there can be read in full. Rewrites carry the LAC that recovery started from (planted bug
35: a recovery add must not move the LAC).

Invariants.
1. `CloseAt(last)` is returned once, and last >= start - 1.
2. An entry is rewritten at most once a round, from a member that has it intact.

Rules: PROTOCOL F2, F4 to F7, F9 and N6.
"""

import attrs

from geolog.protocol.ids import EntryId
from geolog.protocol.messages import Answer
from topology.quorum import AckRule


@attrs.frozen
class ReadBatch:
    """Ask the member at `slot` for entries `first` to `first + count - 1`, and fence."""

    slot: int
    first: EntryId
    count: int


@attrs.frozen
class Rewrite:
    """Write the entry again to its whole write set; the member at `slot` has it intact."""

    entry: EntryId
    slot: int


@attrs.frozen
class CloseAt:
    """Close the ledger at its last entry, `last`; one before the first if it is empty."""

    last: EntryId


@attrs.frozen
class CannotDecide:
    """All members answered or failed, and neither rule decides the entry. Retry later."""

    entry: EntryId
    have_count: int
    absent_count: int
    silent_count: int


RecoveryEffect = ReadBatch | Rewrite | CloseAt | CannotDecide


class Recovery:
    """The core of recovering one ledger, from the first entry that may be unacknowledged."""

    def __init__(self, rule: AckRule, *, first: EntryId, batch_entries: int = 64) -> None:
        self._rule = rule
        self._first = first  # First entry of the current batch.
        self._batch_entries = batch_entries
        self.batch_entries_next = batch_entries
        """Size of the next batch. The caller may set it, as it knows the size of entries."""
        self._answers: list[dict[int, Answer]] = []
        self._silent = 0  # Members that failed to answer in this batch.
        self._decided = first  # First undecided entry.
        self._to_ack: set[EntryId] = set()
        self._end: EntryId | None = None
        self._is_over = False

    @property
    def batch_first(self) -> EntryId:
        """The first entry of the current batch."""
        return self._first

    @property
    def decided_end(self) -> EntryId:
        """The first undecided entry; further answers about earlier ones change nothing."""
        return self._decided

    def start(self) -> list[RecoveryEffect]:
        """Ask for the first batch."""
        return self._ask()

    def on_answer(self, slot: int, entry: EntryId, answer: Answer) -> list[RecoveryEffect]:
        """A member answered for one entry of the batch."""
        place = entry - self._first
        if self._is_over or not 0 <= place < len(self._answers):
            return []
        if not self._rule.write_mask(entry) >> slot & 1:
            return []  # Not in this entry's write set: its answer does not count.
        if self._answers[place].get(slot) is not Answer.HAVE:
            self._answers[place][slot] = answer
        return self._decide()

    def on_silence(self, slot: int) -> list[RecoveryEffect]:
        """A member failed, or refused, to answer for the rest of this batch."""
        self._silent |= 1 << slot
        return [] if self._is_over else self._decide()

    def on_acked(self, entry: EntryId) -> list[RecoveryEffect]:
        """A rewritten entry has reached an ack set."""
        self._to_ack.discard(entry)
        return [] if self._is_over else self._decide()

    def on_cannot_ack(self, entry: EntryId) -> list[RecoveryEffect]:
        """A rewritten entry cannot reach an ack set among the members that answer now."""
        if self._is_over or entry not in self._to_ack:
            return []  # It has reached an ack set since.
        return [self._give_up(entry)]

    def _ask(self) -> list[RecoveryEffect]:
        self._batch_entries = self.batch_entries_next
        self._answers = [{} for _ in range(self._batch_entries)]
        self._silent = 0
        return [
            ReadBatch(slot, self._first, self._batch_entries)
            for slot in range(self._rule.config.ensemble_size)
        ]

    def _decide(self) -> list[RecoveryEffect]:
        effects: list[RecoveryEffect] = []
        while self._end is None and self._decided < self._first + self._batch_entries:
            effect = self._decide_entry(self._decided)
            if effect is None:
                break
            match effect:
                case CloseAt():
                    pass  # Returned once every entry before it has reached an ack set.
                case CannotDecide():
                    return [*effects, effect]
                case _:
                    effects.append(effect)
        return effects + self._finish_batch()

    def _decide_entry(self, entry: EntryId) -> RecoveryEffect | None:
        answers = self._answers[entry - self._first]
        absent = sum(1 << slot for slot, answer in answers.items() if answer is Answer.ABSENT)
        have = sorted(slot for slot, answer in answers.items() if answer is Answer.HAVE)
        if have:
            self._decided = EntryId(entry + 1)
            self._to_ack.add(entry)
            return Rewrite(entry, have[0])
        if self._rule.is_block(entry, absent):
            self._end = EntryId(entry - 1)
            return CloseAt(self._end)
        spoken = self._silent | sum(1 << slot for slot in answers)
        if self._rule.write_mask(entry) & ~spoken:
            return None
        return self._give_up(entry)

    def _finish_batch(self) -> list[RecoveryEffect]:
        if self._to_ack:
            return []
        if self._end is not None:
            self._is_over = True
            return [CloseAt(self._end)]
        if self._decided < self._first + self._batch_entries:
            return []
        self._first = self._decided
        return self._ask()

    def _give_up(self, entry: EntryId) -> CannotDecide:
        self._is_over = True
        answers = list(self._answers[entry - self._first].values())
        return CannotDecide(
            entry,
            have_count=answers.count(Answer.HAVE),
            absent_count=answers.count(Answer.ABSENT),
            silent_count=self._rule.config.write_quorum - len(answers),
        )
