"""An async context manager's block, held open in the trio thread for a caller outside of it."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Generic, TypeVar

import trio

from geolog.portal.call import CLOSED, Call
from geolog.portal.errors import CancelledCallError, FailedBlockError
from geolog.portal.trio_thread import Tasks, TrioThread
from topology.errors import ClosedError

TrioBlock = AbstractAsyncContextManager
"""A block that the trio thread can hold open."""

T = TypeVar("T")
U = TypeVar("U")


class Residence(Generic[T]):
    """Holds a block open, and runs the calls and further blocks that need it.

    `opened` is set when the block is entered or cannot be; `ended` when it has been left. The
    trio thread sets each of them exactly once, whatever happens.
    """

    def __init__(self, thread: TrioThread, opening: Callable[[], TrioBlock[T]]) -> None:
        self.thread = thread
        self.opened: Future[T] = Future()
        self.ended: Future[None] = Future()
        self._opening = opening
        self._scope = trio.CancelScope()
        self._leaving = trio.Event()
        self._is_failed = False
        self._tasks: Tasks | None = None

    def __repr__(self) -> str:
        return f"<Residence {'ended' if self.ended.done() else 'open'}>"

    @property
    def tasks(self) -> Tasks:
        """The tasks that end with the block."""
        assert self._tasks is not None, "the block was entered"
        return self._tasks

    def start(self, tasks: Tasks) -> None:
        """Start opening the block, as one of these tasks."""

        def start() -> None:
            if not tasks.start(self._run, name="block outside of trio"):
                self._settle(ClosedError(CLOSED))

        self.thread.post(start)

    def call(self, function: Callable[[], Awaitable[U]]) -> Call[U]:
        """Call an async function inside the block."""
        call = Call(self.thread, function)
        call.start(self.tasks)
        return call

    def leave(self, *, is_failed: bool) -> None:
        """Start leaving the block; `is_failed`: because of an error."""

        def leave() -> None:
            self._is_failed = is_failed
            self._leaving.set()

        with suppress(ClosedError):  # The block was left already.
            self.thread.post(leave)

    def cancel(self) -> None:
        """Cancel the block: leave it without flushing."""
        with suppress(ClosedError):
            self.thread.post(self._scope.cancel)

    def raise_end(self, error: BaseException | None) -> None:
        """Raise the error of the block's end, if any; `error` is the one that ended the block.

        A failed block does not raise ClosedError on top of its own error.
        """
        found = self.ended.exception(0)
        if found is None or (error is not None and isinstance(found, ClosedError)):
            return
        raise found

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._live()
        except Exception as error:  # noqa: BLE001 - raised where the caller waits.
            self._settle(_without_failed_block(error))
        except BaseException:
            self._settle(ClosedError(CLOSED))
            raise
        else:
            cancelled = CancelledCallError("the block was cancelled by its caller")
            self._settle(cancelled if self._scope.cancelled_caught else None)

    async def _live(self) -> None:
        async with self._opening() as resident:
            try:
                async with trio.open_nursery() as nursery:
                    self._tasks = Tasks(nursery)
                    self.opened.set_result(resident)
                    await self._leaving.wait()
                    nursery.cancel_scope.cancel(reason="the block was left")
            finally:
                self.tasks.is_over = True
            if self._is_failed:
                raise FailedBlockError("an error ended the block")

    def _settle(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or ClosedError(CLOSED))
            error = None
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


def _without_failed_block(error: Exception) -> Exception | None:
    """The error without FailedBlockError: the caller who left the block knows of that."""
    if isinstance(error, FailedBlockError):
        return None
    if isinstance(error, ExceptionGroup):
        return error.split(FailedBlockError)[1]
    return error
