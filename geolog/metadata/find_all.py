"""Reading many metadata nodes in the time of one round trip, or of a few."""

from collections.abc import Sequence

import trio

from geolog.metadata.seam import Metadata, Stored
from topology.errors import GeologError

AT_A_TIME_MAX = 64
"""Requests that are under way at once; the session's other users have room beside them."""


async def find_all(metadata: Metadata, paths: Sequence[str]) -> list[Stored | None]:
    """What `find` gives for each path, in order. Raises what the first that failed raised."""
    found: list[Stored | None] = [None] * len(paths)
    failures: list[GeologError] = []
    limit = trio.Semaphore(AT_A_TIME_MAX)

    async def find(place: int) -> None:
        async with limit:
            if failures:
                return
            try:
                found[place] = await metadata.find(paths[place])
            except GeologError as error:
                failures.append(error)

    async with trio.open_nursery() as nursery:
        for place in range(len(paths)):
            nursery.start_soon(find, place)
    if failures:
        raise failures[0]
    return found
