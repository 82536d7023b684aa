"""The application's side of appending: records become sealed batches, batches become receipts.

A writer has a lane for each partition that it writes; all lanes share one window of bytes.

A writer with an id numbers its records: a record whose number is in the log already is not
appended again but answered with its first position, after its bytes were compared with those
that are there.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.partitioner import Partitioner
from geolog.client.writer_lane import (
    BatchTaker,
    Filling,
    RecordFields,
    WriterConfig,
    WriterLane,
    WriterSession,
    size_of,
)
from geolog.protocol.ids import DLSN, Position
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch
from geolog.wire.limits import WRITER_ID_BYTES_MAX
from topology.errors import (
    ConflictError,
    GeologError,
    InvalidArgumentError,
    TooLargeError,
    TrimmedError,
)

ReadBack = Callable[[PartitionName, WrittenBatch], Awaitable[Batch]]
"""Reads a batch that was appended before. DataLostError, UnavailableError."""


class ForgottenSeqError(ConflictError):
    """A seq is below the highest of its writer, and its record is forgotten or trimmed."""


class AckLevel(enum.Enum):
    """What is true when an append is answered.

    RECEIVED: the record is in the memory of an ack set. Its position is provisional: power lost
    everywhere at once, or a takeover, can lose it. DURABLE: it is on the disks of an ack set.
    """

    RECEIVED = "received"
    DURABLE = "durable"


@attrs.frozen
class Receipt:
    """An appended record: its place, for good unless it is provisional."""

    partition: int
    dlsn: DLSN
    sequence: int
    epoch: int
    duplicate: bool = False
    """Whether it was in the log before."""
    provisional: bool = False
    """Whether it is not yet on disk, and may still be lost."""

    @property
    def position(self) -> Position:
        """What a checkpoint keeps."""
        return Position(self.epoch, self.sequence)


@attrs.frozen
class WriterStatistics:
    """How a writer is doing."""

    records_count: int
    batches_count: int
    in_flight_bytes: int
    in_flight_bytes_max: int


class Pending(ABC):
    """An append on its way."""

    __slots__ = ()

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""

    @abstractmethod
    async def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append, if it was not acknowledged."""

    @abstractmethod
    async def wait_durable(self) -> Receipt:
        """Wait until the record is on the disks of an ack set, whatever the writer's level."""

    @abstractmethod
    def receipt_nowait(self) -> Receipt:
        """The answer, if it is there; trio.WouldBlock if not yet."""


class _NewRecord(Pending):
    """A record that is in a batch."""

    __slots__ = ("_batch", "_partition", "_slot", "_writer")

    def __init__(self, writer: "Writer", partition: int, batch: Filling, slot: int) -> None:
        self._writer = writer
        self._partition = partition
        self._batch = batch
        self._slot = slot

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'on its way'}>"

    @property
    def is_done(self) -> bool:
        batch = self._batch
        if batch.error is not None or batch.placed is None:
            return batch.error is not None
        return self._answered_event(batch).is_set()

    def _answered_event(self, batch: Filling) -> trio.Event:
        assert batch.placed is not None
        if self._writer.ack is AckLevel.RECEIVED:
            return batch.placed.received
        return batch.placed.done

    async def wait(self) -> Receipt:
        batch = self._batch
        if batch.placed is None and batch.error is None:
            await batch.sealed.wait()
        if batch.placed is not None:
            await self._answered_event(batch).wait()
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        batch = self._batch
        if batch.placed is None and batch.error is None:
            await batch.sealed.wait()
        if batch.placed is not None:
            await batch.placed.done.wait()
        return self.receipt_nowait()

    def receipt_nowait(self) -> Receipt:
        batch = self._batch
        if batch.error is not None:
            raise batch.error
        if not self.is_done:
            raise trio.WouldBlock
        placed = batch.placed
        assert placed is not None
        if placed.error is not None:
            raise placed.error
        slot = self._slot
        return Receipt(
            self._partition,
            DLSN(placed.segment, placed.entry, slot),
            placed.first_sequence + slot,
            self._writer.home_epoch,
            provisional=not placed.done.is_set(),
        )


