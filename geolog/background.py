"""Background tasks of a block, without changing what the block raises."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

T = TypeVar("T")
U = TypeVar("U")


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """A nursery whose tasks are cancelled when the block ends.

    An error of the block comes out as it is, not wrapped in a nursery's group: a writer to a
    stream expects FencedError, whatever runs in the background. So does the only error of a
    background task. sys.exit and Ctrl-C come out whatever failed with them, with the group as
    their cause. Several errors come out as one group.
    """
    error_of_block: Exception | KeyboardInterrupt | SystemExit | None = None
    group: BaseExceptionGroup[BaseException] | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - raised again below.
                error_of_block = error
            nursery.cancel_scope.cancel(reason="the block has ended")
    except BaseExceptionGroup as errors_of_tasks:
        group = errors_of_tasks
    if group is None and error_of_block is None:
        return
    try:
        raise _to_raise(error_of_block, group)
    finally:
        # The traceback of each has this frame, which would have them: cycles, for each block
        # that is cancelled.
        del error_of_block, group


def _to_raise(
    error_of_block: BaseException | None, group: BaseExceptionGroup[BaseException] | None
) -> BaseException:
    """Of the errors of a block and its tasks the one that counts, or all as a group."""
    of_tasks = [] if group is None else list(_leaves(group))
    of_tasks = [one for one in of_tasks if not isinstance(one, trio.Cancelled)]
    found = of_tasks if error_of_block is None else [error_of_block, *of_tasks]
    ending = next((one for one in found if isinstance(one, KeyboardInterrupt)), None) or next(
        (one for one in found if isinstance(one, SystemExit)), None
    )
    if ending is not None:
        if not all(isinstance(one, KeyboardInterrupt | SystemExit) for one in found):
            ending.__cause__ = group
        return ending
    if len(found) == 1:
        return found[0]
    if error_of_block is None:
        assert group is not None, "no error at all"
        return group
    return BaseExceptionGroup("a block and its background tasks", found)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors in a group, and in the groups in it."""
    for one in group.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _leaves(one)
        else:
            yield one


async def all_of(
    asked: Sequence[Callable[[], Awaitable[T]]], *, at_once_max: int | None = None
) -> list[T]:
    """Run these concurrently, at most `at_once_max` at a time; their results, in order.

    The first error cancels the others, and comes out as it is. So do sys.exit and Ctrl-C,
    whatever failed with them.
    """
    found: dict[int, T] = {}
    failures: list[Exception] = []
    group: BaseExceptionGroup[BaseException] | None = None
    turns = trio.Semaphore(at_once_max or max(1, len(asked)))

    async def ask(place: int) -> None:
        try:
            async with turns:
                found[place] = await asked[place]()
        except Exception as error:  # noqa: BLE001 - raised again below.
            failures.append(error)
            nursery.cancel_scope.cancel(reason="another has failed")

    try:
        async with trio.open_nursery() as nursery:
            for place in range(len(asked)):
                nursery.start_soon(ask, place)
    except BaseExceptionGroup as errors_of_tasks:
        group = errors_of_tasks
    first = failures[0] if failures else None
    failures.clear()
    if group is None and first is None:
        return [found[place] for place in range(len(asked))]
    try:
        raise _to_raise(first, group)
    finally:
        del first, group  # As in `open_background`.


async def both(
    first: Callable[[], Awaitable[T]], second: Callable[[], Awaitable[U]]
) -> tuple[T, U]:
    """Run these two concurrently and return both results; errors as of `all_of`."""
    firsts: list[T] = []
    seconds: list[U] = []

    async def ask_first() -> None:
        firsts.append(await first())

    async def ask_second() -> None:
        seconds.append(await second())

    await all_of([ask_first, ask_second])
    return firsts[0], seconds[0]
