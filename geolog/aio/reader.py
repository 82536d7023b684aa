"""Read from an event loop: batches cross from the trio thread; records are views."""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Generic, TypeVar

import attrs

from geolog.aio.waiting import Waiter, new_waiter
from geolog.client.reading.reader import ReadTrimmedError
from geolog.client.reading.record import Gap, Record, RecordBatch
from geolog.portal.outlet import Outlet
from geolog.portal.would_block import WouldBlock

T = TypeVar("T")


class Reader:
    """Reads one stream in order, for one task at a time. `Log.open_reader` opens it.

    Iterating raises ReadTrimmedError where records were trimmed; its `gap` says which. Iterate
    again to go on after them. `items` and `runs` give a `Gap` in their place instead.
    """

    def __init__(self, name: str, outlet: Outlet[Waiter]) -> None:
        self._name = name
        self._outlet = outlet
        self._runs: deque[RecordBatch | Gap] = deque()
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return self._name

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Record:
        item = await self._next_item()
        if isinstance(item, Gap):
            raise ReadTrimmedError(item)
        return item

    def items(self) -> "Items[Record | Gap]":
        """Iterate over records, and a Gap wherever records were trimmed."""
        return Items(self._next_item)

    def batches(self) -> "Items[RecordBatch]":
        """Iterate over batches: records with consecutive sequences. ReadTrimmedError."""
        return Items(self._next_batch)

    def runs(self) -> "Items[RecordBatch | Gap]":
        """Iterate over batches, and a Gap wherever records were trimmed."""
        return Items(self._next_run)

    async def _next_item(self) -> Record | Gap:
        record = next(self._records, None)
        while record is None:
            run = await self._next_run()
            if isinstance(run, Gap):
                return run
            self._records = iter(run)
            record = next(self._records, None)
        return record

    async def _next_batch(self) -> RecordBatch:
        run = await self._next_run()
        if isinstance(run, Gap):
            raise ReadTrimmedError(run)
        return run

    async def _next_run(self) -> RecordBatch | Gap:
        if not self._runs:
            self._runs.extend(await self._take())
        if not self._runs:
            raise StopAsyncIteration
        return self._runs.popleft()

    async def _take(self) -> list[RecordBatch | Gap]:
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
class Items(Generic[T]):
    """Iterates over the same reader in other units."""

    _next: Callable[[], Coroutine[None, None, T]]

    def __aiter__(self) -> "Items[T]":
        return self

    async def __anext__(self) -> T:
        return await self._next()
