"""Decides how a partition is taken over: in which order, and when to give it back.

Theory of operation. First the claim: a compare-and-set that deposes every earlier owner. It
comes after all writes of earlier owners, and reads of one process never go back, so none of the
reads below needs a sync. Then two things happen concurrently: the trim is read, and these steps
end the last segment:

1. Find the last listed segment. An owner notes each segment's number as it lists it. If the
   segment with that number is gone, trimmed by a later owner, take the last in the list.
2. If the segment is not completed, close its ledger, and so fence its writer. Only the last
   segment's ledger can be open: each is listed in the step that closes the one before it.
3. Recover the state from the log, up to that segment's end.
4. Check the state against the list of segments: the sequences must meet. Behind an empty
   segment, the log itself may be gone; then the segment's record says where to go on.
5. Store the segment's end, if it was not completed.

The log may be broken, or contradict the list, only because a later owner has gone on and
trimmed: so an owner that finds it broken first asks whether it was deposed. If it was, that is
the error.

A takeover that does not succeed gives the partition back, however it ends: readers leave the
open ledger to its owner as long as that owner is alive. It waits a moment for metadata to have
the release, which goes on in the background.

Sealing ends what is open in the same steps, without a claim of its own.

Invariants:
1. The state is recovered when the last ledger is CLOSED, never before.
2. A segment is completed at most once, with the end of its ledger and the state there.
3. Every claim that succeeds ends with an outcome, or is given back.

Rules: PROTOCOL O2 and O13.
"""

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId, LedgerId, Sequence
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import DamagedBytesError, GeologError

GIVE_BACK_S = 2.0
"""How long a failed takeover waits to give back its claim; it goes on in the background."""


@attrs.frozen
class ClaimPartition:
    """Take the partition from any other owner; `on_claimed`."""


@attrs.frozen
class ReadTrim:
    """Read where the partition begins, as of the claim or later; `on_trim`."""


@attrs.frozen
class ReadSegment:
    """Read the record of one segment; `on_segment`."""

    number: int


@attrs.frozen
class FindLastSegment:
    """Find the last segment in the list; `on_last_segment`."""


@attrs.frozen
class CloseLedger:
    """Recover the ledger, if it is not CLOSED; `on_closed`."""

    ledger: LedgerId


@attrs.frozen
class RecoverState:
    """Recover the state from the log up to the end of `last`; `on_state`."""

    last: SegmentRecord


@attrs.frozen
class CompleteSegment:
    """Store the segment's end, if this process still owns the partition; then nothing."""

    completed: SegmentRecord


@attrs.frozen
class AskWhyDeposed:
    """Ask whether another process owns the partition now; `on_owner_known`."""

    error: GeologError
    """The error if not."""


@attrs.frozen
class FailTakeover:
    """Raise the error: the takeover has failed."""

    error: GeologError


@attrs.frozen
class GiveBack:
    """Release the partition, and wait for metadata at most this long; then nothing."""

    patience_s: float


EndingStep = ReadSegment | FindLastSegment | CloseLedger | RecoverState | CompleteSegment
"""A step that ends what is open; it may find the log broken (`on_log_broken`)."""

Effect = ClaimPartition | ReadTrim | EndingStep | AskWhyDeposed | FailTakeover | GiveBack


