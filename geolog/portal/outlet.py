"""Queue of runs from a reader in the trio thread to a taker in another thread.

A run is a batch of records, or a gap. A task in the trio thread (the pump) queues runs as they
arrive, up to a bound in bytes; the taker takes all queued runs together. A take wakes the pump
once, if it waits for room; a new run wakes the taker once, if it waits.
"""

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
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
"""Bound of the queue in bytes; the last batch may exceed it."""


@asynccontextmanager
async def open_outlets(
    outlets: Sequence["Outlet[W]"], opening: AbstractAsyncContextManager[Sequence[Reader]]
) -> AsyncIterator[Sequence[Reader]]:
    """Open several readers, and queue the runs of each in its outlet."""
    async with opening as readers, AsyncExitStack() as stack:
        for outlet, reader in zip(outlets, readers, strict=True):
            await stack.enter_async_context(outlet.open(nullcontext(reader)))
        yield readers


class Outlet(Generic[W]):
    """The queue behind one reader. W: type of a waiter; `wake` wakes several waiters."""

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
        """Take all queued runs; [] after the last. trio.WouldBlock if more may come.

        Once all runs before an error are taken, this raises that error, each time.
        """
        self._thread.check_usable()
        with self._lock:
            taken = list(self._runs)
            self._runs.clear()
            self._ahead_bytes = 0
            is_pump_waiting, self._is_pump_waiting = self._is_pump_waiting, False
            if not taken and self._failure is not None:
                # With its first traceback: each raise would add to it.
                raise self._failure.with_traceback(self._failure_traceback)
            if not taken and not self._is_over:
                raise trio.WouldBlock
        if is_pump_waiting:
            with suppress(ClosedError):  # Nothing more comes; the next take says so.
                self._thread.post(self._on_room)
        return taken

    def wait_some(self, waiter: W) -> bool:
        """Wake the waiter when a take would not block. False: it would not block now."""
        self._thread.check_usable()
        with self._lock:
            if self._runs or self._is_over or self._failure is not None:
                return False
            self._waiters.append(waiter)
            return True

    def forget(self, waiter: W) -> None:
        """Drop a waiter that no longer waits."""
        self._thread.check_usable()
        with self._lock, suppress(ValueError):  # It has just been woken.
            self._waiters.remove(waiter)

    def post(self, function: Callable[[], None]) -> None:
        """Run a function in the trio thread soon, after all that was told before."""
        self._thread.post(function)

    def tell_taken(self, reader: Reader, run: RecordBatch | Gap, sequence: int | None) -> None:
        """Tell the reader how far its application has come in a run that was taken here."""
        with suppress(ClosedError):  # The process ends; the block commits no more.
            self._thread.post(partial(reader.on_taken, run, sequence))

    # ------------------------------------------------------------ in the trio thread

    @asynccontextmanager
    async def open(self, opening: AbstractAsyncContextManager[Reader]) -> AsyncIterator[Reader]:
        """Open a reader and queue its runs here."""
        try:
            async with opening as reader, open_background() as nursery:
                nursery.start_soon(self._pump, reader, name="runs of the reader")
                yield reader
        finally:
            self._end(ClosedError(CLOSED))

    async def _pump(self, reader: Reader) -> None:
        try:
            async for run in reader.runs_ahead():
                await self._queue_run(run)
        except Exception as error:  # noqa: BLE001 - raised where the batches are taken.
            self._end(error)
        else:
            self._end(None)

    async def _queue_run(self, run: RecordBatch | Gap) -> None:
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
        """End the queue. ClosedError also drops the runs that nobody took."""
        with self._lock:
            if isinstance(failure, ClosedError):
                self._runs.clear()
            if failure is not None:
                self._failure, self._failure_traceback = failure, failure.__traceback__
            self._is_over = True
            woken, self._waiters = self._waiters, []
        self._wake(woken)
