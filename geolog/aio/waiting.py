"""How a task of an event loop waits for the trio thread."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from geolog.portal.call import Call
from geolog.portal.inlet import Inlet, QueuedAppend
from geolog.portal.progress import LatestProgress

T = TypeVar("T")

Waiter = asyncio.Future[None]
"""Wakes one task, in the event loop that the task runs in."""

GIVEN_UP = (asyncio.CancelledError,)
"""Raised in a task that may not wait any longer."""


def new_waiter() -> Waiter:
    """Make a waiter for the calling task."""
    return asyncio.get_running_loop().create_future()


def wake_all(waiters: Sequence[Waiter]) -> None:
    """Wake tasks from another thread, with one call into each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, woken in by_loop.items():
        with suppress(RuntimeError):  # The loop is closed, and its tasks are gone.
            loop.call_soon_threadsafe(_wake_here, woken)


def _wake_here(waiters: Sequence[Waiter]) -> None:
    for waiter in waiters:
        if not waiter.done():  # Its task may have been cancelled.
            waiter.set_result(None)


def _waiter_of(future: Future[T]) -> Waiter:
    waiter = new_waiter()
    future.add_done_callback(lambda _: wake_all([waiter]))
    return waiter


async def settle(future: Future[T]) -> None:
    """Wait until the future is done; do not raise its exception."""
    await _waiter_of(future)


async def settle_at_last(future: Future[T]) -> None:
    """Wait until the future is done, even if cancelled again; it is about to be done."""
    waiter = _waiter_of(future)
    while not waiter.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((waiter,))


async def wait_for(call: Call[T]) -> T:
    """Wait for the call and return its result; cancel the call if this task is cancelled."""
    try:
        await settle(call.future)
    except asyncio.CancelledError:
        call.cancel()
        await settle_at_last(call.future)
        raise
    return call.future.result()


def withdraw(inlet: Inlet[Waiter], append: QueuedAppend[Waiter], _: BaseException) -> None:
    """Take back an append whose task was cancelled, if it was not sent yet."""
    inlet.withdraw(append)


async def wait_with_progress(
    begin: Callable[[Callable[[int, int], None]], Call[T]],
    progress: Callable[[int, int], None],
) -> T:
    """Start a call and wait for it; run `progress` in this task as news arrives."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def on_news() -> None:
        with suppress(RuntimeError):  # The loop is closed, and this task is gone.
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
