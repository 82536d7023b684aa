"""The application's side of appending: records become sealed batches, batches become receipts.

A writer has a lane for each partition that it writes; all lanes share one window of bytes.

A writer with an id numbers its records: a record whose number is in the log already is not
appended again but answered with its first position, after its bytes were compared with those
that are there.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from geolog.background import open_background
from geolog.client.writing.open_batch import WriterSession
from geolog.client.writing.partition_batcher import (
    BatchSink,
    PartitionBatcher,
    WriterConfig,
)
from geolog.client.writing.partitioner import NamedPartitioner, Partitioner
from geolog.client.writing.record_fields import RecordFields, size_of
from geolog.client.writing.writer_pending import (
    AckLevel,
    NewRecord,
    Pending,
    Receipt,
    ReceiptTerms,
)
from geolog.client.writing.writer_repeats import ReadBack, WriterRepeats
from geolog.protocol.append_failure import told_of_record
from geolog.wire.limits import WRITER_ID_BYTES_MAX
from topology.errors import ClosedError, GeologError, InvalidArgumentError, TooLargeError

CLOSED_WRITER = "this writer is closed: use it within its block"


@attrs.frozen
class WriterStatistics:
    """How a writer is doing."""

    records_count: int
    batches_count: int
    in_flight_bytes: int
    in_flight_bytes_max: int


@attrs.frozen
class _Named:
    """What a writer with an id has beside its lanes."""

    partitioner: NamedPartitioner
    repeats: WriterRepeats


class Writer:
    """Appends to one stream, in order in each partition; `Log.open_writer` makes it."""

    def __init__(
        self,
        takers: Sequence[BatchSink],
        config: WriterConfig,
        *,
        is_whole: bool = True,
        writer_id: str | None = None,
        ack: AckLevel = AckLevel.DURABLE,
        home_epoch: int,
        now_us: Callable[[], int],
        read_back: ReadBack | None = None,
        first_partition: int = 0,
    ) -> None:
        """`is_whole`: whether the takers are all partitions that the stream has."""
        self.ack = ack
        self.home_epoch = home_epoch
        self._config = config
        partitions = len(takers) if is_whole else 0
        session = None if writer_id is None else _session_of(writer_id, takers, partitions)
        self.lanes = [
            PartitionBatcher(
                taker, config, session=session, now_us=now_us,
                on_refused=partial(self._on_refused, place),
            )
            for place, taker in enumerate(takers)
        ]  # fmt: skip
        self._terms = [ReceiptTerms(taker.name.number, home_epoch, ack) for taker in takers]
        self._partitioner = Partitioner(len(takers), first=first_partition)
        self._named: _Named | None = None
        if session is not None:
            self._named = _Named(
                _named_partitioner(session, takers),
                WriterRepeats(session, self.lanes, home_epoch=home_epoch, read_back=read_back),
            )
        self._seq_highest = max(lane.seq_highest for lane in self.lanes)
        self._progress = trio.Event()
        self._blocked_bytes = 0  # Of the record that last found no room.
        self._blocked_lane: PartitionBatcher | None = None
        self._in_flight_bytes = 0
        self._counted = [0] * len(takers)  # What each lane counts for in that.
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Writer({len(self.lanes)} partitions, {self._in_flight_bytes} bytes in flight)"

    @property
    def seq_highest(self) -> int:
        """The highest seq of this named writer in the log or on its way; -1 for none."""
        return self._seq_highest

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
    ) -> Receipt:
        """Append one record; it is what the writer's level says when this returns.

        A named writer's record that has no `seq` gets the next. ConflictError: a transaction
        id or seq goes back, other bytes were appended under this seq, or the record would not
        get the sequence that is expected. FencedError: another writer owns the stream now.
        SealedError. OutcomeUnknownError: it may or may not be in the log. TooLargeError,
        InvalidArgumentError: it was not sent.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence,
        )  # fmt: skip
        return await (await self._gather_when_writable(fields)).wait()

    async def post(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
    ) -> None:
        """Append one record without an answer: returns once it is taken into the window.

        What becomes of it is told by `flush`, or by a later call, if the writer fails.
        """
        await self._gather_when_writable(
            RecordFields(value=value, key=key, headers=headers, transaction_id=transaction_id)
        )

    async def _gather_when_writable(self, fields: RecordFields) -> Pending:
        size_bytes = size_of(fields)
        while True:
            try:
                place, pending = self._gather(fields, size_bytes)
            except trio.WouldBlock:
                await self.wait_writable()
                continue
            if place is not None and not self.lanes[place].seal_if_idle():
                self.lanes[place].send_soon()
            return pending

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
    ) -> Pending:
        """Append without waiting; trio.WouldBlock while the window is full.

        So it is too while 64 batches of a named writer are unanswered in one partition.
        """
        return self.append_fields_nowait(
            RecordFields(
                value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
                expect_sequence=expect_sequence,
            )
        )  # fmt: skip

    def append_fields_nowait(self, fields: RecordFields) -> Pending:
        """The same, for a record that was put together elsewhere."""
        place, pending = self._gather(fields, size_of(fields))
        if place is not None:
            self.lanes[place].send_soon()
        return pending

    def _gather(self, fields: RecordFields, size_bytes: int) -> tuple[int | None, Pending]:
        """Take a record in: the lane that it is in, if it is in one, and its append."""
        if self._is_closed:
            raise self._closed(fields.seq)
        is_numbered_here = False
        if self._named is None:
            place = self._place_of_nameless(fields, size_bytes)
        else:
            is_numbered_here = fields.seq is None
            seq = self._seq_highest + 1 if fields.seq is None else fields.seq
            place = self._place_of(self._named, seq, fields.key)
            having = self._lane_having(self._named, seq, place)
            if having is not None:
                return None, self._named.repeats.answer(having, seq, fields)
            fields.seq = seq
        lane = self.lanes[place]
        if lane.taker.failure is not None:
            # A number that this writer gives now is of no record that was appended before.
            is_numbered = fields.seq is not None and not is_numbered_here
            raise told_of_record(lane.taker.failure, is_numbered=is_numbered)
        lane.check(fields)
        if not self._has_room(lane, fields, size_bytes):
            self._blocked_bytes, self._blocked_lane = size_bytes, lane
            lane.seal()
            if is_numbered_here:
                fields.seq = None  # Another may take the number before there is room.
            raise trio.WouldBlock
        batch, slot = lane.gather(fields, size_bytes)
        if lane.seq_highest > self._seq_highest:
            self._seq_highest = lane.seq_highest
        self._count(place)
        return place, NewRecord(self._terms[place], batch, slot)

    def _has_room(self, lane: PartitionBatcher, fields: RecordFields, size_bytes: int) -> bool:
        if self._in_flight_bytes + size_bytes > self._config.in_flight_bytes:
            self._check_can_wait(fields, size_bytes)
            return False
        return lane.has_room(fields, size_bytes)

    def _place_of_nameless(self, fields: RecordFields, size_bytes: int) -> int:
        if fields.seq is not None:
            raise InvalidArgumentError(
                f"seq {fields.seq}: only a writer with an id numbers its records"
            )
        if len(self.lanes) == 1:
            return 0
        return self._partitioner.partition_of(fields.key, size_bytes)

    def _place_of(self, named: _Named, seq: int, key: bytes | None) -> int:
        """The lane of a record of a named writer: that to which it went first, if it did."""
        return 0 if len(self.lanes) == 1 else named.partitioner.partition_of(key, seq)

    def _lane_having(self, named: _Named, seq: int, place: int) -> PartitionBatcher | None:
        """The lane that has this seq already, or one above it; None if it is new."""
        if seq <= self.lanes[place].seq_highest:
            return self.lanes[place]
        if seq > self._seq_highest:
            return None
        return named.repeats.lane_that_has(seq)

    def _check_can_wait(self, fields: RecordFields, size_bytes: int) -> None:
        """Raise why there will never be room, if so."""
        failure = self._failure()
        if failure is not None:  # Of another lane, which may hold the window for ever.
            raise told_of_record(failure, is_numbered=fields.seq is not None)
        if size_bytes > self._config.in_flight_bytes:
            raise TooLargeError(
                f"a record of {size_bytes} bytes is over in_flight_bytes, which is"
                f" {self._config.in_flight_bytes}: open the writer with a larger one"
            )

    def is_appended(self, seq: int, *, key: bytes | None = None) -> bool:
        """Whether this seq of the named writer is at or below what the log has of it.

        It may have been appended, or left out; whether it is remembered is told by `append`.
        """
        if self._named is None:
            return False
        return seq <= self.lanes[self._place_of(self._named, seq, key)].seq_highest

    # The window.

    def _count(self, place: int) -> None:
        """See how much of the window a lane takes."""
        now_bytes = self.lanes[place].in_flight_bytes
        self._in_flight_bytes += now_bytes - self._counted[place]
        self._counted[place] = now_bytes

    async def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        It waits until there is room for a batch. Were each small batch that is answered
        followed by as few records as it held, batches that were small once would stay so for
        ever (the silly window of RFC 813). It returns as well when the writer has failed.
        """
        lane = self._blocked_lane
        while self._is_window_full() or (lane is not None and lane.is_waiting):
            await self._progress.wait()

    def _is_window_full(self) -> bool:
        """Whether there is no room, but will be: a lane that failed may hold it for ever."""
        window_bytes = self._config.in_flight_bytes
        room_bytes = max(self._blocked_bytes, min(self._config.batch_bytes, window_bytes // 2))
        return self._in_flight_bytes + room_bytes > window_bytes and self._failure() is None

    def _failure(self) -> GeologError | None:
        return next(
            (lane.taker.failure for lane in self.lanes if lane.taker.failure is not None), None
        )

    def on_progress(self, place: int) -> None:
        """Batches of a lane were answered: those who wait for room look again."""
        self.lanes[place].on_answered()
        self._look_for_room(place)

    def _on_refused(self, place: int) -> None:
        """A batch of a lane was refused: its seqs are free."""
        self._seq_highest = max(lane.seq_highest for lane in self.lanes)
        self._look_for_room(place)

    def _look_for_room(self, place: int) -> None:
        """A lane takes less of the window: those who wait for room look again."""
        self._count(place)
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    async def flush(self) -> None:
        """Wait until all that was appended before this call is durable.

        Raises what stopped the writer, if so.
        """
        if self._is_closed:
            raise self._closed(None)
        for lane in self.lanes:
            lane.seal()
        for lane in self.lanes:
            await lane.flush()

    def close(self) -> None:
        """The block is over: nothing more is taken in."""
        self._is_closed = True

    def _closed(self, seq: int | None) -> GeologError:
        return told_of_record(ClosedError(CLOSED_WRITER), is_numbered=seq is not None)

    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return WriterStatistics(
            records_count=sum(lane.records_count for lane in self.lanes),
            batches_count=sum(lane.batches_count for lane in self.lanes),
            in_flight_bytes=self._in_flight_bytes,
            in_flight_bytes_max=self._config.in_flight_bytes,
        )


def _session_of(writer_id: str, takers: Sequence[BatchSink], partitions: int) -> WriterSession:
    """The next session of a named writer: it fences the one before."""
    data = writer_id.encode()
    if not 0 < len(data) <= WRITER_ID_BYTES_MAX:
        raise InvalidArgumentError(
            f"writer id {writer_id!r} is empty, or over {WRITER_ID_BYTES_MAX} bytes"
        )
    epoch = max(taker.acknowledged.writer(data).epoch for taker in takers)
    return WriterSession(data, epoch + 1, partitions)


def _named_partitioner(session: WriterSession, takers: Sequence[BatchSink]) -> NamedPartitioner:
    found = [taker.acknowledged.writer(session.writer_id).generations for taker in takers]
    return NamedPartitioner(session.writer_id, found, len(takers))


@asynccontextmanager
async def open_linger(writer: Writer) -> AsyncIterator[Writer]:
    """Run what a writer needs in the background; a block that ends well flushes."""
    async with open_background() as nursery:
        for lane in writer.lanes:
            nursery.start_soon(lane.run_linger, name=f"linger of {lane.taker.name}")
        try:
            yield writer
            await writer.flush()
        finally:
            writer.close()
