"""A random history of one partition, and a takeover in the middle of it.

The seed draws the segments and their entries, how far the list was trimmed, which records are
damaged, when a rival takes the partition over in turn, and where the takeover is interrupted.
The log is a plain list, and everything that the takeover should find is computed from it.
"""

import random

import attrs

from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.partition_takeover import (
    AskWhyDeposed,
    ClaimPartition,
    CloseLedger,
    CompleteSegment,
    Effect,
    FailTakeover,
    FindLastSegment,
    GiveBack,
    PartitionTakeover,
    ReadSegment,
    ReadTrim,
    RecoverState,
)
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from topology.errors import DamagedBytesError, FencedError, GeologError, UnavailableError

NAME = PartitionName(StreamName("test", "stream"))
NOW_US = 7


@attrs.define
class Log:
    """The log as it is: for each segment, how many records each entry has."""

    segments: list[list[int]]

    def state_after(self, segments_count: int, *, gone: int = 0) -> PartitionState:
        """The state after so many segments; records of the first `gone` cannot be read."""
        entries = [count for one in self.segments[:segments_count] for count in one]
        if not any(self.segments[gone:segments_count]):
            return PartitionState()  # Nothing to read.
        records = sum(entries)
        return PartitionState(Sequence(records), 10 * records, 100 + records, 5 * records)

    def listed(self, number: int) -> SegmentRecord:
        """The record of an open segment."""
        before = self.state_after(number - 1)
        return SegmentRecord(
            segment=number,
            ledger=LedgerId(number),
            home_epoch=1,
            first_sequence=before.sequence_next,
            owner_epoch=Epoch(1),
            activated_us=0,
            append_time_us_before=before.append_time_us,
            transaction_id_before=before.transaction_id,
            size_bytes_before=before.size_bytes,
        )

    def completed(self, number: int) -> SegmentRecord:
        """The record of that segment once it has its end."""
        after = self.state_after(number)
        return self.listed(number).completed(
            last_entry=EntryId(len(self.segments[number - 1]) - 1),
            last_sequence=Sequence(after.sequence_next - 1),
            last_append_time_us=after.append_time_us,
            completed_us=NOW_US,
            last_transaction_id=after.transaction_id,
            size_bytes_through=after.size_bytes,
        )


