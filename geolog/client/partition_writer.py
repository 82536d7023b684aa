"""The owner of a partition: gives sequences, sends batches, answers them when they are durable.

What it must keep true (design section 7):

1. Sequences are dense, in the order in which batches were taken in.
2. No entry of a ledger is answered before its predecessor is CLOSED: the next ledger is
   activated by one multi that closes the old one, opens the new one, lists it, and checks the
   owner epoch.
3. When entries cannot be acknowledged, and other members cannot help, the ledger is closed at
   its LAC and those above it are written again, with the same sequences, to the next.
4. Ownership is a hint, the fence is the truth: with metadata away the open ledger goes on, past
   its size and age if need be; the first FENCED ends it all.
5. A batch ends as acknowledged, refused (it was never sent), or unknown.

Which ledger is written, and by which members, is `SegmentSuccession`'s to see to.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from geolog.client.batch_in_flight import Acknowledged, BatchInFlight
from geolog.client.ledger_source import LedgerSource
from geolog.client.open_segment import OpenSegment
from geolog.client.partition_config import PartitionConfig
from geolog.client.segment_succession import SegmentSuccession
from geolog.client.stream_metadata import StreamMetadata
from geolog.client.takeover import TakenOver
from geolog.ledger.ledger_writer import LedgerWriter
from geolog.protocol.ids import EntryId, Epoch, Sequence
from geolog.protocol.sequencer import Sequencer
from geolog.protocol.stream_state import HOME_EPOCH, StreamRecord
from geolog.wire.batch import SealedBatch
from geolog.wire.entry import encode_entry
from topology.errors import (
    FencedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)


class PartitionWriter:
    """Writes one partition under one owner epoch; `open_partition_writer` makes it.

    Batches move, in order, from `_waiting` (sequence given) to `_sent` (in the open ledger, one
    entry each) and out. While the succession of segments is rolling nothing moves from the one
    to the other.
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
        self._config = config
        self._now_us = now_us
        self._on_progress = on_progress
        self._sequencer = Sequencer(Sequence(taken.last_sequence + 1), taken.append_time_us)
        self.acknowledged = Acknowledged(taken.last_sequence, taken.append_time_us)
        self._waiting: deque[BatchInFlight] = deque()
        self._sent: deque[BatchInFlight] = deque()
        self._in_flight_bytes = 0
        self._failure: GeologError | None = None
        self._segments = SegmentSuccession(
            stream, taken.owner, self, streams=streams, source=source, config=config
        )

    def __repr__(self) -> str:
        return (
            f"PartitionWriter({self._stream.name}, epoch {self.epoch}, {len(self._sent)} sent,"
            f" {len(self._waiting)} waiting, {self._segments.open!r})"
        )

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which this writer writes."""
        return self._segments.owner.record.epoch

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
        while self._waiting and self._segments.may_send():
            batch = self._waiting.popleft()
            self._sent.append(batch)
            self._send(batch)
        self._segments.on_sent()

    def _send(self, batch: BatchInFlight) -> None:
        segment = self._segments.open
        assert segment is not None
        batch.segment = segment.number
        batch.entry = segment.writer.entry_next
        encoded = encode_entry(
            [batch.sealed],
            home_epoch=HOME_EPOCH,
            segment=batch.segment,
            entry=batch.entry,
            first_sequence=batch.assigned.first_sequence,
            append_time_us=batch.assigned.append_time_us,
        )
        segment.written_bytes += encoded.length_bytes
        segment.writer.add_nowait(encoded)

    # What the ledger's writer tells.

    def on_lac(self, lac: EntryId) -> None:
        """Answer the batches of the acknowledged prefix."""
        sent = self._sent
        acknowledged = self.acknowledged
        while sent and sent[0].entry <= lac:
            batch = sent.popleft()
            acknowledged.last_sequence = batch.last_sequence
            acknowledged.append_time_us = batch.assigned.append_time_us
            acknowledged.size_bytes += batch.size_bytes
            self._finish(batch, None)
        if self._segments.is_rolling and not sent:
            self._segments.wake()
        self._on_progress()

    def on_received(self, through: EntryId) -> None:
        """It is not asked for: a batch is answered when it is durable."""

    def on_fenced(self, writer: LedgerWriter, why: str) -> None:
        """Another owns the partition: what was sent is unknown, what was not is refused."""
        segment = self._segments.open
        if segment is not None and writer is segment.writer:
            self._fail(FencedError(f"another writer owns {self._stream.name} now: {why}"))

    def on_stuck(self, entry: EntryId, why: str) -> None:  # noqa: ARG002 - It is asked again.
        """Too few members are up: look for others."""
        self._segments.wake()

    def _finish(self, batch: BatchInFlight, error: GeologError | None) -> None:
        batch.error = error
        self._in_flight_bytes -= batch.size_bytes
        batch.done.set()

    def _fail(self, failure: GeologError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        segment = self._segments.open
        if segment is not None and not segment.writer.is_over:
            segment.writer.close()
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
        self._segments.wake()
        self._on_progress()

    # What the succession of segments asks and tells.

    @property
    def is_failed(self) -> bool:
        """Whether nothing more is to be written."""
        return self._failure is not None

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not answered yet."""
        return bool(self._sent)

    def now_us(self) -> int:
        """Wall-clock time."""
        return self._now_us()

    def check_deadline(self) -> None:
        """UnavailableError when the oldest batch has waited for too long."""
        if self.is_idle:
            return
        waited_s = trio.current_time() - (self._sent or self._waiting)[0].since_s
        if waited_s > self._config.append_timeout_s:
            raise UnavailableError(
                f"no ledger can be written for {self._stream.name}: the oldest append waited"
                f" {waited_s:.0f} s"
            )

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Send what is not answered once more if it is another ledger, and go on there."""
        for batch in self._sent:
            assert batch.segment < segment.number, f"{batch} is in {segment} already"
            self._send(batch)
        self._send_waiting()

    # Its life.

    async def start(self) -> None:
        """Open the first ledger of this owner."""
        await self._segments.start()

    async def run(self) -> None:
        """Roll, change members, fail over and make ledgers ahead, until it fails."""
        try:
            await self._segments.run()
        except GeologError as error:
            self._fail(error)

    async def wait_idle(self) -> None:
        """Wait until nothing is in flight, or the writer has failed."""
        while not self.is_idle and self._failure is None:
            await (self._sent or self._waiting)[-1].done.wait()

    async def leave(self) -> None:
        """Close the open ledger for good and leave, so that the next owner need not recover.

        What metadata does not answer is asked again; the caller bounds that.
        """
        closing = self._segments.stop(is_clean=self.is_idle and self._failure is None)
        self._fail(FencedError("this writer is closed"))
        owner = self._segments.owner
        if closing is not None:
            await self._insist(partial(self._streams.finish, self._stream.name, owner, closing))
        await self._insist(partial(self._streams.release_ownership, owner))
        await self._segments.discard_unused()
        if closing is not None and closing.change.last_entry is not None:
            await self._segments.retire(closing.change.last_entry)

    async def _insist(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except GeologError as error:
                if not error.retriable:
                    return  # Nothing is lost: the next owner recovers what is left open.
            await trio.sleep(self._config.retry_delay_s)
