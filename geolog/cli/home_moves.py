"""Moves the homes of many streams, and tells what has moved however the command ends."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import click
import trio

from geolog.background import all_of
from geolog.cli.invocation import tell
from geolog.cli.terminal.progress import Progress
from geolog.client.log import Log
from topology.errors import GeologError, NotFoundError

Report = TypeVar("Report")

_LOOK_S = 5.0
"""How long a command that was ended looks where the homes are that it was about to move."""


def check_one_or_all(stream: str | None, home: str | None) -> None:
    """Refuse a command that names both a stream and a home, or neither. click.UsageError."""
    if (stream is None) == (home is None):
        raise click.UsageError("name one stream, or all streams of a region with --home REGION")


async def streams_to_move(log: Log, stream: str | None, home: str | None) -> list[str]:
    """That stream, or all that have their home there. NotFoundError."""
    if stream is not None:
        return [stream]
    assert home is not None, "one of the two is named"
    names = await log.streams_at_home(home)
    if not names:
        raise NotFoundError(f"no regional stream has its home in {home!r}")
    return names


async def move_each(
    log: Log,
    moves: Mapping[str, Callable[[], Awaitable[Report]]],
    *,
    parallel: int,
    is_only: bool,
    show_moved: Callable[[Sequence[Report]], None],
    failed: str,
) -> int:
    """Make these moves, named for their streams; return how many have failed.

    show_moved: prints the reports of those that have moved; it is called even if a signal ends
    the command in the middle. is_only: whether the command was asked for one stream; its error
    is then raised. failed: what to say behind the name of a stream that did not move.
    """
    moved: list[Report] = []
    under_way: list[str] = []
    failed_count = 0
    try:
        with Progress("streams", sys.stderr) as progress:

            async def move(name: str) -> None:
                nonlocal failed_count
                under_way.append(name)
                try:
                    moved.append(await moves[name]())
                except GeologError as error:
                    if is_only:
                        raise
                    failed_count += 1
                    progress.clear()
                    tell(f"{name} {failed}: {error}")
                under_way.remove(name)
                progress.at(len(moved) + failed_count, len(moves))

            await all_of([partial(move, one) for one in moves], at_once_max=parallel)
    except GeologError:
        raise  # Of the only stream.
    except BaseException:
        await _tell_interrupted(log, under_way, len(moves))
        if moved:
            show_moved(moved)
        raise
    show_moved(moved)
    return failed_count


async def _tell_interrupted(log: Log, under_way: Sequence[str], asked_count: int) -> None:
    """Tell where the homes are of the streams that were being moved."""
    homes: dict[str, str] = {}

    async def look(name: str) -> None:
        with suppress(GeologError):
            homes[name] = (await log.home_of(name)).told

    with trio.CancelScope(shield=True, deadline=trio.current_time() + _LOOK_S):
        await all_of([partial(look, one) for one in under_way])
    for name in under_way:
        told = homes.get(name) or f"look where it is (geolog stream describe {name})"
        tell(f"{name}: interrupted; {told}")
    if asked_count > 1:
        tell("interrupted: streams that are not named here were not touched")