class TakeoverHistory:
    """One partition, and one process that takes it over."""

    def __init__(self, seed: int, core: type[PartitionTakeover]) -> None:
        self.rng = rng = random.Random(seed)
        self.log = Log(
            [
                [rng.randint(1, 3) for _ in range(rng.choice([0, 1, 1, 3]))]
                for _ in range(rng.randint(0, 4))
            ]
        )
        self.count = len(self.log.segments)
        self.core = core(NAME)
        self.list: dict[int, SegmentRecord] = {
            number: self.log.completed(number) for number in range(1, self.count + 1)
        }
        self.is_last_closed = rng.random() < 0.5
        if self.count and not (self.is_last_closed and rng.random() < 0.5):
            self.list[self.count] = self.log.listed(self.count)
        self.gone = rng.randint(0, max(0, self.count - 1)) if rng.random() < 0.5 else 0
        for number in range(1, self.gone + 1):
            del self.list[number]
        self.is_claimed = self.is_rivals = self.is_released = False
        self.is_surely_owner = False  # By metadata, after the log was found broken.
        self.is_damaged = rng.random() < 0.2
        self.will_be_cut_off = rng.random() < 0.3
        self.last_told = 0  # The segment that the takeover goes on behind.
        self.trim: int | None = None
        self.happened: set[str] = set()

    def run(self) -> None:
        """Perform everything, in any order that concurrency allows."""
        pending = self.core.begin()
        failure: GeologError | None = None
        while pending and failure is None:
            if self.is_claimed and not self.is_rivals and self.rng.random() < 0.05:
                self.lose_to_a_rival()
            effect = pending.pop(self.rng.randrange(len(pending)))
            try:
                if self.will_be_cut_off and self.rng.random() < 0.1:
                    raise UnavailableError("metadata is away")
                pending += self.perform(effect)
            except GeologError as error:
                failure = error
        if failure is None:
            self.check_taken()
        else:
            for effect in self.core.on_given_up():
                assert isinstance(effect, GiveBack)
                self.is_released = True
            self.check_failed(failure)

    def lose_to_a_rival(self) -> None:
        """It ends what is open, goes on behind it, and trims all before."""
        self.is_rivals = True
        self.is_last_closed = True
        if self.rng.random() < 0.5:
            self.log.segments.append([1])
            self.gone = self.count
            self.list = {self.count + 1: self.log.listed(self.count + 1)}

    def perform(self, effect: Effect) -> list[Effect]:
        core = self.core
        match effect:
            case ClaimPartition():
                self.is_claimed = True
                return core.on_claimed(self.count)
            case ReadTrim():
                assert self.is_claimed, "the trim is older than the claim"
                self.trim = self.log.state_after(self.gone).sequence_next
                return core.on_trim(Sequence(self.trim))
            case ReadSegment(number):
                assert self.is_claimed, "the segment was read before the claim"
                return core.on_segment(self.told(number))
            case FindLastSegment():
                return core.on_last_segment(self.told(max(self.list, default=0)))
            case CloseLedger(ledger):
                return self.close(ledger)
            case RecoverState(last):
                return self.recover_state(last)
            case CompleteSegment(completed):
                self.complete(completed)
                return []
            case AskWhyDeposed():
                self.is_surely_owner = not self.is_rivals
                why = FencedError("a rival owns it") if self.is_rivals else None
                return core.on_owner_known(effect, why)
            case FailTakeover(error):
                raise error
            case GiveBack():
                raise AssertionError("given back, although nothing has failed")

    def told(self, number: int) -> SegmentRecord | None:
        self.last_told = number if number in self.list else 0
        return self.list.get(number)

    def close(self, ledger: LedgerId) -> list[Effect]:
        if ledger <= self.gone:
            return self.core.on_log_broken(DamagedBytesError("the ledger is gone"))
        if ledger == self.count:
            self.is_last_closed = True
        return self.core.on_closed(EntryId(len(self.log.segments[ledger - 1]) - 1))

    def recover_state(self, last: SegmentRecord) -> list[Effect]:
        assert self.is_last_closed, "the log of an open ledger was read"
        state = self.log.state_after(last.segment, gone=self.gone)
        if last.segment <= self.gone:
            return self.core.on_log_broken(DamagedBytesError("its records are gone"))
        is_short_noticed = last.is_completed or last.first_sequence > 0
        if self.is_damaged and self.log.segments[last.segment - 1] and is_short_noticed:
            state.sequence_next = Sequence(0)
        return self.core.on_state(state, now_us=NOW_US)

    def complete(self, completed: SegmentRecord) -> None:
        if self.is_rivals:
            raise FencedError("a rival owns it")
        number = completed.segment
        assert not self.list[number].is_completed, "completed twice"
        assert completed == self.log.completed(number)
        self.list[number] = completed
        self.happened.add("completed a segment")

    def check_taken(self) -> None:
        """All is CLOSED and completed, and the state is that of the whole log."""
        number = self.last_told
        expected = self.log.state_after(number)
        assert self.core.state == expected, f"{self.core.state}, not {expected}"
        assert self.core.first_sequence == self.trim
        if not self.is_rivals:
            is_all_ended = all(one.is_completed for one in self.list.values())
            assert is_all_ended, "there are segments without an end"
            assert number == self.count, f"goes on behind segment {number}"
        self.happened.add("taken" if number else "taken while empty")

    def check_failed(self, failure: GeologError) -> None:
        assert self.is_released == self.is_claimed, "a claim was not given back"
        match failure:
            case FencedError():
                assert self.is_rivals, "fenced by nobody"
                self.happened.add("lost to a rival")
            case DamagedBytesError():
                assert self.is_surely_owner, "what a rival did may be taken for damage"
                assert self.is_damaged, "sound records were called damaged"
                self.happened.add("damaged")
            case _:
                self.happened.add("cut off")
