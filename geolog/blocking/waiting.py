"""How an ordinary thread waits for the trio thread."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from geolog.blocking.deadline import remaining_s
from geolog.portal.call import Call
from geolog.portal.errors import CancelledCallError
from geolog.portal.inlet import Inlet, QueuedAppend
from geolog.portal.progress import LatestProgress

T = TypeVar("T")

GIVEN_UP = (TimeoutError, KeyboardInterrupt)
"""Raised in a thread that may not wait any longer."""

_OUT_OF_TIME = "the deadline of fail_after has passed"


class Waiter:
    """Wakes one thread, once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread."""
        self._lock.release()

    def sleep(self) -> None:
        """Sleep until woken. TimeoutError, KeyboardInterrupt."""
        remaining = remaining_s()
        if not self._lock.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError(_OUT_OF_TIME)


def new_waiter() -> Waiter:
    """Make a waiter for the calling thread."""
    return Waiter()


def wake_all(waiters: Sequence[Waiter]) -> None:
    """Wake threads."""
    for waiter in waiters:
        waiter.wake()


def wait_for(call: Call[T]) -> T:
    """Wait for the call and return its result; cancel the call if this thread gives up."""
    try:
        settle(call.future)
    except TimeoutError:
        return _cancelled_result(call)
    except BaseException:
        call.cancel()
        settle_at_last(call.future)
        raise
    return call.future.result()


def settle(future: Future[T]) -> None:
    """Wait until the future is done; do not raise its exception. TimeoutError."""
    waiter = Waiter()
    future.add_done_callback(lambda _: waiter.wake())
    waiter.sleep()


def settle_at_last(future: Future[T]) -> None:
    """Wait until the future is done, past any deadline; it is about to be done."""
    future.exception()


def withdraw(inlet: Inlet[Waiter], append: QueuedAppend[Waiter], error: BaseException) -> None:
    """Take back an append whose thread gives up, if it was not sent yet.

    After a timeout it raises TimeoutError with the outcome: not sent, or perhaps in the log.
    """
    is_timeout = isinstance(error, TimeoutError)
    if is_timeout and append.is_done:
        return
    is_out = inlet.withdraw(append)
    if is_timeout:
        outcome = "was not sent" if is_out else "may or may not be in the log"
        raise TimeoutError(f"{_OUT_OF_TIME}: the record {outcome}") from None


def _cancelled_result(call: Call[T]) -> T:
    """Cancel a call that ran out of time; return its result if it finished just before."""
    call.cancel()
    try:
        return call.future.result()
    except CancelledCallError:
        raise TimeoutError(_OUT_OF_TIME) from None


def wait_with_progress(
    begin: Callable[[Callable[[int, int], None]], Call[T]],
    progress: Callable[[int, int], None],
) -> T:
    """Start a call and wait for it; run `progress` in this thread as news arrives."""
    news: queue.SimpleQueue[None] = queue.SimpleQueue()
    latest = LatestProgress(lambda: news.put(None))
    call = begin(latest.tell)
    call.future.add_done_callback(lambda _: news.put(None))
    try:
        while True:
            news.get(timeout=remaining_s())
            if (told := latest.take()) is not None:
                progress(*told)
            if call.future.done():
                break
    except queue.Empty:
        return _cancelled_result(call)
    except BaseException:
        call.cancel()
        settle_at_last(call.future)
        raise
    return call.future.result()
