"""One call of an async function in the trio thread, for someone who waits elsewhere."""

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
    """A call on its way; `future` is settled in the trio thread, once, whatever happens."""

    def __init__(self, thread: TrioThread, function: Callable[[], Awaitable[T]]) -> None:
        self.future: Future[T] = Future()
        self._thread = thread
        self._function = function
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        return f"<Call {'done' if self.future.done() else 'on its way'}>"

    def start(self, tasks: Tasks) -> None:
        """Hand it to the trio thread. ClosedError when that has ended."""

        def start() -> None:
            if not tasks.start(self._run, name="call from outside of trio"):
                self.future.set_exception(ClosedError(CLOSED))

        self._thread.post(start)

    def cancel(self) -> None:
        """Cancel it, if it still runs; the future is settled soon after."""
        with suppress(ClosedError):  # Then everything was cancelled.
            self._thread.post(self._scope.cancel)

    async def _run(self) -> None:
        results: list[T] = []
        try:
            with self._scope:
                results.append(await self._function())
        except Exception as error:  # noqa: BLE001 - raised again where the caller waits.
            self.future.set_exception(error)
        except BaseException:
            self.future.set_exception(ClosedError(CLOSED))
            raise
        else:
            if results:
                self.future.set_result(results[0])
            else:
                self.future.set_exception(CancelledCallError("it was given up"))
