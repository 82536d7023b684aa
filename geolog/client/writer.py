"""The application's side of appending: records become sealed batches, batches become receipts.

Records gather in the batch that is being filled. It is sealed when it is full, when `linger_s`
has passed, or at once when nothing is in flight: so one append alone waits for nobody, and
under load batches fill by themselves while others are on their way.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import attrs
import trio

from geolog.background import open_background
from geolog.protocol.ids import DLSN, Epoch, Position, Sequence
from geolog.wire.batch import SealedBatch, seal_batch
from geolog.wire.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX
from topology.errors import GeologError, InvalidArgumentError, TooLargeError

T = TypeVar("T")

_RECORD_OVERHEAD_BYTES = 32
"""What a record adds to a batch besides its bytes: three offsets, times and ids, generously."""

_HEADER_OVERHEAD_BYTES = 16

_BATCH_SPARE_BYTES = 1024
"""What the columns of a batch need besides their rows: ends and padding, generously."""


class Placed(Protocol):
    """A sealed batch on its way; once `done` is set it has a place, or `error` says why not."""

    done: trio.Event
    error: GeologError | None
    segment: int
    entry: int

    @property
    def first_sequence(self) -> Sequence:
        """The sequence of its first record."""
        ...


class BatchTaker(Protocol):
    """Where sealed batches go: the owner in this process, or a session with a proxy."""

    @property
    def epoch(self) -> Epoch:
        """The owner epoch under which appends are answered."""
        ...

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of batches that are not answered."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        ...

    @property
    def failure(self) -> GeologError | None:
        """Why nothing more can be appended, if so."""
        ...

    def append_nowait(self, sealed: SealedBatch) -> Placed:
        """Take a batch in."""
        ...


@attrs.frozen(kw_only=True)
class WriterConfig:
    """How records gather into batches, and how many may be in flight."""

    linger_s: float = 0.001
    """How long a batch may wait for more records while others are in flight."""

    batch_bytes: int = 256 * 1024
    """Bytes at which a batch is sealed. Larger ones cost less per record and wait longer."""

    in_flight_bytes: int = 32 * 1024 * 1024
    """Bytes that may be gathered, sent and not yet answered; beyond it appends wait."""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.linger_s < math.inf:
            raise InvalidArgumentError(f"linger_s is {self.linger_s}; it is a time from 0 on")
        largest = BATCH_BYTES_MAX - _BATCH_SPARE_BYTES
        if not 0 < self.batch_bytes <= largest:
            raise InvalidArgumentError(
                f"batch_bytes is {self.batch_bytes}; it lies between 1 and {largest}"
            )
        if self.in_flight_bytes < self.batch_bytes:
            raise InvalidArgumentError(
                f"in_flight_bytes {self.in_flight_bytes} is below batch_bytes"
                f" {self.batch_bytes}: no batch could ever be sent"
            )


@attrs.frozen
class Receipt:
    """An acknowledged record: its place, for good."""

    partition: int
    dlsn: DLSN
    sequence: int
    epoch: int
    duplicate: bool = False

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


@attrs.define(eq=False)
class _Filling:
    """The batch that is being filled, column by column; then its way through the log."""

    values: list[bytes] = attrs.field(factory=list)
    created_us: list[int] = attrs.field(factory=list)
    keys: list[bytes | None] | None = None
    transaction_ids: list[int | None] | None = None
    headers: list[Mapping[str, bytes]] | None = None
    size_bytes: int = 0
    sealed: trio.Event = attrs.field(factory=trio.Event)
    placed: Placed | None = None
    error: GeologError | None = None


class Pending:
    """An append on its way."""

    __slots__ = ("_batch", "_slot", "_writer")

    def __init__(self, writer: "Writer", batch: _Filling, slot: int) -> None:
        self._writer = writer
        self._batch = batch
        self._slot = slot

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'on its way'}>"

    @property
    def is_done(self) -> bool:
        """Whether it is answered, one way or the other."""
        batch = self._batch
        return batch.error is not None or (
            batch.placed is not None and batch.placed.done.is_set()
        )

    async def wait(self) -> Receipt:
        """Wait for the answer. Raises what became of the append, if it was not acknowledged."""
        batch = self._batch
        if batch.placed is None and batch.error is None:
            await batch.sealed.wait()
        if batch.placed is not None:
            await batch.placed.done.wait()
        return self.receipt_nowait()

    def receipt_nowait(self) -> Receipt:
        """The answer, if it is there; trio.WouldBlock if not yet."""
        batch = self._batch
        if batch.error is not None:
            raise batch.error
        placed = batch.placed
        if placed is None or not placed.done.is_set():
            raise trio.WouldBlock
        if placed.error is not None:
            raise placed.error
        slot = self._slot
        return Receipt(
            0,
            DLSN(placed.segment, placed.entry, slot),
            placed.first_sequence + slot,
            self._writer.home_epoch,
        )


class Writer:
    """Appends to one stream, in order; `Log.open_writer` makes it."""

    def __init__(
        self,
        taker: BatchTaker,
        config: WriterConfig,
        *,
        home_epoch: int,
        now_us: Callable[[], int],
    ) -> None:
        self._taker = taker
        self._config = config
        self._now_us = now_us
        self.home_epoch = home_epoch
        self._filling: _Filling | None = None
        self._has_filling = trio.Event()
        self._progress = trio.Event()
        self._blocked_bytes = 0  # Of the record that last found no room.
        self._placed_last: Placed | None = None
        self._records_count = 0
        self._batches_count = 0

    def __repr__(self) -> str:
        return f"Writer(epoch {self._taker.epoch}, {self._in_flight_bytes()} bytes in flight)"

    async def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
    ) -> Receipt:
        """Append one record; it is durable when this returns.

        FencedError: another writer owns the stream now. OutcomeUnknownError: it may or may not
        be in the log. TooLargeError, InvalidArgumentError: it was not sent.
        """
        pending = await self._gather_when_writable(value, key, headers, transaction_id)
        if self._taker.is_idle:
            self._seal()  # Nothing is in flight to wait behind.
        else:
            self._has_filling.set()
        return await pending.wait()

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
    ) -> Pending:
        """Append without waiting; trio.WouldBlock while the window is full."""
        pending = self._gather(value, key, headers, transaction_id)
        self._has_filling.set()
        return pending

    async def _gather_when_writable(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        transaction_id: int | None,
    ) -> Pending:
        while True:
            try:
                return self._gather(value, key, headers, transaction_id)
            except trio.WouldBlock:
                await self.wait_writable()

    def _gather(
        self,
        value: bytes,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        transaction_id: int | None,
    ) -> Pending:
        if self._taker.failure is not None:
            raise self._taker.failure
        size_bytes = record_size_bytes(value, key, headers, transaction_id)
        if self._in_flight_bytes() + size_bytes > self._config.in_flight_bytes:
            self._check_fits_window(size_bytes)
            self._blocked_bytes = size_bytes
            self._seal()
            raise trio.WouldBlock
        filling = self._filling
        if filling is not None and filling.size_bytes + size_bytes > self._config.batch_bytes:
            self._seal()
            filling = None
        if filling is None:
            filling = self._filling = _Filling()
        slot = len(filling.values)
        filling.values.append(value)
        filling.created_us.append(self._now_us())
        filling.size_bytes += size_bytes
        if key is not None or filling.keys is not None:
            filling.keys = _extended(filling.keys, key, slot, None)
        if transaction_id is not None or filling.transaction_ids is not None:
            filling.transaction_ids = _extended(
                filling.transaction_ids, transaction_id, slot, None
            )
        if headers is not None or filling.headers is not None:
            filling.headers = _extended(filling.headers, dict(headers or {}), slot, {})
        if filling.size_bytes >= self._config.batch_bytes:
            self._seal()
        return Pending(self, filling, slot)

    def _check_fits_window(self, size_bytes: int) -> None:
        if size_bytes > self._config.in_flight_bytes:
            raise TooLargeError(
                f"a record of {size_bytes} bytes is over in_flight_bytes, which is"
                f" {self._config.in_flight_bytes}: open the writer with a larger one"
            )

    async def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        It returns as well when the writer has failed.
        """
        while (
            self._taker.failure is None
            and self._in_flight_bytes() + self._blocked_bytes > self._config.in_flight_bytes
        ):
            await self._progress.wait()

    async def flush(self) -> None:
        """Wait until all that was appended before this call is acknowledged.

        Raises what stopped the writer, if so.
        """
        self._seal()
        if self._placed_last is not None:
            await self._placed_last.done.wait()
        if self._taker.failure is not None:
            raise self._taker.failure

    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return WriterStatistics(
            records_count=self._records_count,
            batches_count=self._batches_count,
            in_flight_bytes=self._in_flight_bytes(),
            in_flight_bytes_max=self._config.in_flight_bytes,
        )

    def on_progress(self) -> None:
        """Batches were answered: those who wait for room look again."""
        progress, self._progress = self._progress, trio.Event()
        progress.set()
        if self._filling is not None and self._taker.is_idle:
            self._seal()

    async def run_linger(self) -> None:
        """Seal batches that do not fill up by themselves; never returns."""
        while True:
            await self._has_filling.wait()
            self._has_filling = trio.Event()
            filling = self._filling
            if filling is None:
                continue
            await trio.lowlevel.checkpoint()  # Who appends in this same turn joins the batch.
            if not self._taker.is_idle:
                with trio.move_on_after(self._config.linger_s):
                    await filling.sealed.wait()
            if self._filling is filling:
                self._seal()

    def _in_flight_bytes(self) -> int:
        filling_bytes = self._filling.size_bytes if self._filling is not None else 0
        return self._taker.in_flight_bytes + filling_bytes

    def _seal(self) -> None:
        filling, self._filling = self._filling, None
        if filling is None:
            return
        self._records_count += len(filling.values)
        self._batches_count += 1
        try:
            sealed = seal_batch(
                filling.values,
                created_us=filling.created_us,
                keys=filling.keys,
                transaction_ids=filling.transaction_ids,
                headers=filling.headers,
            )
            filling.placed = self._placed_last = self._taker.append_nowait(sealed)
        except GeologError as error:
            filling.error = error
        filling.values = []  # The sealed bytes have them.
        filling.sealed.set()


