"""Ends a long-running command in order at SIGTERM, as Ctrl-C does."""

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


async def ending_at_signals(
    run: Callable[[Argument], Awaitable[Answer]], argument: Argument
) -> Answer | None:
    """Run until it returns, or until SIGTERM, SIGHUP or Ctrl-C cancels it (then None)."""
    answer: Answer | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel(reason="asked to end by a signal")

            nursery.start_soon(watch)
            answer = await run(argument)
            nursery.cancel_scope.cancel(reason="done")
    return answer
