# Generated from geolog/aio/reader.py by `python -P -m sim.twins`: edit that file.
"""Read from an ordinary thread: batches cross from the trio thread; records are views."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import attrs

from geolog.blocking.waiting import Waiter, new_waiter
from geolog.client.reading.reader import ReadTrimmedError
from geolog.client.reading.record import Gap, Record, RecordBatch
from geolog.portal.outlet import Outlet
from geolog.portal.would_block import WouldBlock

T = TypeVar("T")


class Reader:
    """Reads one stream in order, for one thread at a time. `Log.open_reader` opens it.

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

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Record:
        item = self._next_item()
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

    def _next_item(self) -> Record | Gap:
        record = next(self._records, None)
        while record is None:
            run = self._next_run()
            if isinstance(run, Gap):
                return run
            self._records = iter(run)
            record = next(self._records, None)
        return record

    def _next_batch(self) -> RecordBatch:
        run = self._next_run()
        if isinstance(run, Gap):
            raise ReadTrimmedError(run)
        return run

    def _next_run(self) -> RecordBatch | Gap:
        if not self._runs:
            self._runs.extend(self._take())
        if not self._runs:
            raise StopIteration
        return self._runs.popleft()

    def _take(self) -> list[RecordBatch | Gap]:
        while True:
            try:
                return self._outlet.take_nowait()
            except WouldBlock:
                self._wait_some()

    def _wait_some(self) -> None:
        waiter = new_waiter()
        if self._outlet.wait_some(waiter):
            try:
                waiter.sleep()
            except BaseException:
                self._outlet.forget(waiter)
                raise


@attrs.frozen
class Items(Generic[T]):
    """Iterates over the same reader in other units."""

    _next: Callable[[], T]

    def __iter__(self) -> "Items[T]":
        return self

    def __next__(self) -> T:
        return self._next()