class _RepeatedRecord(Pending):
    """A record that was in the log before: its bytes are compared when it is waited for."""

    __slots__ = ("_ask", "_receipt")

    def __init__(self, ask: Callable[[], Awaitable[Receipt]]) -> None:
        self._ask = ask
        self._receipt: Receipt | GeologError | None = None

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'to be compared'}>"

    @property
    def is_done(self) -> bool:
        return self._receipt is not None

    async def wait(self) -> Receipt:
        if self._receipt is None:
            try:
                self._receipt = await self._ask()
            except GeologError as error:
                if error.retriable:
                    raise
                self._receipt = error
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        return await self.wait()

    def receipt_nowait(self) -> Receipt:
        if self._receipt is None:
            raise trio.WouldBlock
        if isinstance(self._receipt, GeologError):
            raise self._receipt
        return self._receipt


class Writer:
    """Appends to one stream, in order in each partition; `Log.open_writer` makes it."""

    def __init__(
        self,
        takers: Sequence[BatchTaker],
        config: WriterConfig,
        *,
        writer_id: str | None = None,
        ack: AckLevel = AckLevel.DURABLE,
        home_epoch: int,
        now_us: Callable[[], int],
        read_back: ReadBack | None = None,
        first_partition: int = 0,
    ) -> None:
        self.ack = ack
        self.home_epoch = home_epoch
        self._config = config
        self._read_back = read_back
        self._session = None if writer_id is None else _session_of(writer_id, takers)
        self.lanes = [
            WriterLane(taker, config, session=self._session, now_us=now_us) for taker in takers
        ]
        self._partitioner = Partitioner(
            len(takers),
            writer_id=None if self._session is None else self._session.writer_id,
            first=first_partition,
        )
        self._progress = trio.Event()
        self._blocked_bytes = 0  # Of the record that last found no room.
        self._in_flight_bytes = 0
        self._counted = [0] * len(takers)  # What each lane counts for in that.

    def __repr__(self) -> str:
        return f"Writer({len(self.lanes)} partitions, {self._in_flight_bytes} bytes in flight)"

    @property
    def seq_highest(self) -> int:
        """The highest seq of this named writer in the log or on its way; -1 for none."""
        return max(lane.seq_highest for lane in self.lanes)

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
        """Append without waiting; trio.WouldBlock while the window is full."""
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
        place = 0
        if len(self.lanes) > 1:
            place = self._partitioner.partition_of(fields.key, size_bytes)
        lane = self.lanes[place]
        if self._session is not None:
            if fields.seq is None:
                fields.seq = self.seq_highest + 1
            elif fields.seq <= lane.seq_highest:
                return None, self._repeat(lane, self._session, fields)
            elif (elsewhere := self._lane_that_has(fields.seq)) is not None:
                return None, self._repeat(elsewhere, self._session, fields)
        elif fields.seq is not None:
            raise InvalidArgumentError(
                f"seq {fields.seq}: only a writer with an id numbers its records"
            )
        lane.check(fields)
        if self._in_flight_bytes + size_bytes > self._config.in_flight_bytes:
            self._check_fits_window(size_bytes)
            self._blocked_bytes = size_bytes
            lane.seal()
            raise trio.WouldBlock
        batch, slot = lane.gather(fields, size_bytes)
        self._count(place)
        return place, _NewRecord(self, lane.taker.name.number, batch, slot)

    def _check_fits_window(self, size_bytes: int) -> None:
        if size_bytes > self._config.in_flight_bytes:
            raise TooLargeError(
                f"a record of {size_bytes} bytes is over in_flight_bytes, which is"
                f" {self._config.in_flight_bytes}: open the writer with a larger one"
            )

    # Records that were appended before.

    def _lane_that_has(self, seq: int) -> WriterLane | None:
        """The lane that remembers this seq: since then the stream may have got partitions."""
        if self._session is None or len(self.lanes) == 1 or seq > self.seq_highest:
            return None
        writer_id = self._session.writer_id
        return next(
            (
                lane
                for lane in self.lanes
                if lane.taker.acknowledged.writer(writer_id).batch_of(seq) is not None
            ),
            None,
        )

    def _repeat(
        self, lane: WriterLane, session: WriterSession, fields: RecordFields
    ) -> Pending:
        assert fields.seq is not None
        writer = lane.taker.acknowledged.writer(session.writer_id)
        batch = writer.batch_of(fields.seq)
        who = f"seq {fields.seq} of writer {session.writer_id.decode()}"
        if batch is None and fields.seq > writer.seq_highest:
            raise ConflictError(f"{who} is on its way: wait for its answer")
        if batch is None:
            raise ForgottenSeqError(
                f"{who} is not remembered: {lane.seq_highest} was appended already"
            )
        return _RepeatedRecord(lambda: self._compared(lane.taker.name, who, batch, fields))

    async def _compared(
        self, name: PartitionName, who: str, batch: WrittenBatch, fields: RecordFields
    ) -> Receipt:
        assert self._read_back is not None
        assert fields.seq is not None
        try:
            there, row = await self._read_back(name, batch), fields.seq - batch.seq
        except TrimmedError as error:
            raise ForgottenSeqError(f"{who} was appended, and trimmed since: {error}") from None
        found = (
            there.value(row), there.key(row), there.headers(row), there.transaction_id(row)
        )  # fmt: skip
        given = (fields.value, fields.key, dict(fields.headers or {}), fields.transaction_id)
        if found != given:
            raise ConflictError(f"{who} was appended before with other bytes")
        return Receipt(
            name.number,
            DLSN(batch.segment, batch.entry, batch.slot + row),
            batch.first_sequence + row,
            self.home_epoch,
            duplicate=True,
        )

    def is_appended(self, seq: int, *, key: bytes | None = None) -> bool:
        """Whether this seq of the named writer is at or below what the log has of it.

        It may have been appended, or left out; whether it is remembered is told by `append`.
        """
        place = 0
        if len(self.lanes) > 1:
            place = self._partitioner.partition_of(key, 0)
        return seq <= self.lanes[place].seq_highest

    # The window.

    def _count(self, place: int) -> None:
        """See how much of the window a lane takes."""
        now_bytes = self.lanes[place].in_flight_bytes
        self._in_flight_bytes += now_bytes - self._counted[place]
        self._counted[place] = now_bytes

    async def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        It returns as well when the writer has failed.
        """
        while (
            self._failure() is None
            and self._in_flight_bytes + self._blocked_bytes > self._config.in_flight_bytes
        ):
            await self._progress.wait()

    def _failure(self) -> GeologError | None:
        return next(
            (lane.taker.failure for lane in self.lanes if lane.taker.failure is not None), None
        )

    def on_progress(self, place: int) -> None:
        """Batches of a lane were answered: those who wait for room look again."""
        self.lanes[place].seal_if_idle()
        self._count(place)
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    async def flush(self) -> None:
        """Wait until all that was appended before this call is durable.

        Raises what stopped the writer, if so.
        """
        for lane in self.lanes:
            lane.seal()
        for lane in self.lanes:
            await lane.flush()

    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return WriterStatistics(
            records_count=sum(lane.records_count for lane in self.lanes),
            batches_count=sum(lane.batches_count for lane in self.lanes),
            in_flight_bytes=self._in_flight_bytes,
            in_flight_bytes_max=self._config.in_flight_bytes,
        )


def _session_of(writer_id: str, takers: Sequence[BatchTaker]) -> WriterSession:
    """The next session of a named writer: it fences the one before."""
    data = writer_id.encode()
    if not 0 < len(data) <= WRITER_ID_BYTES_MAX:
        raise InvalidArgumentError(
            f"writer id {writer_id!r} is empty, or over {WRITER_ID_BYTES_MAX} bytes"
        )
    epoch = max(taker.acknowledged.writer(data).epoch for taker in takers)
    return WriterSession(data, epoch + 1)


@asynccontextmanager
async def open_linger(writer: Writer) -> AsyncIterator[Writer]:
    """Run what a writer needs in the background; a block that ends well flushes."""
    async with open_background() as nursery:
        for lane in writer.lanes:
            nursery.start_soon(lane.run_linger, name=f"linger of {lane.taker.name}")
        yield writer
        await writer.flush()
