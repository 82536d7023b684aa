"""How a task of an event loop waits for what happens in the trio thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from geolog.portal.call import Call
from geolog.portal.progress import LatestProgress

T = TypeVar("T")

Waiter = asyncio.Future[None]
"""One task that sleeps until it is woken; of the loop that is running there."""


def new_waiter() -> Waiter:
    """For the task that calls."""
    return asyncio.get_running_loop().create_future()


def wake_all(waiters: Sequence[Waiter]) -> None:
    """Let tasks go on, from another thread: one crossing for all of one loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, woken in by_loop.items():
        with suppress(RuntimeError):  # The loop was closed, and its tasks with it.
            loop.call_soon_threadsafe(_wake_here, woken)


def _wake_here(waiters: Sequence[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.done():  # Its task was cancelled meanwhile.
            waiter.set_result(None)


def _waiter_of(future: Future[T]) -> Waiter:
    waiter = new_waiter()
    future.add_done_callback(lambda _: wake_all([waiter]))
    return waiter


async def settle(future: Future[T]) -> None:
    """Wait until it is settled; what it is settled with is not raised."""
    await _waiter_of(future)


async def settle_at_last(future: Future[T]) -> None:
    """Wait until it is settled, also when cancelled again: it is about to be."""
    waiter = _waiter_of(future)
    while not waiter.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((waiter,))


async def wait_for(call: Call[T]) -> T:
    """The call's result. A call that is not waited for any more is cancelled first."""
    try:
        await settle(call.future)
    except asyncio.CancelledError:
        call.cancel()
        await settle_at_last(call.future)
        raise
    return call.future.result()


async def wait_with_progress(
    begin: Callable[[Callable[[int, int], None]], Call[T]],
    progress: Callable[[int, int], None],
) -> T:
    """Begin a call, and have its progress told in this task until it is done."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def on_news() -> None:
        with suppress(RuntimeError):  # The loop was closed, and this task with it.
            loop.call_soon_threadsafe(news.set)

    latest = LatestProgress(on_news)
    call = begin(latest.tell)
    call.future.add_done_callback(lambda _: on_news())
    try:
        while not call.future.done():
            await news.wait()
            news.clear()
            if (told := latest.take()) is not None:
                progress(*told)
    except BaseException:
        call.cancel()
        await settle_at_last(call.future)
        raise
    return call.future.result()