class PartitionTakeover:
    """One takeover of a partition. The effects of one event may be performed concurrently."""

    def __init__(self, name: PartitionName) -> None:
        self._name = name
        self._is_claimed = False
        self._last: SegmentRecord | None = None
        self._closed_at: EntryId | None = None
        self._state: PartitionState | None = None
        self._first_sequence: Sequence | None = None

    def __repr__(self) -> str:
        return f"PartitionTakeover({self._name}, last segment {self._last})"

    @property
    def state(self) -> PartitionState:
        """The state from which the owner goes on, once nothing is left to perform."""
        assert self._state is not None, f"{self} is not over"
        return self._state

    @property
    def first_sequence(self) -> Sequence:
        """The trim at that time, likewise: records before it are gone."""
        assert self._first_sequence is not None, f"{self} is not over"
        return self._first_sequence

    def begin(self) -> list[Effect]:
        """Take the partition over."""
        return [ClaimPartition()]

    def on_claimed(self, segment_highest: int) -> list[Effect]:
        """This process owns the partition; the owner record has this number."""
        self._is_claimed = True
        return [*self.end_open_segment(segment_highest), ReadTrim()]

    def end_open_segment(self, segment_highest: int) -> list[Effect]:
        """End what is open, and recover the state, for an owner that is known already."""
        if segment_highest > 0:
            return [ReadSegment(segment_highest)]
        self._state = PartitionState()
        return []

    def on_trim(self, first_sequence: Sequence) -> list[Effect]:
        """The trim was read."""
        self._first_sequence = first_sequence
        return []

    def on_segment(self, segment: SegmentRecord | None) -> list[Effect]:
        """The segment with the highest number, or None if it is gone."""
        return [FindLastSegment()] if segment is None else self.on_last_segment(segment)

    def on_last_segment(self, segment: SegmentRecord | None) -> list[Effect]:
        """The last segment, or None if the list is empty."""
        self._last = segment
        if segment is None:
            self._state = PartitionState()
            return []
        return [RecoverState(segment) if segment.is_completed else CloseLedger(segment.ledger)]

    def on_closed(self, last_entry: EntryId) -> list[Effect]:
        """The last segment's ledger is CLOSED at this entry."""
        self._closed_at = last_entry
        assert self._last is not None
        return [RecoverState(self._last)]

    def on_state(self, state: PartitionState, *, now_us: int) -> list[Effect]:
        """The state by the log; `now_us` is this host's wall-clock time, not adjusted."""
        last = self._last
        assert last is not None
        end = last.last_entry if last.is_completed else self._closed_at
        assert end is not None, f"{self._name}: the state of an open ledger has no end"
        if end == NO_ENTRY:
            _go_on_behind_nothing(state, last)
        if _contradicts(state, last):
            return [AskWhyDeposed(_contradiction(self._name, state, last))]
        self._state = state
        if last.is_completed:
            return []
        completed = last.completed(
            last_entry=end,
            last_sequence=Sequence(state.sequence_next - 1),
            last_append_time_us=state.append_time_us,
            completed_us=now_us,
            last_transaction_id=state.transaction_id,
            size_bytes_through=state.size_bytes,
            local_only_through=state.local_only_count,
        )
        return [CompleteSegment(completed)]

    def on_log_broken(self, error: GeologError) -> list[Effect]:
        """A step that ends what is open found records, or a ledger, damaged or gone."""
        return [AskWhyDeposed(error)]

    def on_owner_known(self, asked: AskWhyDeposed, why: GeologError | None) -> list[Effect]:
        """The reason why this process was deposed; None if it still owns the partition."""
        return [FailTakeover(asked.error if why is None else why)]

    def on_given_up(self) -> list[Effect]:
        """The takeover has failed, for whatever reason, or nobody waits for it any more."""
        return [GiveBack(GIVE_BACK_S)] if self._is_claimed else []


def _go_on_behind_nothing(state: PartitionState, empty: SegmentRecord) -> None:
    """Set the state to what the empty segment's record says; all before it may be gone."""
    state.sequence_next = empty.first_sequence
    state.append_time_us = max(state.append_time_us, empty.append_time_us_before)
    if state.transaction_id is None:
        state.transaction_id = empty.transaction_id_before
    state.size_bytes = empty.size_bytes_before
    state.local_only_count = empty.local_only_before


def _contradicts(state: PartitionState, last: SegmentRecord) -> bool:
    """Whether the log does not end where the list of segments does."""
    if last.last_sequence is None:
        return state.sequence_next < last.first_sequence
    return state.sequence_next != last.last_sequence + 1


def _contradiction(
    name: PartitionName, state: PartitionState, last: SegmentRecord
) -> DamagedBytesError:
    by_list = (
        f"its last segment begins at {last.first_sequence}"
        if last.last_sequence is None
        else f"{last.last_sequence + 1} by its list of segments"
    )
    return DamagedBytesError(
        f"{name}: the next sequence is {state.sequence_next} by the log, but {by_list}"
    )
