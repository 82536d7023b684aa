"""Looks for the streams of a job: also before Spark starts, which takes seconds."""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

from geolog.client.log import Log
from topology.errors import NoSuchStreamError
from topology.nearest import suggestion


async def check_streams(
    connecting: AbstractAsyncContextManager[Log], names: Iterable[str]
) -> None:
    """Connect, and look whether these streams exist. NoSuchStreamError.

    Raises what connecting raises, e.g. InvalidArgumentError if the region is not known.
    """
    async with connecting as log:
        known = await log.list_streams()
    for name in names:
        if name not in known:
            raise NoSuchStreamError(f"there is no stream {name!r}{suggestion(name, known)}")
