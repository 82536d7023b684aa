"""The owner of a partition: assigns sequences, sends batches, acknowledges durable ones.

A session of a writer talks to it through two calls, which could as well come over a socket.
`hello` tells where a named writer stands, and begins a session with a fence. `append` takes a
batch in; the owner itself recognises repeats. Answers to new batches come in order, and hold
all that a session is told (`geolog.protocol.owner_answers`).

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
   in good order. It comes before the first batch or fence, so an empty ledger has none.
7. A fence of a named writer's session is an entry behind everything accepted before it, and is
   answered only when that entry is acknowledged. It moves to another ledger like a batch.
8. Batches that shared an entry share one in the next ledger, too, in the same order.

`SegmentRoller` opens the ledgers, one after another, and keeps their members up.

Rules: PROTOCOL M5, O5, O11, O14, O15, O16, S5, S7, S9, S18, S19, S31, S32 and W11.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import chain

import attrs
import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_changes import ClosingSegment
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.partition.append_times import AppendTimes
from geolog.partition.batch_admission import BatchAdmission, SkippedSeqError
from geolog.partition.batch_in_flight import (
    BatchInFlight,
    FenceInFlight,
    PartInFlight,
    RepeatInFlight,
    encode_parts,
    entries_of,
)
from geolog.partition.batch_sink import AnswerListener, Opened, SentBatch, answered
from geolog.partition.home_lease import HomeLease
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.loss_guard import LossGuard
from geolog.partition.open_segment import OpenSegment
from geolog.partition.relay_multicast import MulticastPort
from geolog.partition.repeated_batch import ReadBack, RepeatedBatch
from geolog.partition.segment_roller import SegmentRoller
from geolog.partition.segment_user import RowPlace
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.takeover import TakenOver
from geolog.protocol.append_failure import told_of_record
from geolog.protocol.home_record import HomeRecord, Lineage
from geolog.protocol.ids import EntryId, Epoch
from geolog.protocol.loss_bound import LossTerms
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerAnswer,
    OwnerEnded,
    Repeated,
    Unknown,
    answer_of_error,
    lease_over,
)
from geolog.protocol.roll import RollPolicy
from geolog.protocol.sequencer import Sequencer
from geolog.protocol.snapshot_pace import SnapshotPace
from geolog.protocol.stream_state import OwnerRecord, PartitionName, StreamRecord
from geolog.protocol.waiting_parts import WaitingParts
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.entry import EntryKind, WriterStamp, encode_entry
from geolog.wire.snapshot import seal_snapshot
from geolog.wire.writer_fence import seal_fence
from topology.errors import (
    ClosedError,
    FencedError,
    GeologError,
    HandedOverError,
    OutcomeUnknownError,
    UnavailableError,
)

_REASON_S = 2.0
"""How long metadata may take to tell which process took the partition from this owner."""

_LAST_SNAPSHOT_S = 1.0
"""Bound on writing a last snapshot, which only saves the next owner some reading."""


class PartitionWriter:
    """Writes one partition under one owner epoch; `open_partition_writers` makes it.

    Batches and fences, the parts of entries, move in order from `_waiting` (they have a
    sequence) to `_sent` (they are in an entry of the open ledger) and out. None moves from
    `_waiting` to `_sent` during a roll.
    `acknowledged` is the partition's state after everything that is out, `_sent_state` the
    state after what is in `_sent` too.
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
        read_back: ReadBack,
        nursery: trio.Nursery,
        at_home: HomeRecord | None = None,
        multicast: MulticastPort | None = None,
        guard: LossGuard | None = None,
        lease: HomeLease | None = None,
    ) -> None:
        """`nursery`: runs short tasks, such as the one that finds out why it was lost.

        at_home: the home record in the stream's home epoch; None if the home never moved.
        multicast: the way to the relays of the region, if the stream is relayed.
        guard: judges appends by how far mirrors are; None for a stream that has none. lease:
        appends are answered only inside it; None to answer always.
        """
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
        self._read_back = read_back
        self._nursery = nursery
        self._multicast = multicast
        self._guard = guard
        self._lease = lease
        self._withheld: deque[PartInFlight] = deque()
        """Durable, but not answered: the lease was over when they were acknowledged."""
        if lease is not None:
            lease.listeners.append(self)
        self._first_sequence = taken.first_sequence
        home_epoch = stream.home_epoch
        self._segment_offset = at_home.segment_offset(name.number, home_epoch) if at_home else 0
        self._lineage = at_home.lineage(name.number) if at_home else Lineage(home_epoch)
        self.acknowledged = taken.state
        self._sent_state = taken.state.copy()
        self._sequencer = Sequencer(taken.state.sequence_next, taken.state.append_time_us)
        self._admission = BatchAdmission(name, taken.state, has_home=stream.home is not None)
        self._waiting: WaitingParts[PartInFlight] = WaitingParts()
        self._is_turn_awaited = False
        """Whether what waits is sent once the tasks that are ready have run."""
        self._sent: deque[PartInFlight] = deque()
        self._repeats: deque[RepeatInFlight] = deque()
        self._snapshot_pace = SnapshotPace()
        self._failure: GeologError | None = None
        self._refusal: GeologError | None = None
        """Why nothing more is taken in: the failure, or that the writer is ending."""
        self._has_failed = trio.Event()
        self._is_fenced = False
        self._is_leaving = False
        self._closing: ClosingSegment | None = None
        """How to close the last ledger, if the writer has stopped in good order."""
        self._is_stopped = False
        self._is_closed = False
        """Whether metadata has that the last ledger is CLOSED."""
        self._has_ended = False
        """Whether a successor can be named: all is answered, and no ledger is open."""
        self._handed_over = trio.Event()
        """Set while no hand-over is under way."""
        self._handed_over.set()
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
            roll=RollPolicy(
                segment_bytes=stream.segment_bytes, segment_age_s=stream.segment_age_s
            ),
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
    def home(self) -> str | None:
        """The home of a `regional` stream; None if the stream is `global`."""
        return self._stream.home

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which this writer writes."""
        return self.owner.epoch

    @property
    def guard(self) -> LossGuard | None:
        """The bound on what the loss of its home could cost; None for a `global` stream."""
        return self._guard

    def use_loss_terms(self, terms: LossTerms | None) -> None:
        """Bound from now on what the loss of the home could cost, or do not."""
        if self._guard is not None and self._failure is None:
            self._guard.use(terms, sequence_next=self.sequence_next)

    @property
    def sequence_next(self) -> int:
        """The sequence of the next record that it accepts."""
        return self._sequencer.sequence_next

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._sent and not self._waiting and not self._withheld

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        return self._failure

    # The seam to sessions of writers.

    @property
    def opened(self) -> Opened:
        """The facts that a session that opens now is told."""
        stream = self._stream
        return Opened(
            self.acknowledged.transaction_id,
            stream.home_epoch,
            stream.session_epoch,
            self._lineage,
        )

    def home_epoch_of(self, segment: int) -> int:
        """The home epoch in which a segment was written."""
        return self._lineage.home_epoch_of(segment)

    async def wait_ended(self) -> OwnerEnded:
        """Wait until nothing more can be appended."""
        await self._has_failed.wait()
        assert self._failure is not None
        return OwnerEnded(self._failure, self._failure)

    async def hello(self, writer_id: bytes, fence: WriterFence | None) -> WriterStanding:
        """Tell where a named writer stands here; with a fence, begin its session first.

        The answer to a fence comes once the log holds it, behind everything that older sessions
        have appended. A repeated fence is written again: an owner that was deposed without
        noticing could otherwise confirm a session that is deposed, too. FenceRefusedError if
        another session has begun; OutcomeUnknownError and the owner's failure.
        """
        if self._refusal is not None:
            if self._refusal.outcome != "refused":  # The answer to this is not what was lost.
                why = self._refusal
                raise UnavailableError(f"{self.name} takes nothing more: {why}") from why
            raise self._refusal
        if fence is not None:
            await self._fence(writer_id, fence)
        writer = self.acknowledged.writer(writer_id)
        return WriterStanding(
            home_epoch=self._stream.session_epoch,
            epoch=self._admission.session_of(writer_id, self._sent_state).epoch,
            seq_highest=writer.seq_highest,
            generations=writer.generations,
            remembered=tuple(one.seqs for one in writer.batches),
        )

    async def _fence(self, writer_id: bytes, fence: WriterFence) -> None:
        self._admission.admit_fence(writer_id, fence, self._sent_state)
        now_us = self.now_us()
        assigned = self._sequencer.assign_none(now_us=now_us)
        sealed = seal_fence(writer_id, fence, now_us=now_us)
        part = FenceInFlight(sealed, assigned, trio.current_time(), writer_id, fence)
        self._accept(part)
        await part.done.wait()
        if isinstance(part.answer, OwnerEnded):
            raise part.answer.error

    def want_received(self) -> None:
        """Find out of batches when they are in memory, too; costs an answer of each member."""
        self._source.want_received()

    def append(
        self,
        sealed: SealedBatch,
        terms: BatchTerms = NO_TERMS,
        listener: AnswerListener | None = None,
    ) -> SentBatch:
        """Take a batch in; its answer says what became of it, now or later.

        A batch whose terms cannot be met is refused: nothing of it is in the log then. If the
        log has accepted a seq as high as its first, it is a repeat: it is compared with the
        log, once nothing of it is on its way, and nothing of it is appended.
        """
        stamp = terms.writer
        is_cut_off = self._lease is not None and self._lease.left_s() <= 0
        try:
            if stamp is not None and self._admission.is_repeat(stamp, self._sent_state):
                if is_cut_off:
                    return answered(Unknown(lease_over(self.name)))
                return self._repeat(sealed, stamp, listener)
            if self._refusal is not None:
                return answered(self._answer_to_unsent(is_numbered=stamp is not None))
            if self._lease is not None and is_cut_off:
                return answered(AppendRefused(self._lease.refusal()))
            if self._guard is not None:
                self._guard.check(sealed.length_bytes, stamp)
            self._admission.admit(
                terms, sent=self._sent_state, sequence_next=self._sequencer.sequence_next
            )
        except SkippedSeqError as error:
            behind = error if self._guard is None else self._guard.refusal_behind(terms, error)
            return answered(answer_of_error(behind))
        except GeologError as error:
            return answered(answer_of_error(error))
        assigned = self._sequencer.assign(sealed.record_count, now_us=self.now_us())
        if self._guard is not None:
            first = assigned.first_sequence
            self._guard.on_taken(first, first + sealed.record_count, sealed.length_bytes)
        batch = BatchInFlight(sealed, assigned, trio.current_time(), terms, listener=listener)
        self._accept(batch)
        return batch

    def _repeat(
        self, sealed: SealedBatch, stamp: WriterStamp, listener: AnswerListener | None
    ) -> SentBatch:
        first_try = self._in_flight_with(stamp)
        if first_try is None:
            return answered(self._compared(sealed, stamp))
        repeat = RepeatInFlight(sealed, stamp, first_try, listener=listener)
        self._repeats.append(repeat)
        return repeat

    def _in_flight_with(self, stamp: WriterStamp) -> BatchInFlight | None:
        """The last batch on its way that may hold one of these records."""
        if stamp.seqs.last <= self.acknowledged.writer(stamp.writer_id).seq_highest:
            return None
        for part in chain(reversed(self._waiting), reversed(self._sent)):
            if isinstance(part, BatchInFlight) and part.may_hold(stamp):
                return part
        return None

    def _compared(self, sealed: SealedBatch, stamp: WriterStamp) -> Repeated:
        writer = self.acknowledged.writer(stamp.writer_id)
        lease = self._lease
        return Repeated(
            RepeatedBatch(
                self.name,
                sealed,
                stamp,
                writer,
                self._read_back,
                lease_left_s=lambda: None if lease is None else lease.left_s(),
            )
        )

    def _answer_repeats(self, listeners: list[AnswerListener]) -> None:
        while self._repeats and self._repeats[0].first_try.done.is_set():
            repeat = self._repeats.popleft()
            _finish(repeat, self._compared(repeat.sealed, repeat.stamp), listeners)

    def _answer_to_unsent(self, *, is_numbered: bool) -> AppendRefused | OwnerEnded:
        """The answer while nothing more is taken in.

        Until it has failed, the owner knows all that is new, and so can refuse for certain.
        """
        failure = self._failure
        if failure is not None:
            return OwnerEnded(failure, told_of_record(failure, is_numbered=is_numbered))
        assert self._refusal is not None
        return AppendRefused(self._refusal)

    def _accept(self, part: PartInFlight) -> None:
        waiting = self._waiting
        waiting.push(part)
        if waiting.leave_at_once(entries_unanswered=self._entries_unanswered()):
            self._send_waiting()
        elif not self._is_turn_awaited:
            self._is_turn_awaited = True
            self._nursery.start_soon(self._send_after_turn)

    def _entries_unanswered(self) -> int:
        sent = self._sent
        return sent[-1].entry - sent[0].entry + 1 if sent else 0

    async def _send_after_turn(self) -> None:
        """Send what waits: tasks that were ready when this one was started have run."""
        self._is_turn_awaited = False
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._segments.may_send():
            parts = self._waiting.take_entry()
            self._sent.extend(parts)
            self._send(parts)
        self._segments.on_sent()

    def _send(self, parts: list[PartInFlight]) -> None:
        """Send an entry of these parts to the open ledger."""
        segment = self._segments.open
        assert segment is not None
        if self._is_snapshot_due(segment):
            self._send_snapshot(segment)
        encoded = encode_parts(
            parts,
            home_epoch=self._stream.home_epoch,
            segment=segment.number,
            entry=segment.writer.entry_next,
        )
        for part in parts:
            part.add_to(self._sent_state)
        segment.written_bytes += encoded.length_bytes
        self._snapshot_pace.on_entry(encoded.length_bytes)
        segment.writer.add_nowait(encoded)
        if self._multicast is not None:
            self._multicast.on_sent(encoded)

    # Snapshots of the state.

    def _is_snapshot_due(self, segment: OpenSegment) -> bool:
        if segment.writer.entry_next == 0:
            return segment.number > 1
        return self._snapshot_pace.is_due

    def _send_snapshot(self, segment: OpenSegment) -> None:
        """Write the state after everything that was sent."""
        state, now_us = self._sent_state, self.now_us()
        if segment.writer.entry_next == 0:
            # Nothing is sent here yet, so both states are the same one, and stay so.
            idle_us = round(self._stream.writer_retention_s * 1e6)
            under_way = {one.named_writer for one in chain(self._sent, self._waiting)}
            for one in (state, self.acknowledged):
                forgotten = one.forget_idle(
                    now_us - idle_us,
                    trimmed_before=self._first_sequence,
                    except_for=under_way,
                )
                self._admission.forget(forgotten)
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
            if self._multicast is not None:
                self._multicast.on_sent(encoded)
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
                self._progress = trio.Event()
                await self._progress.wait()

    # Events of the ledger's writer.

    def on_lac(self, lac: EntryId) -> None:
        """Acknowledge the entries of the acknowledged prefix."""
        sent = self._sent
        segment = self._segments.open
        assert segment is not None
        listeners: list[AnswerListener] = []
        while sent and sent[0].entry <= lac:
            part = sent.popleft()
            part.add_to(self.acknowledged)
            if self._lease is None:
                _finish(part, part.placed, listeners)
            else:
                self._withheld.append(part)
        if self._withheld:
            self._answer_withheld(listeners)
        if self._repeats:
            self._answer_repeats(listeners)
        if not sent and self._segments.is_rolling:
            self._segments.wake()
        self._tell(listeners)
        if self._multicast is not None:
            self._multicast.on_acknowledged(lac)

    def _answer_withheld(self, listeners: list[AnswerListener]) -> None:
        """Answer what is durable, if the lease allows it now."""
        assert self._lease is not None
        left_s = self._lease.left_s()
        if left_s <= 0:
            return
        until_s = trio.current_time() + left_s
        while self._withheld:
            part = self._withheld.popleft()
            placed = attrs.evolve(part.placed, valid_until_s=until_s)
            _finish(part, placed, listeners)

    def on_lease(self) -> None:
        """The lease was renewed: answer what had to wait for it. See `LeaseListener`."""
        if self._withheld and self._failure is None:
            listeners: list[AnswerListener] = []
            self._answer_withheld(listeners)
            self._tell(listeners)

    def on_lease_lost(self, why: GeologError) -> None:
        """The lease is over for good: fail. See `LeaseListener`."""
        self._fail(why)

    def on_received(self, through: EntryId) -> None:
        """Mark the entries that are in the memory of ack sets."""
        for part in self._sent:
            if part.entry > through:
                break
            if part.answer is None:
                part.receive(part.received_there)

    def _tell(self, listeners: list[AnswerListener]) -> None:
        self._progress.set()
        for listener in listeners:
            listener.on_answers()

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Fail, because the partition was taken: once the new owner is known, or after a bit.

        Entries that were sent are then unknown; others are refused, unless numbered.
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

    def _fail(self, failure: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = self._refusal = failure
        segment = self._segments.open
        if segment is not None and not segment.writer.is_over:
            segment.writer.close()
        listeners: list[AnswerListener] = []
        self._sent.extendleft(reversed(self._withheld))
        self._withheld.clear()
        while self._sent:
            part = self._sent.popleft()
            unknown = OutcomeUnknownError(
                f"{self.name}: {part} may or may not have been appended: {failure}"
            )
            unknown.__cause__ = failure
            _finish(part, OwnerEnded(failure, unknown), listeners)
        while self._waiting:
            for part in self._waiting.take_entry():
                told = told_of_record(failure, is_numbered=part.is_numbered)
                _finish(part, OwnerEnded(failure, told), listeners)
        while self._repeats:
            repeat = self._repeats.popleft()
            told = OutcomeUnknownError(
                f"{self.name}: the first try of these records has no answer: {failure}"
            )
            told.__cause__ = failure
            _finish(repeat, OwnerEnded(failure, told), listeners)
        if not self._is_leaving:
            self._owners.release_nowait(self._segments.owner)
        self._segments.wake()
        self._has_failed.set()
        self._tell(listeners)

    # What `SegmentRoller` asks and reports.

    @property
    def mirror_in(self) -> str | None:
        """None: it writes the log at home."""
        return None

    @property
    def is_failed(self) -> bool:
        """Whether to stop writing."""
        return self._failure is not None or self._is_fenced

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not acknowledged yet."""
        return bool(self._sent)

    def next_place(self, number: int) -> RowPlace:
        """A segment of its own, from its beginning."""
        home_epoch = self._stream.home_epoch
        if not self._stream.origin:
            return RowPlace(home_epoch=home_epoch, segment=number)
        segment = number + self._segment_offset
        return RowPlace(home_epoch=home_epoch, segment=segment, row=number)

    def now_us(self) -> int:
        """Wall-clock time, not far ahead of the metadata store's."""
        return self._times.now_us()

    def local_us(self) -> int:
        """Wall-clock time of this host, not adjusted."""
        return self._times.local_us()

    def check_deadline(self) -> None:
        """UnavailableError if the oldest entry has waited too long."""
        if not self._sent and not self._waiting:
            return  # What waits for the lease is durable.
        waited_s = trio.current_time() - (self._sent or self._waiting)[0].since_s
        if waited_s > self._config.append_timeout_s:
            raise UnavailableError(
                f"{self.name}: no ledger can be written; the oldest append has waited for"
                f" {waited_s:.0f} s"
            )

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Send unacknowledged entries again if the ledger is a new one; then go on there."""
        self._sent_state = self.acknowledged.copy()
        if self._multicast is not None:
            self._multicast.on_ledger()
        for parts in entries_of(self._sent):
            assert parts[0].segment < segment.number, f"{parts[0]} is in {segment} already"
            self._send(parts)
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
            await (self._sent or self._waiting or self._withheld)[-1].done.wait()

    def take_no_more(self) -> None:
        """Refuse appends from now on, because the writer closes; `leave` follows."""
        if self._refusal is None:
            self._refusal = _closed()

    async def end(self, why: HandedOverError | None = None) -> VersionedOwner:
        """Take no more appends, answer those taken, close the ledger: ready for a successor.

        Appends are refused meanwhile, for certain, with `why`, or else HandedOverError. If the
        caller stops waiting before all are answered, the writer goes on. Raises why it has
        failed, if so.
        `on_handed_over` must follow: the writer does not leave before.
        """
        if self._handed_over.is_set():
            self._handed_over = trio.Event()
        if self._has_ended:
            return self._segments.owner
        moves = why or HandedOverError(f"{self.name} moves to another owner: send it there")
        if self._refusal is None:
            self._refusal = moves
        try:
            await self.wait_idle()
            if self.is_failed:
                raise (await self.wait_ended()).failure
            await self._close_ledger(moves)
        finally:
            if not self._is_stopped:  # The caller has given up: go on.
                self._refusal, self._is_leaving = self._failure, False
        self._has_ended = True
        return self._segments.owner

    def on_handed_over(self) -> None:
        """The hand-over is over, whether or not a successor has the partition."""
        self._handed_over.set()

    async def leave(self) -> None:
        """Close the open ledger and leave, so that the next owner need not recover.

        A hand-over under way comes first: the record of an owner that has left cannot be given.
        Requests that metadata does not answer are repeated; the caller bounds that. The leave
        itself is always recorded, later if need be: readers would otherwise wait for ever. A
        successor that was given the partition is left alone.
        """
        try:
            await self._handed_over.wait()
            await self._close_and_release()
        finally:
            self._owners.release_nowait(self._segments.owner)

    async def _close_and_release(self) -> None:
        with suppress(GeologError):  # Nothing is lost: the next owner recovers the open ledger.
            await self._close_ledger(_closed())
        await self._owners.release(self._segments.owner)
        await self._segments.discard_unused()
        closing = self._closing
        if closing is not None and closing.change.last_entry is not None:
            await self._segments.retire(closing.change.last_entry)

    async def _close_ledger(self, why: GeologError) -> None:
        """Stop writing for this reason, and close the open ledger if all are answered."""
        self._is_leaving = True  # First close the open ledger, then leave in metadata.
        if self._refusal is None:  # An append during the last snapshot would end unknown.
            self._refusal = why
        if not self._is_stopped:
            if self.is_idle and not self.is_failed:
                await self._end_with_snapshot()
            self._closing = self._segments.stop(is_clean=self.is_idle and not self.is_failed)
            self._is_stopped = True
            self._fail(why)
        if self._closing is not None and not self._is_closed:
            owner = self._segments.owner
            finish = self._partitions.changes.finish
            await self._insist(partial(finish, self.name, owner, self._closing))
            self._is_closed = True

    def close(self) -> None:
        """Release the connections to nodes."""
        self._source.close()
        if self._guard is not None:
            self._guard.close()

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except GeologError as error:
                if not error.retriable:
                    raise
            await trio.sleep(self._config.retry_delay_s)


def _closed() -> ClosedError:
    return ClosedError("the writer is closed: use it within its block")


def _finish(part: SentBatch, answer: OwnerAnswer, listeners: list[AnswerListener]) -> None:
    """Answer one; note its listener, which is told once all of a kind are answered."""
    part.finish(answer)
    listener = part.listener
    if listener is not None and (not listeners or listeners[-1] is not listener):
        listeners.append(listener)
