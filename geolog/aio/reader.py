"""Read from an event loop: batches cross from the trio thread; records are views."""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Generic, Protocol, TypeVar

import attrs

from geolog.aio.waiting import Waiter, new_waiter, wait_for
from geolog.client.cursors.cursor_reader import CursorReader
from geolog.client.reading.reader import Reader as TrioReader
from geolog.client.reading.reader import ReadTrimmedError, no_cursor
from geolog.client.reading.record import Gap, GapReason, Record, RecordBatch
from geolog.client.reading.taken import taken_before, taken_to
from geolog.portal.call import Call
from geolog.portal.outlet import Outlet
from geolog.portal.would_block import WouldBlock

T = TypeVar("T")


class _Calls(Protocol):
    """Runs a function in the trio thread."""

    def __call__(self, function: Callable[[], Awaitable[T]], /) -> Call[T]: ...


class Reader:
    """Reads a stream, or those of a pattern, for one task at a time.

    `Log.open_reader` opens it.

    Iterating raises ReadTrimmedError where records were trimmed; its `gap` says which. Iterate
    again to go on after them. `items` and `runs` give a `Gap` in their place instead. Iterating
    passes over local-only records of other regions; `items` and `runs` give a `Gap` for them.
    """

    def __init__(
        self,
        call: _Calls,
        reader: TrioReader,
        outlet: Outlet[Waiter],
        *,
        is_told: bool,
    ) -> None:
        """is_told: whether the reader is told what was taken: it has a cursor, or a pattern."""
        self._name = repr(reader)
        self._call = call
        self._reader = reader
        self._outlet = outlet
        self._is_told = is_told
        self._run: RecordBatch | Gap | None = None
        """If the reader is told: the run that the application has in hand."""
        self._item: Record | Gap | None = None
        """The last item of that run, if it takes single ones."""
        self._runs: deque[RecordBatch | Gap] = deque()
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return self._name

    def __aiter__(self) -> "Reader":
        return self

    async def __anext__(self) -> Record:
        while isinstance(item := await self._next_item(), Gap):
            if item.reason is not GapReason.LOCAL_ONLY:
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

    @property
    def partitions(self) -> list[int]:
        """The partitions that a reader with a cursor reads now; none if it is a spare."""
        return self._reader.partitions

    async def commit(self) -> None:
        """Commit all that was taken to the cursor; return when it is stored.

        A partition's position is stored at most once a second, so this may take that long.
        CursorLostError if some of it will not be stored, because another reader has the cursor
        or the partition, or because its position was set. All the rest is stored then.
        """
        self._check_cursor()
        self._tell_so_far()
        await wait_for(self._call(self._reader.commit))

    def commit_nowait(self) -> None:
        """Commit all that was taken to the cursor, within about a second."""
        self._check_cursor()
        self._tell_so_far()
        self._outlet.post(self._reader.commit_nowait)

    async def positions(self) -> dict[str, str]:
        """Where to go on after all that was taken, by partition: of a reader of a pattern.

        Save them, e.g. as JSON, and give them to `open_reader` the next time.
        """
        self._tell_so_far()
        return await wait_for(self._call(self._reader.positions))

    def _check_cursor(self) -> None:
        if not isinstance(self._reader, CursorReader):
            raise no_cursor()

    def _tell_so_far(self) -> None:
        """Tell what was taken of the run in hand, which remains in hand."""
        if self._run is not None:
            self._outlet.tell_taken(self._reader, self._run, taken_to(self._run, self._item))

    def put_down(self, *, is_failed: bool) -> None:
        """Count the run in hand as taken; with `is_failed`, without its last item."""
        run, item = self._run, self._item
        self._run = self._item = None
        if run is not None:
            sequence = taken_before(item) if is_failed else taken_to(run, item)
            self._outlet.tell_taken(self._reader, run, sequence)

    async def _next_item(self) -> Record | Gap:
        item = await self._find_item()
        if self._is_told:
            self._item = item
        return item

    async def _find_item(self) -> Record | Gap:
        record = next(self._records, None)
        while record is None:
            run = await self._next_run()
            if isinstance(run, Gap):
                return run
            self._records = iter(run)
            record = next(self._records, None)
        return record

    async def _next_batch(self) -> RecordBatch:
        while isinstance(run := await self._next_run(), Gap):
            if run.reason is not GapReason.LOCAL_ONLY:
                raise ReadTrimmedError(run)
        return run

    async def _next_run(self) -> RecordBatch | Gap:
        if self._is_told:
            self.put_down(is_failed=False)
        if not self._runs:
            self._runs.extend(await self._take())
        if not self._runs:
            raise StopAsyncIteration
        run = self._runs.popleft()
        if self._is_told:
            self._run = run
        return run

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
