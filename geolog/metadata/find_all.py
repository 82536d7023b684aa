"""Read many metadata nodes in the time of one or a few round trips."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from geolog.metadata.seam import Metadata, NoNodeError, Stored
from topology.errors import GeologError

T = TypeVar("T")

AT_A_TIME_MAX = 64
"""Maximum number of concurrent requests; it leaves room for the session's other users."""


async def find_all(metadata: Metadata, paths: Sequence[str]) -> list[Stored | None]:
    """The result of `find` for each path, in order. Raises the first error."""
    return await _ask_all(metadata.find, paths)


async def list_all(metadata: Metadata, paths: Sequence[str]) -> list[list[str]]:
    """The result of `children` for each path, in order; empty for one that does not exist.

    Raises the first error.
    """

    async def children(path: str) -> list[str]:
        try:
            return await metadata.children(path)
        except NoNodeError:
            return []

    return await _ask_all(children, paths)


async def _ask_all(ask: Callable[[str], Awaitable[T]], paths: Sequence[str]) -> list[T]:
    """The answers in order. A few tasks share the paths: there may be very many."""
    found: dict[int, T] = {}
    failures: list[GeologError] = []
    left = iter(enumerate(paths))

    async def ask_on() -> None:
        for place, path in left:
            if failures:
                return
            try:
                found[place] = await ask(path)
            except GeologError as error:
                failures.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(min(AT_A_TIME_MAX, len(paths))):
            nursery.start_soon(ask_on)
    if failures:
        raise failures[0]
    return [found[place] for place in range(len(paths))]
