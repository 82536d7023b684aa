"""Reading in an event loop: batches cross, records are views of them."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import attrs

from geolog.aio.waiting import Waiter, new_waiter
from geolog.client.record import Record, RecordBatch
from geolog.portal.outlet import Outlet
from geolog.portal.would_block import WouldBlock


class Reader:
    """Records of one stream in order; `Log.open_reader` makes it. For one task at a time."""

    def __init__(self, name: str, outlet: Outlet[Waiter]) -> None:
        self._name = name
        self._outlet = outlet
        self._batches: deque[RecordBatch] = deque()
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return self._name

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Record:
        record = next(self._records, None)
        while record is None:
            self._records = iter(await self._next_batch())
            record = next(self._records, None)
        return record

    def batches(self) -> "BatchReader":
        """The native unit: runs of records with consecutive sequences."""
        return BatchReader(self._next_batch)

    async def _next_batch(self) -> RecordBatch:
        if not self._batches:
            self._batches.extend(await self._take())
        if not self._batches:
            raise StopAsyncIteration
        return self._batches.popleft()

    async def _take(self) -> list[RecordBatch]:
        while True:
            try:
                return self._outlet.take_nowait()
            except WouldBlock:
                await self._wait_some()

    async def _wait_some(self) -> None:
        waiter = new_waiter()
        if self._outlet.wait_some(waiter):
            try:
                await waiter
            except BaseException:
                self._outlet.forget(waiter)
                raise


@attrs.frozen
class BatchReader:
    """The same reader, batch by batch."""

    _next: Callable[[], Awaitable[RecordBatch]]

    def __aiter__(self) -> "BatchReader":
        return self

    async def __anext__(self) -> RecordBatch:
        return await self._next()
