"""A block of an async context manager, held open in the trio thread for someone elsewhere."""

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
    """What was opened lives here, with all calls and further blocks that need it.

    `opened` is settled when the block is entered, or cannot be; `ended` when it has been left.
    Both are settled in the trio thread, once, whatever happens.
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
        """Those that end with the block."""
        assert self._tasks is not None, "the block was entered"
        return self._tasks

    def start(self, tasks: Tasks) -> None:
        """Begin to open it, among these tasks."""

        def start() -> None:
            if not tasks.start(self._run, name="block outside of trio"):
                self._settle(ClosedError(CLOSED))

        self.thread.post(start)

    def call(self, function: Callable[[], Awaitable[U]]) -> Call[U]:
        """Call an async function that needs what lives here."""
        call = Call(self.thread, function)
        call.start(self.tasks)
        return call

    def leave(self, *, is_failed: bool) -> None:
        """Begin to leave the block: as it is left by an error, or at its end."""

        def leave() -> None:
            self._is_failed = is_failed
            self._leaving.set()

        with suppress(ClosedError):  # Then it has been left.
            self.thread.post(leave)

    def cancel(self) -> None:
        """Leave the block at once, and without what takes time."""
        with suppress(ClosedError):
            self.thread.post(self._scope.cancel)

    def raise_end(self, error: BaseException | None) -> None:
        """Raise what went wrong at its end; `error` is what its block was left by, if any.

        That it was closed before is no news to a block that has failed.
        """
        found = self.ended.exception(0)
        if found is None or (error is not None and isinstance(found, ClosedError)):
            return
        raise found

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._live()
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits.
            self._settle(_without_failed_block(error))
        except BaseException:
            self._settle(ClosedError(CLOSED))
            raise
        else:
            given_up = CancelledCallError("it was given up")
            self._settle(given_up if self._scope.cancelled_caught else None)

    async def _live(self) -> None:
        async with self._opening() as resident:
            try:
                async with trio.open_nursery() as nursery:
                    self._tasks = Tasks(nursery)
                    self.opened.set_result(resident)
                    await self._leaving.wait()
                    nursery.cancel_scope.cancel(reason="the block is left")
            finally:
                self.tasks.is_over = True
            if self._is_failed:
                raise FailedBlockError("the block was left by an error")

    def _settle(self, error: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(error or ClosedError(CLOSED))
            error = None
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


def _without_failed_block(error: Exception) -> Exception | None:
    """What else went wrong, if anything: that the block failed is known to who left it."""
    if isinstance(error, FailedBlockError):
        return None
    if isinstance(error, ExceptionGroup):
        return error.split(FailedBlockError)[1]
    return error
