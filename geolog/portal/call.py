"""A call of an async function in the trio thread, made and awaited outside of it."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, TypeVar

import trio

from geolog.portal.errors import CancelledCallError
from geolog.portal.trio_thread import Tasks, TrioThread
from topology.errors import ClosedError

T = TypeVar("T")

CLOSED = "the log, writer or reader is closed: use it within its block"


class Call(Generic[T]):
    """A call in progress; the trio thread sets `future` exactly once, whatever happens."""

    def __init__(self, thread: TrioThread, function: Callable[[], Awaitable[T]]) -> None:
        self.future: Future[T] = Future()
        self._thread = thread
        self._function = function
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Call {'done' if self.future.done() else 'running'}>"

    def start(self, tasks: Tasks) -> None:
        """Hand the call to the trio thread. ClosedError if that thread has ended."""

        def start() -> None:
            if not tasks.start(self._run, name="call from outside of trio"):
                self.future.set_exception(ClosedError(CLOSED))

        self._thread.post(start)

    def cancel(self) -> None:
        """Cancel the call if it still runs; the future is set soon after."""
        with suppress(ClosedError):  # The thread has ended, and cancelled everything.
            self._thread.post(self._scope.cancel)

    async def _run(self) -> None:
        results: list[T] = []
        try:
            with self._scope:
                results.append(await self._function())
        except Exception as error:  # noqa: BLE001 - raised where the caller waits.
            self.future.set_exception(error)
        except BaseException:
            self.future.set_exception(ClosedError(CLOSED))
            raise
        else:
            if results:
                self.future.set_result(results[0])
            else:
                self.future.set_exception(
                    CancelledCallError("the call was cancelled by its caller")
                )