def _extended(column: list[T] | None, value: T, slot: int, blank: T) -> list[T]:
    """The column with one more value; one that begins late is blank before it."""
    column = [blank] * slot if column is None else column
    column.append(value)
    return column


def record_size_bytes(
    value: bytes,
    key: bytes | None,
    headers: Mapping[str, bytes] | None,
    transaction_id: int | None,
) -> int:
    """What the record counts for. All is checked here: a batch has no bad record among good."""
    if not isinstance(value, bytes):
        raise InvalidArgumentError(f"a record's value is bytes, not {type(value).__name__}")
    size_bytes = len(value)
    if key is not None:
        if not isinstance(key, bytes):
            raise InvalidArgumentError(f"a record's key is bytes, not {type(key).__name__}")
        size_bytes += len(key)
    if headers:
        size_bytes += sum(_header_size(name, content) for name, content in headers.items())
    if transaction_id is not None:
        _check_transaction_id(transaction_id)
    if size_bytes > RECORD_BYTES_MAX:
        raise TooLargeError(
            f"a record of {size_bytes} bytes is over the limit of {RECORD_BYTES_MAX}:"
            " split it, or store it elsewhere and append its address"
        )
    return size_bytes + _RECORD_OVERHEAD_BYTES


def _check_transaction_id(number: object) -> None:
    if not isinstance(number, int) or not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgumentError(f"transaction id {number!r} is no integer of 64 bits")


def _header_size(name: object, content: object) -> int:
    if not isinstance(name, str) or not isinstance(content, bytes):
        raise InvalidArgumentError(
            f"a header is a text with bytes, not {type(name).__name__} with"
            f" {type(content).__name__}"
        )
    try:
        return len(name.encode()) + len(content) + _HEADER_OVERHEAD_BYTES
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"header name {name!r} is not text") from None


@asynccontextmanager
async def open_linger(writer: Writer) -> AsyncIterator[Writer]:
    """Run what a writer needs in the background; a block that ends well flushes."""
    async with open_background() as nursery:
        nursery.start_soon(writer.run_linger, name="writer linger")
        yield writer
        await writer.flush()
