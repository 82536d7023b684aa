"""Runs on their way from a reader of the trio thread to whoever takes them elsewhere.

A run is a batch of records, or a gap. A task of the trio thread lays them down as they come,
up to a bound of bytes; the taker takes all that have gathered. The task is woken once per take,
and only when it waits for room; the taker once, and only when it waits for a run.
"""

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Generic, TypeVar

import trio

from geolog.background import open_background
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, RecordBatch
from geolog.portal.call import CLOSED
from geolog.portal.trio_thread import TrioThread
from topology.errors import ClosedError

W = TypeVar("W")

AHEAD_BYTES_MAX = 4 << 20
"""What may lie here; one batch more, when the one before did not fill it."""


class Outlet(Generic[W]):
    """The queue behind one reader. W: what a taker waits by; `wake` wakes some of them."""

    def __init__(
        self,
        thread: TrioThread,
        *,
        wake: Callable[[Sequence[W]], None],
        ahead_bytes: int = AHEAD_BYTES_MAX,
    ) -> None:
        self._thread = thread
        self._wake = wake
        self._ahead_bytes_max = ahead_bytes
        self._lock = threading.Lock()
        self._runs: deque[RecordBatch | Gap] = deque()
        self._ahead_bytes = 0
        self._waiters: list[W] = []
        self._is_over = False
        self._failure: Exception | None = None
        self._failure_traceback: TracebackType | None = None
        self._is_pump_waiting = False
        self._room = trio.Event()

    def __repr__(self) -> str:
        return f"<Outlet {self._ahead_bytes} of {self._ahead_bytes_max} bytes>"

    # ------------------------------------------------------------ from any thread

    def take_nowait(self) -> list[RecordBatch | Gap]:
        """All runs that are there; [] behind the last; trio.WouldBlock when more may come.

        Raises what ended the reader, when all before it was taken, and each time again.
        """
        self._thread.check_usable()
        with self._lock:
            taken = list(self._runs)
            self._runs.clear()
            self._ahead_bytes = 0
            is_pump_waiting, self._is_pump_waiting = self._is_pump_waiting, False
            if not taken and self._failure is not None:
                # Raised as it came: each raise would add to its traceback.
                raise self._failure.with_traceback(self._failure_traceback)
            if not taken and not self._is_over:
                raise trio.WouldBlock
        if is_pump_waiting:
            with suppress(ClosedError):  # Then nothing more comes; the next take says so.
                self._thread.post(self._on_room)
        return taken

    def wait_some(self, waiter: W) -> bool:
        """Have the waiter woken when a take would not block. False: it would not now."""
        self._thread.check_usable()
        with self._lock:
            if self._runs or self._is_over or self._failure is not None:
                return False
            self._waiters.append(waiter)
            return True

    def forget(self, waiter: W) -> None:
        """The waiter waits no more."""
        self._thread.check_usable()
        with self._lock, suppress(ValueError):  # It was woken just now.
            self._waiters.remove(waiter)

    # ------------------------------------------------------------ in the trio thread

    @asynccontextmanager
    async def open(self, opening: AbstractAsyncContextManager[Reader]) -> AsyncIterator[Reader]:
        """A reader whose runs come out here."""
        try:
            async with opening as reader, open_background() as nursery:
                nursery.start_soon(self._pump, reader, name="runs of the reader")
                yield reader
        finally:
            self._end(ClosedError(CLOSED))

    async def _pump(self, reader: Reader) -> None:
        try:
            async for run in reader.runs():
                await self._lay_down(run)
        except Exception as error:  # noqa: BLE001 - raised again where the batches are taken.
            self._end(error)
        else:
            self._end(None)

    async def _lay_down(self, run: RecordBatch | Gap) -> None:
        with self._lock:
            self._runs.append(run)
            self._ahead_bytes += 0 if isinstance(run, Gap) else run.batch.header.raw_bytes
            is_full = self._is_pump_waiting = self._ahead_bytes >= self._ahead_bytes_max
            if is_full:
                self._room = trio.Event()
            woken, self._waiters = self._waiters, []
        self._wake(woken)
        if is_full:
            await self._room.wait()

    def _on_room(self) -> None:
        self._room.set()

    def _end(self, failure: Exception | None) -> None:
        """Nothing more will come; when it is closed, what is there is not given any more."""
        with self._lock:
            if isinstance(failure, ClosedError):
                self._runs.clear()
            if failure is not None:
                self._failure, self._failure_traceback = failure, failure.__traceback__
            self._is_over = True
            woken, self._waiters = self._waiters, []
        self._wake(woken)
