"""The owner of a partition: assigns sequences, sends batches, acknowledges durable ones.

Invariants (PROTOCOL O4 to O6, O11 and S1):

1. Sequences are dense, in the order in which batches were accepted.
2. No entry of a ledger is acknowledged before the ledger's predecessor is CLOSED: one multi
   closes the old ledger, opens and lists the next one, and checks the owner epoch.
3. If entries cannot be acknowledged, and replacing members does not help, the ledger is closed
   at its LAC. The entries above the LAC are written again to the next ledger, with the same
   sequences.
4. Ownership is a hint, the fence is the truth. With metadata away the open ledger goes on, past
   its size and age if necessary; the first FENCED ends the writer. An owner that has failed
   leaves in metadata at once, so that readers need not wait for its block to end.
5. A batch ends acknowledged, refused (it was never sent), or unknown. A failure never refuses a
   batch of a named writer: a newer session may have appended it.
6. A snapshot of the partition's state (its writers, its highest transaction id) opens every
   ledger but the partition's first, is repeated at intervals, and ends a ledger that is closed
   in good order. It comes before the first batch, so a ledger without batches has none.

`SegmentRoller` decides which ledger is written, and by which members.

Rules: PROTOCOL M5, O5, O11, O14, S18, S19 and W11.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.partition.append_times import AppendTimes
from geolog.partition.batch_admission import BatchAdmission
from geolog.partition.batch_in_flight import NO_TERMS, BatchInFlight, BatchTerms
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.open_segment import OpenSegment
from geolog.partition.segment_roller import SegmentRoller
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.takeover import TakenOver
from geolog.protocol.append_failure import told_of_record
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.sequencer import Sequencer
from geolog.protocol.snapshot_pace import SnapshotPace
from geolog.protocol.stream_state import OwnerRecord, PartitionName, StreamRecord
from geolog.wire.batch import SealedBatch
from geolog.wire.entry import EntryKind, encode_entry
from geolog.wire.snapshot import seal_snapshot
from topology.errors import (
    ClosedError,
    FencedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)

_REASON_S = 2.0
"""How long metadata may take to tell which process took the partition from this owner."""

_LAST_SNAPSHOT_S = 1.0
"""Bound on writing a last snapshot, which only saves the next owner some reading."""


class PartitionWriter:
    """Writes one partition under one owner epoch; `open_partition_writers` makes it.

    Batches move, in order, from `_waiting` (they have a sequence) to `_sent` (they are in the
    open ledger, one entry each) and out. None moves from `_waiting` to `_sent` during a roll.
    `acknowledged` is the partition's state after all batches that are out, `_sent_state` the
    state after those in `_sent` too.
    """

    def __init__(
        self,
        name: PartitionName,
        stream: StreamRecord,
        taken: TakenOver,
        *,
        partitions: PartitionMetadata,
        owners: ShownOwners,
        source: LedgerAllocator,
        config: PartitionConfig,
        now_us: Callable[[], int],
        on_progress: Callable[[], None],
        nursery: trio.Nursery,
    ) -> None:
        """`nursery`: runs the task that finds out why the partition was lost."""
        self.name = name
        self._stream = stream
        self._partitions = partitions
        self._owners = owners
        self._source = source
        self._config = config
        self._times = AppendTimes(
            name,
            taken.owner.record,
            owners=partitions.owners,
            session=partitions.session,
            now_us=now_us,
            nursery=nursery,
        )
        self._times.warn_if_ahead(taken.state.append_time_us)
        self._on_progress = on_progress
        self._nursery = nursery
        self._first_sequence = taken.first_sequence
        self.acknowledged = taken.state
        self._sent_state = taken.state.copy()
        self._sequencer = Sequencer(taken.state.sequence_next, taken.state.append_time_us)
        self._admission = BatchAdmission(name, taken.state)
        self._waiting: deque[BatchInFlight] = deque()
        self._sent: deque[BatchInFlight] = deque()
        self._in_flight_bytes = 0
        self._snapshot_pace = SnapshotPace()
        self._failure: GeologError | None = None
        self.unknown_count = 0
        """Records without an answer when the writer failed: they may be in the log."""
        self._is_fenced = False
        self._is_leaving = False
        self._progress = trio.Event()
        self._segments = SegmentRoller(
            name,
            stream,
            taken.owner,
            self,
            changes=partitions.changes,
            session=partitions.session,
            source=source,
            config=config,
        )
        owners.tell_deposed(taken.owner.record, self._fail)

    def __repr__(self) -> str:
        return (
            f"PartitionWriter({self.name}, epoch {self.epoch}, {len(self._sent)} sent,"
            f" {len(self._waiting)} waiting, {self._segments.open!r})"
        )

    @property
    def owner(self) -> OwnerRecord:
        """The owner record as this owner knows it."""
        return self._segments.owner.record

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which this writer writes."""
        return self.owner.epoch

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of batches that are neither acknowledged nor failed."""
        return self._in_flight_bytes

    @property
    def in_flight_count(self) -> int:
        """How many batches are neither acknowledged nor failed."""
        return len(self._sent) + len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._sent and not self._waiting

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        return self._failure

    def append_nowait(self, sealed: SealedBatch, terms: BatchTerms = NO_TERMS) -> BatchInFlight:
        """Accept a batch; its `done` event says when it is answered.

        ConflictError if its terms cannot be met: nothing of it is in the log then.
        """
        if self._failure is not None:
            raise told_of_record(self._failure, is_numbered=terms.writer is not None)
        self._admission.admit(
            terms, sequence_next=self._sequencer.sequence_next, sent=self._sent_state
        )
        assigned = self._sequencer.assign(sealed.record_count, now_us=self.now_us())
        batch = BatchInFlight(sealed, assigned, trio.current_time(), terms)
        self._in_flight_bytes += batch.size_bytes
        self._waiting.append(batch)
        self._send_waiting()
        return batch

    def _send_waiting(self) -> None:
        while self._waiting and self._segments.may_send():
            batch = self._waiting.popleft()
            self._sent.append(batch)
            self._send(batch)
        self._segments.on_sent()

    def _send(self, batch: BatchInFlight) -> None:
        segment = self._segments.open
        assert segment is not None
        if self._is_snapshot_due(segment):
            self._send_snapshot(segment)
        batch.segment = segment.number
        batch.entry = segment.writer.entry_next
        encoded = encode_entry(
            [batch.sealed],
            home_epoch=self._stream.home_epoch,
            segment=batch.segment,
            entry=batch.entry,
            first_sequence=batch.first_sequence,
            append_time_us=batch.assigned.append_time_us,
            writers=[batch.terms.writer],
        )
        _note(self._sent_state, batch)
        segment.written_bytes += encoded.length_bytes
        self._snapshot_pace.on_entry(encoded.length_bytes)
        segment.writer.add_nowait(encoded)

    # Snapshots of the state.

    def _is_snapshot_due(self, segment: OpenSegment) -> bool:
        if segment.writer.entry_next == 0:
            return segment.number > 1
        return self._snapshot_pace.is_due

    def _send_snapshot(self, segment: OpenSegment) -> None:
        """Write the state after everything that was sent."""
        state, now_us = self._sent_state, self.now_us()
        if segment.writer.entry_next == 0:
            idle_us = round(self._stream.writer_retention_s * 1e6)
            state.forget_idle(now_us - idle_us, trimmed_before=self._first_sequence)
        snapshot_bytes = 0
        for sealed in seal_snapshot(state, now_us=now_us):
            encoded = encode_entry(
                [sealed],
                kind=EntryKind.CONTROL,
                home_epoch=self._stream.home_epoch,
                segment=segment.number,
                entry=segment.writer.entry_next,
                first_sequence=state.sequence_next,
                append_time_us=state.append_time_us,
            )
            snapshot_bytes += encoded.length_bytes
            segment.writer.add_nowait(encoded)
        self._snapshot_pace.on_snapshot(snapshot_bytes)

    async def _end_with_snapshot(self) -> None:
        """Write a last snapshot if it saves the next owner reading, and can be done quickly."""
        segment = self._segments.open
        if segment is None or self._segments.is_rolling:
            return
        if not self._snapshot_pace.is_worth_ending_with:
            return
        self._send_snapshot(segment)
        last = EntryId(segment.writer.entry_next - 1)
        with trio.move_on_after(_LAST_SNAPSHOT_S):
            while segment.writer.lac < last and not self.is_failed:
                await self._progress.wait()

    # Events of the ledger's writer.

    def on_lac(self, lac: EntryId) -> None:
        """Acknowledge the batches of the acknowledged prefix."""
        sent = self._sent
        segment = self._segments.open
        assert segment is not None
        while sent and sent[0].entry <= lac:
            batch = sent.popleft()
            _note(self.acknowledged, batch)
            self._finish(batch, None)
        if self._segments.is_rolling and not sent:
            self._segments.wake()
        self._tell_progress()

    def on_received(self, through: EntryId) -> None:
        """Mark the batches that are in the memory of ack sets."""
        for batch in self._sent:
            if batch.entry > through:
                break
            batch.received.set()

    def _tell_progress(self) -> None:
        progress, self._progress = self._progress, trio.Event()
        progress.set()
        self._on_progress()

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Fail, because the partition was taken: once the new owner is known, or after a bit.

        Batches that were sent are then unknown; others are refused, unless numbered.
        """
        segment = self._segments.open
        if segment is not None and writer is segment.writer and not self.is_failed:
            fenced = FencedError(f"another writer owns {self.name} now: {why}")
            self._nursery.start_soon(self._fail_as_deposed, fenced)
            self._is_fenced = True
            self._segments.wake()

    async def _fail_as_deposed(self, fenced: FencedError) -> None:
        """Fail for the reason that metadata gives, if it comes soon; else as fenced."""
        self._is_fenced = True
        failure: GeologError = fenced
        with trio.move_on_after(_REASON_S), suppress(GeologError):
            found = await self._partitions.owners.why_deposed(self.name, self.owner)
            if found is not None and not isinstance(found, FencedError):
                failure = found
        self._fail(failure)

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - Asked for again.
        """Look for other members: too few are up."""
        self._segments.wake()

    def _finish(self, batch: BatchInFlight, error: GeologError | None) -> None:
        batch.error = error
        self._in_flight_bytes -= batch.size_bytes
        batch.done.set()
        batch.received.set()

    def _fail(self, failure: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        segment = self._segments.open
        if segment is not None and not segment.writer.is_over:
            segment.writer.close()
        while self._sent:
            batch = self._sent.popleft()
            self.unknown_count += batch.sealed.record_count
            unknown = OutcomeUnknownError(
                f"{self.name}: records from sequence {batch.assigned.first_sequence} may or may"
                f" not have been appended: {failure}"
            )
            unknown.__cause__ = failure
            self._finish(batch, unknown)
        while self._waiting:
            batch = self._waiting.popleft()
            is_numbered = batch.terms.writer is not None
            if is_numbered:
                self.unknown_count += batch.sealed.record_count
            self._finish(batch, told_of_record(failure, is_numbered=is_numbered))
        if not self._is_leaving:
            self._owners.release_nowait(self._segments.owner)
        self._segments.wake()
        self._tell_progress()

    # What `SegmentRoller` asks and reports.

    @property
    def is_failed(self) -> bool:
        """Whether to stop writing."""
        return self._failure is not None or self._is_fenced

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not acknowledged yet."""
        return bool(self._sent)

    def now_us(self) -> int:
        """Wall-clock time, not far ahead of the metadata store's."""
        return self._times.now_us()

    def local_us(self) -> int:
        """Wall-clock time of this host, not adjusted."""
        return self._times.local_us()

    def check_deadline(self) -> None:
        """UnavailableError if the oldest batch has waited too long."""
        if self.is_idle:
            return
        waited_s = trio.current_time() - (self._sent or self._waiting)[0].since_s
        if waited_s > self._config.append_timeout_s:
            raise UnavailableError(
                f"{self.name}: no ledger can be written; the oldest append has waited for"
                f" {waited_s:.0f} s"
            )

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Send unacknowledged batches again if the ledger is a new one; then go on there."""
        self._sent_state = self.acknowledged.copy()
        for batch in self._sent:
            assert batch.segment < segment.number, f"{batch} is in {segment} already"
            self._send(batch)
        self._send_waiting()

    # Lifecycle.

    async def start(self) -> None:
        """Open the first ledger of this owner."""
        await self._segments.start()

    async def run(self) -> None:
        """Roll, replace members, fail over and make ledgers ahead, until the writer fails."""
        try:
            await self._segments.run()
        except FencedError as error:
            await self._fail_as_deposed(error)
        except GeologError as error:
            self._fail(error)

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight, or the writer has failed."""
        while not self.is_idle and self._failure is None:
            await (self._sent or self._waiting)[-1].done.wait()

    async def leave(self) -> None:
        """Close the open ledger and leave, so that the next owner need not recover.

        Requests that metadata does not answer are repeated; the caller bounds that. The leave
        itself is always recorded, later if need be: readers would otherwise wait for ever.
        """
        try:
            await self._close_and_release()
        finally:
            self._owners.release_nowait(self._segments.owner)

    async def _close_and_release(self) -> None:
        self._is_leaving = True  # First close the open ledger, then leave in metadata.
        if self.is_idle and not self.is_failed:
            await self._end_with_snapshot()
        closing = self._segments.stop(is_clean=self.is_idle and not self.is_failed)
        self._fail(ClosedError("the writer is closed: use it within its block"))
        owner = self._segments.owner
        if closing is not None:
            finish = partial(self._partitions.changes.finish, self.name, owner, closing)
            await self._insist(finish)
        await self._owners.release(owner)
        await self._segments.discard_unused()
        if closing is not None and closing.change.last_entry is not None:
            await self._segments.retire(closing.change.last_entry)

    def close(self) -> None:
        """Release the connections to nodes."""
        self._source.close()

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except GeologError as error:
                if not error.retriable:
                    return  # Nothing is lost: the next owner recovers the open ledger.
            await trio.sleep(self._config.retry_delay_s)


def _note(state: PartitionState, batch: BatchInFlight) -> None:
    """Add a batch, which is an entry of its own, to the state."""
    append_time_us = batch.assigned.append_time_us
    state.on_entry(
        next_sequence=batch.next_sequence,
        append_time_us=append_time_us,
        transaction_id=batch.terms.transaction_last,
        batch_bytes=batch.size_bytes,
    )
    stamp = batch.terms.writer
    if stamp is not None:
        state.on_batch(
            stamp.writer_id,
            stamp.epoch,
            batch.written(stamp),
            append_time_us,
            partitions=stamp.partitions,
        )
