"""Reads the partitions that a reader of a cursor has, as it gains and loses them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import trio

from geolog.client.reading.bounds import EARLIEST, AtSequence, Bound, LastRecords, Latest
from geolog.client.reading.partition_range import PartitionRange
from geolog.client.reading.record import Gap, RecordBatch
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.stream_reader import ReadAhead, Received, found_range, read_wanted
from geolog.protocol.cursor_lease import BeginReading
from geolog.protocol.ids import Position
from topology.errors import GeologError


@attrs.frozen(kw_only=True)
class CursorRange:
    """The range that a reader of a cursor wants of each partition."""

    scan_of: Callable[[int, int], Awaitable[PartitionScan]]
    """The partition with that number, as of this home epoch or a later one."""
    start: Bound
    """Where to begin without a position; partitions added later are read from the earliest."""
    start_partitions: int
    """Partitions that begin at `start`."""
    stop: Bound | None
    is_following: bool
    config: ReaderConfig


@attrs.define(eq=False)
class _Reading:
    hold: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    wanted: PartitionRange | None = None
    """None until the start is found."""


class CursorRuns:
    """The runs of the partitions that are read now: a `RunSource`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        wanted: CursorRange,
        on_start: Callable[[int, int, Position], None],
    ) -> None:
        """on_start: told the position of a start that depends on when it was found."""
        send, receive = trio.open_memory_channel[Received](wanted.config.ahead_chunks)
        self._nursery = nursery
        self._range = wanted
        self._on_start = on_start
        self._send = send
        self._ahead = ReadAhead(receive)
        self._readings: dict[int, _Reading] = {}
        self._reading_count = 0
        self._is_settled = False
        self._is_over = False
        self._failure: GeologError | None = None

    def __repr__(self) -> str:
        return f"CursorRuns(of partitions {sorted(self._readings)})"

    # For the reader.

    async def next_run(self) -> RecordBatch | Gap:
        """The next run of a partition that is read now. StopAsyncIteration at the end."""
        if self._failure is not None:
            raise self._failure
        return await self._ahead.next_run()

    def hold_of(self, partition: int) -> int:
        """The hold that the last run of this partition belongs to."""
        return self._readings[partition].hold

    @property
    def partitions(self) -> list[int]:
        """The partitions that are read now."""
        return sorted(self._readings)

    def close(self) -> None:
        """Drop what was read ahead: the block is over."""
        self._ahead.close()

    # For the keeper.

    def begin(self, order: BeginReading) -> None:
        """Read a partition."""
        reading = _Reading(order.hold)
        self._readings[order.partition] = reading
        if self._is_over:
            return  # A bounded read has ended; the partition is for the next reader.
        self._reading_count += 1
        self._nursery.start_soon(self._read, order, reading)

    def end(self, partition: int) -> None:
        """Read a partition no more."""
        reading = self._readings.pop(partition)
        reading.scope.cancel(reason="another reader has the partition")
        if reading.wanted is not None:
            self._ahead.drop(reading.wanted)

    def settle(self) -> None:
        """Nothing more is to be begun, as far as is known: a bounded read may end."""
        self._is_settled = True
        self._end_if_all_is_read()

    def fail(self, error: GeologError) -> None:
        """Raise this error where runs are taken."""
        self._failure = error
        # A reader that waits has an empty channel; any other looks at `_failure` first.
        with suppress(trio.WouldBlock, trio.ClosedResourceError):
            self._send.send_nowait(error)

    async def _read(self, order: BeginReading, reading: _Reading) -> None:
        home_epoch = 0 if order.position is None else order.position.home_epoch
        with reading.scope:
            try:
                scan = await self._range.scan_of(order.partition, home_epoch)
                await self._read_from(self._start_of(order), scan, order, reading)
            except GeologError as error:
                await self._send.send(error)
        self._reading_count -= 1
        self._end_if_all_is_read()

    def _start_of(self, order: BeginReading) -> Bound:
        if order.position is not None:
            return AtSequence(order.position.sequence, order.position.home_epoch)
        is_first = order.partition < self._range.start_partitions
        return self._range.start if is_first else EARLIEST

    async def _read_from(
        self, start: Bound, scan: PartitionScan, order: BeginReading, reading: _Reading
    ) -> None:
        wanted, end = await found_range(scan, start, self._range.stop, self._range.is_following)
        reading.wanted = wanted
        if isinstance(start, Latest | LastRecords):
            begun = Position(scan.home_epoch, wanted.begin.sequence)
            self._on_start(order.partition, order.hold, begun)
        await read_wanted(scan, wanted, end, self._send.clone())

    def _end_if_all_is_read(self) -> None:
        if self._is_settled and not self._range.is_following and not self._reading_count:
            self._is_over = True
            self._send.close()
