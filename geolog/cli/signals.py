"""Ends a long-running command in an orderly way, and in time, at SIGTERM or Ctrl-C."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import click
import trio

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


def heeded(*numbers: signal.Signals) -> list[signal.Signals]:
    """Return the signals that this process was not started to ignore; always SIGTERM.

    A shell ignores SIGINT for background jobs, so that Ctrl-C ends only the foreground; nohup
    ignores SIGHUP. Installing a handler would undo that.
    """
    return [
        number
        for number in numbers
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN
    ]


async def ending_at_signals(
    run: Callable[[Argument], Awaitable[Answer]], argument: Argument
) -> Answer | None:
    """Run until it returns, or until SIGTERM, SIGHUP or Ctrl-C cancels it; then return None."""
    answer: Answer | None = None
    with trio.open_signal_receiver(*heeded(*_ENDING)) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for _ in signals:
                    nursery.cancel_scope.cancel(reason="a signal asked to end")

            nursery.start_soon(watch)
            answer = await run(argument)
            nursery.cancel_scope.cancel(reason="done")
    return answer


@contextmanager
def ending_a_question() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the block at once, which blocks the loop of trio.

    The receiver of signals only notes them, and `input` goes on.
    """
    noted = {one: signal.getsignal(one) for one in _ENDING}
    noting = {one: handler for one, handler in noted.items() if callable(handler)}
    for one in noting:
        signal.signal(one, _interrupt)
    try:
        yield
    finally:
        for one, handler in noting.items():
            signal.signal(one, handler)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def run_to_a_signal(run: Callable[[Argument], Awaitable[Answer]], argument: Argument) -> Answer:
    """Run with trio and return the answer; click.Abort, exit code 130, if a signal ended it.

    For commands whose work is not done when they are ended: a script must not go on as if.
    """
    answers: list[Answer] = []

    async def note_answer(argument: Argument) -> None:
        answers.append(await run(argument))

    trio.run(ending_at_signals, note_answer, argument)
    if not answers:
        raise click.Abort
    return answers[0]


@asynccontextmanager
async def ends_in_time(patience_s: float, give_up: Callable[[], None]) -> AsyncIterator[None]:
    """Call `give_up` if the block has not ended `patience_s` after it was cancelled.

    Some waits cannot be cancelled, e.g. a write to a disk that never returns.
    """
    ended = trio.Event()

    async def watch() -> None:
        try:
            await ended.wait()
        finally:
            with trio.move_on_after(patience_s, shield=True) as patience:
                await ended.wait()
            if patience.cancelled_caught:
                give_up()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, name="ends in time")
        try:
            yield
        finally:
            ended.set()
