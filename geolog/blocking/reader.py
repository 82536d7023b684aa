"""Reading in plain threads: batches cross, records are views of them."""

from collections import deque
from collections.abc import Callable, Iterator

import attrs

from geolog.blocking.waiting import Waiter
from geolog.client.record import Record, RecordBatch
from geolog.portal.outlet import Outlet
from geolog.portal.would_block import WouldBlock


class Reader:
    """Records of one stream in order; `Log.open_reader` makes it. For one thread at a time."""

    def __init__(self, name: str, outlet: Outlet[Waiter]) -> None:
        self._name = name
        self._outlet = outlet
        self._batches: deque[RecordBatch] = deque()
        self._records: Iterator[Record] = iter(())

    def __repr__(self) -> str:
        return self._name

    def __iter__(self) -> "Reader":
        return self

    def __next__(self) -> Record:
        record = next(self._records, None)
        while record is None:
            self._records = iter(self._next_batch())
            record = next(self._records, None)
        return record

    def batches(self) -> "BatchReader":
        """The native unit: runs of records with consecutive sequences."""
        return BatchReader(self._next_batch)

    def _next_batch(self) -> RecordBatch:
        if not self._batches:
            self._batches.extend(self._take())
        if not self._batches:
            raise StopIteration
        return self._batches.popleft()

    def _take(self) -> list[RecordBatch]:
        while True:
            try:
                return self._outlet.take_nowait()
            except WouldBlock:
                self._wait_some()

    def _wait_some(self) -> None:
        waiter = Waiter()
        if self._outlet.wait_some(waiter):
            try:
                waiter.sleep()
            except BaseException:
                self._outlet.forget(waiter)
                raise


@attrs.frozen
class BatchReader:
    """The same reader, batch by batch."""

    _next: Callable[[], RecordBatch]

    def __iter__(self) -> "BatchReader":
        return self

    def __next__(self) -> RecordBatch:
        return self._next()
