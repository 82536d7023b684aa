"""How a plain thread waits for what happens in the trio thread."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from geolog.blocking.deadline import remaining_s
from geolog.portal.call import Call
from geolog.portal.errors import CancelledCallError
from geolog.portal.progress import LatestProgress

T = TypeVar("T")


class ThreadWaiter:
    """One thread that sleeps until it is woken, once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Let it go on."""
        self._lock.release()

    def sleep(self) -> None:
        """Until it is woken. TimeoutError, KeyboardInterrupt."""
        remaining = remaining_s()
        if not self._lock.acquire(timeout=-1 if remaining is None else remaining):
            raise TimeoutError("the time of fail_after is over")


def wake_all(waiters: Sequence[ThreadWaiter]) -> None:
    """Let them go on."""
    for waiter in waiters:
        waiter.wake()


def wait_for(call: Call[T]) -> T:
    """The call's result. A call that is not waited for any more is cancelled first."""
    try:
        settle(call.future)
    except TimeoutError:
        return _cancelled_result(call)
    except BaseException:
        call.cancel()
        call.future.exception()
        raise
    return call.future.result()


def settle(future: Future[T]) -> None:
    """Wait until it is settled; what it is settled with is not raised. TimeoutError."""
    waiter = ThreadWaiter()
    future.add_done_callback(lambda _: waiter.wake())
    waiter.sleep()


def _cancelled_result(call: Call[T]) -> T:
    """What a call came to that ran out of time: it may have been done at that very moment."""
    call.cancel()
    try:
        return call.future.result()
    except CancelledCallError:
        raise TimeoutError("the time of fail_after is over") from None


def wait_with_progress(
    begin: Callable[[Callable[[int, int], None]], Call[T]],
    progress: Callable[[int, int], None],
) -> T:
    """Begin a call, and have its progress told in this thread until it is done."""
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
        call.future.exception()
        raise
    return call.future.result()
