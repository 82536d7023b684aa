"""The owner of a partition: gives sequences, writes ledgers one after the other, fails over.

It takes sealed batches and answers each when it is durable. What it must keep true (design
section 7):

1. Sequences are dense, in the order in which batches were taken in.
2. No entry of a ledger is answered before its predecessor is CLOSED: the next ledger is
activated
   by one multi that closes the old one, opens the new one, lists it, and checks the owner
   epoch.
3. When entries cannot be acknowledged, the ledger is closed at its LAC and those above it are
   written again, with the same sequences, to the next.
4. Ownership is a hint, the fence is the truth: with metadata away the open ledger goes on, past
   its size and age if need be; the first FENCED ends it all.
5. A batch ends as acknowledged, refused (it was never sent), or unknown.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from geolog.client.batch_in_flight import Acknowledged, BatchInFlight
from geolog.client.ledger_source import LedgerSource, PreparedLedger
from geolog.client.partition_config import PartitionConfig
from geolog.client.stream_metadata import (
    ClosingSegment,
    StreamMetadata,
    VersionedOwner,
    VersionedSegment,
)
from geolog.client.takeover import TakenOver
from geolog.ledger.ledger_metadata import VersionedLedger
from geolog.ledger.ledger_writer import LedgerWriter
from geolog.protocol.ids import EntryId, Epoch, InstanceId, Sequence
from geolog.protocol.roll import RollPolicy
from geolog.protocol.sequencer import Sequencer
from geolog.protocol.stream_state import HOME_EPOCH, SegmentRecord, StreamRecord
from geolog.wire.batch import SealedBatch
from geolog.wire.entry import encode_entry
from topology.errors import (
    FencedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)
from topology.placement import Adherence

_BETTER_PAUSES_MAX = 32
"""How many times `better_ledger_s` the pause grows to while no better ledger is to be had."""


class PartitionWriter:
    """Writes one partition under one owner epoch; `open_partition_writer` makes it.

    Batches move, in order, from `_waiting` (sequence given) to `_sent` (in the open ledger, one
    entry each) and out. While `_is_rolling` nothing moves from the one to the other.
    """

    def __init__(
        self,
        stream: StreamRecord,
        taken: TakenOver,
        *,
        streams: StreamMetadata,
        source: LedgerSource,
        config: PartitionConfig,
        now_us: Callable[[], int],
        on_progress: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._streams = streams
        self._source = source
        self._config = config
        self._now_us = now_us
        self._on_progress = on_progress
        self._owner: VersionedOwner = taken.owner
        self._sequencer = Sequencer(Sequence(taken.last_sequence + 1), taken.append_time_us)
        self._acknowledged = Acknowledged(taken.last_sequence, taken.append_time_us)
        self._roll = RollPolicy(segment_bytes=stream.segment_bytes)
        self._waiting: deque[BatchInFlight] = deque()
        self._sent: deque[BatchInFlight] = deque()
        self._in_flight_bytes = 0
        self._ledger: VersionedLedger | None = None
        self._segment: VersionedSegment | None = None
        self._writer: LedgerWriter | None = None
        self._written_bytes = 0
        self._opened_s = 0.0
        self._next: PreparedLedger | None = None
        self._prepare_not_before_s = 0.0
        self._adherence = Adherence.STRICT
        self._better_not_before_s = math.inf
        self._better_pause_s = config.better_ledger_s
        self._is_rolling = True  # Until the first ledger is active.
        self._wake = trio.Event()
        self._failure: GeologError | None = None
        self.failovers_count = 0
        self.rolls_count = 0

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which this writer writes."""
        return self._owner.record.epoch

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of batches that are neither acknowledged nor failed."""
        return self._in_flight_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._sent and not self._waiting

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        return self._failure

    def append_nowait(self, sealed: SealedBatch) -> BatchInFlight:
        """Take a batch in; it is answered through `done`."""
        if self._failure is not None:
            raise self._failure
        assigned = self._sequencer.assign(sealed.record_count, now_us=self._now_us())
        batch = BatchInFlight(sealed, assigned, trio.current_time())
        self._in_flight_bytes += batch.size_bytes
        self._waiting.append(batch)
        self._send_waiting()
        return batch

    def _send_waiting(self) -> None:
        while self._waiting and not self._is_rolling:
            if self._is_roll_due():
                self._is_rolling = True
                self._wake.set()
                return
            batch = self._waiting.popleft()
            self._sent.append(batch)
            self._send(batch)
        if self._next is None and self._roll.is_preparation_due(
            written_bytes=self._written_bytes
        ):
            self._wake.set()

    def _is_roll_due(self) -> bool:
        """A full segment goes on until the next ledger is ready, and metadata there."""
        return self._next is not None and self._is_full() and self._streams.is_reachable

    def _is_full(self) -> bool:
        return self._roll.is_due(
            written_bytes=self._written_bytes, age_s=trio.current_time() - self._opened_s
        )

    def _send(self, batch: BatchInFlight) -> None:
        assert self._writer is not None
        assert self._segment is not None
        batch.segment = self._segment.record.segment
        batch.entry = self._writer.entry_next
        encoded = encode_entry(
            [batch.sealed],
            home_epoch=HOME_EPOCH,
            segment=batch.segment,
            entry=batch.entry,
            first_sequence=batch.assigned.first_sequence,
            append_time_us=batch.assigned.append_time_us,
        )
        self._written_bytes += encoded.length_bytes
        self._writer.add_nowait(encoded)

    # What the ledger's writer tells.

    def on_lac(self, lac: EntryId) -> None:
        """Answer the batches of the acknowledged prefix."""
        sent = self._sent
        acknowledged = self._acknowledged
        while sent and sent[0].entry <= lac:
            batch = sent.popleft()
            acknowledged.last_sequence = batch.last_sequence
            acknowledged.append_time_us = batch.assigned.append_time_us
            acknowledged.size_bytes += batch.size_bytes
            self._finish(batch, None)
        if self._is_rolling and not sent:
            self._wake.set()
        self._on_progress()

    def on_received(self, through: EntryId) -> None:
        """It is not asked for: a batch is answered when it is durable."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Another owns the partition: what was sent is unknown, what was not is refused."""
        if writer is self._writer:
            self._fail(FencedError(f"another writer owns {self._stream.name} now: {why}"))

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - It is asked again.
        """Too few members are up: look for another ledger."""
        self._wake.set()

    def _finish(self, batch: BatchInFlight, error: GeologError | None) -> None:
        batch.error = error
        self._in_flight_bytes -= batch.size_bytes
        batch.done.set()

    def _fail(self, failure: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._writer is not None:
            self._writer.close()
        while self._sent:
            batch = self._sent.popleft()
            unknown = OutcomeUnknownError(
                f"whether sequence {batch.assigned.first_sequence} and on of"
                f" {self._stream.name} was appended is not known: {failure}"
            )
            unknown.__cause__ = failure
            self._finish(batch, unknown)
        while self._waiting:
            self._finish(self._waiting.popleft(), failure)
        self._wake.set()
        self._on_progress()

    # The one task that changes ledgers.

    async def run(self) -> None:
        """Roll, fail over and make ledgers ahead, as need be, until it fails."""
        try:
            while self._failure is None:
                await self._wait_for_work()
                await self._work()
        except GeologError as error:
            self._fail(error)

    async def _wait_for_work(self) -> None:
        with trio.move_on_after(min(0.25, self._config.add_timeout_s / 4)):
            await self._wake.wait()
        self._wake = trio.Event()

    async def _work(self) -> None:
        writer = self._writer
        if self._failure is not None or writer is None:
            return
        if writer.is_stuck() or writer.is_late(self._config.add_timeout_s):
            await self._fail_over(writer)
        elif self._is_rolling:
            if not self._sent:
                await self._roll_over()
        elif self._is_preparation_due():
            await self._prepare_ahead()
        elif self._is_better_ledger_due(writer):
            await self._prepare_better(writer)

    def _is_preparation_due(self) -> bool:
        return (
            self._next is None
            and (
                self._roll.is_preparation_due(written_bytes=self._written_bytes)
                or self._is_full()  # By its age.
            )
            and trio.current_time() >= self._prepare_not_before_s
        )

    async def _prepare_ahead(self) -> None:
        try:
            self._next = await self._source.prepare(self)
        except GeologError as error:
            if not error.retriable:
                raise
            # The open ledger goes on past its size; it is tried again after a pause.
            self._prepare_not_before_s = trio.current_time() + self._config.prepare_retry_s

    def _is_better_ledger_due(self, writer: LedgerWriter) -> bool:
        """Whether the open ledger should have a successor before it is full.

        It would not survive another region, or some of its members have been away for a while.
        """
        now_s = trio.current_time()
        if self._adherence is Adherence.STRICT and not writer.instances_missing():
            self._better_pause_s = self._config.better_ledger_s
            self._better_not_before_s = now_s + self._better_pause_s
        return now_s >= self._better_not_before_s

    async def _prepare_better(self, writer: LedgerWriter) -> None:
        """Look for a ledger without those that are away; after each that fails, less often."""
        self._better_not_before_s = trio.current_time() + self._better_pause_s
        self._better_pause_s = min(
            2 * self._better_pause_s, _BETTER_PAUSES_MAX * self._config.better_ledger_s
        )
        try:
            better = await self._source.prepare_better(self, avoid=writer.instances_missing())
        except GeologError as error:
            if not error.retriable:
                raise
            return
        if better is not None:
            if self._next is not None:
                self._source.discard_soon(self._next)
            self._next = better
            self._is_rolling = True
            self._wake.set()

    async def _roll_over(self) -> None:
        prepared, self._next = self._next, None
        if prepared is not None and prepared.writer.can_go_on():
            await self._move_on(prepared)
            self.rolls_count += 1
            return
        if prepared is not None:
            self._source.discard_soon(prepared)  # Its members left since.
        self._is_rolling = False  # The open ledger goes on, and another is made ahead.
        self._send_waiting()

    async def _fail_over(self, writer: LedgerWriter) -> None:
        """Find another ledger for what this one cannot acknowledge, unless it recovers."""
        late: list[InstanceId] = writer.instances_late()
        while writer.is_stuck() or writer.is_late(self._config.add_timeout_s):
            if self._failure is not None:
                return
            self._check_deadline()
            try:
                prepared = await self._ready_ledger(late)
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(self._config.retry_delay_s)
                continue
            if self._failure is None:
                await self._move_on(prepared)
                self.failovers_count += 1
            return

    async def _ready_ledger(self, avoid: list[InstanceId]) -> PreparedLedger:
        """The ledger made ahead if it can be written now, else a new one."""
        prepared, self._next = self._next, None
        if prepared is not None:
            if prepared.writer.can_go_on() and not set(avoid) & prepared.writer.instances():
                return prepared
            self._source.discard_soon(prepared)
        return await self._source.prepare(self, avoid=avoid)

    def _check_deadline(self) -> None:
        if self.is_idle:
            return
        waited_s = trio.current_time() - (self._sent or self._waiting)[0].since_s
        if waited_s > self._config.append_timeout_s:
            raise UnavailableError(
                f"no ledger can be written for {self._stream.name}: the oldest append waited"
                f" {waited_s:.0f} s"
            )

    async def _move_on(self, prepared: PreparedLedger) -> None:
        """Close the open ledger at its LAC, activate the next, and send there what is above."""
        assert self._writer is not None
        self._is_rolling = True
        self._writer.close()  # From here on nothing more is acknowledged in it.
        await self._activate(prepared, self._closing(self._writer.lac))

    def _closing(self, last_entry: EntryId) -> ClosingSegment:
        """How the open ledger and its segment are to be when they end at `last_entry`."""
        assert self._ledger is not None
        assert self._segment is not None
        completed = self._segment.record.completed(
            last_entry=last_entry,
            last_sequence=self._acknowledged.last_sequence,
            last_append_time_us=self._acknowledged.append_time_us,
            size_bytes=self._acknowledged.size_bytes,
        )
        closed = self._ledger.record.closed(last_entry)
        return ClosingSegment(self._ledger, closed, self._segment, completed)

    async def start(self) -> None:
        """Open the first ledger of this owner."""
        await self._activate(await self._source.prepare(self), None)

    async def _activate(self, prepared: PreparedLedger, closing: ClosingSegment | None) -> None:
        """Make a prepared ledger the open one: metadata is asked until it tells."""
        segment = SegmentRecord(
            segment=self._owner.record.segment_highest + 1,
            ledger=prepared.ledger.record.ledger,
            home_epoch=HOME_EPOCH,
            first_sequence=Sequence(self._acknowledged.last_sequence + 1),
            owner_epoch=self._owner.record.epoch,
            activated_us=self._now_us(),
            append_time_us_before=self._acknowledged.append_time_us,
        )
        activated = await self._activated(prepared, closing, segment)
        if self._failure is not None:
            prepared.writer.close()
            return
        if prepared.writer.is_over:  # While metadata's answer was on its way.
            raise FencedError(f"another writer owns {self._stream.name} now")
        self._owner, self._ledger, self._segment = activated
        self._writer = prepared.writer
        self._adherence = prepared.adherence
        self._better_not_before_s = trio.current_time() + self._config.better_ledger_s
        self._acknowledged.size_bytes = 0
        self._written_bytes = 0
        self._opened_s = trio.current_time()
        self._is_rolling = False
        for batch in self._sent:
            self._send(batch)
        self._send_waiting()

    async def _activated(
        self, prepared: PreparedLedger, closing: ClosingSegment | None, segment: SegmentRecord
    ) -> tuple[VersionedOwner, VersionedLedger, VersionedSegment]:
        while True:
            try:
                return await self._streams.activate(
                    self._stream.name,
                    self._owner,
                    closing=closing,
                    opening=prepared.ledger,
                    segment=segment,
                )
            except GeologError as error:
                if not error.retriable:
                    raise
                self._check_deadline()
                await trio.sleep(self._config.retry_delay_s)

    # Leaving.

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight, or the writer has failed."""
        while not self.is_idle and self._failure is None:
            await (self._sent or self._waiting)[-1].done.wait()

    def stop(self) -> ClosingSegment | None:
        """Take nothing more in. With nothing in flight: how the open ledger is to be closed."""
        if self._next is not None:
            self._next.writer.close()
        is_clean = self.is_idle and self._failure is None
        writer = self._writer
        if writer is not None:
            writer.push_lac_nowait()  # Readers need it, should the ledger be left open.
            writer.close()
        self._fail(FencedError("this writer is closed"))
        if writer is None or not is_clean:
            return None
        return self._closing(writer.lac)

    async def leave(self) -> None:
        """Close the open ledger for good and leave, so that the next owner need not recover.

        What metadata does not answer is asked again; the caller bounds that.
        """
        unused, self._next = self._next, None
        closing = self.stop()
        if closing is not None:
            await self._insist(
                partial(self._streams.finish, self._stream.name, self._owner, closing)
            )
        await self._insist(partial(self._streams.release_ownership, self._owner))
        if unused is not None:
            await self._source.discard(unused)

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except GeologError as error:
                if not error.retriable:
                    return  # Nothing is lost: the next owner recovers what is left open.
            await trio.sleep(self._config.retry_delay_s)
