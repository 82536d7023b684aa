"""Connects from where a driver or a task runs, for writes and jobs."""

import os
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.spark.surroundings import own_region
from geolog.transport.seam import Address
from topology.errors import NoSuchStreamError
from topology.nearest import suggestion


class ClusterTerms(Protocol):
    """The cluster of a write or a job, and the region where it runs."""

    @property
    def zookeeper(self) -> str:
        """Its ZooKeeper servers."""
        ...

    @property
    def cluster(self) -> str:
        """Its name."""
        ...

    @property
    def gateway(self) -> Address | str | None:
        """The gateway of an emulated WAN."""
        ...

    @property
    def region(self) -> str | None:
        """The region of driver and tasks; None: the one where each runs."""
        ...


def connect_here(terms: ClusterTerms) -> AbstractAsyncContextManager[Log]:
    """Connect from the region of the terms, or of this machine."""
    return connect(
        zookeeper=terms.zookeeper,
        cluster=terms.cluster,
        region=terms.region or own_region(os.environ),
        gateway=terms.gateway,
    )


async def check_streams(log: Log, names: Iterable[str]) -> None:
    """Look whether these streams exist. NoSuchStreamError."""
    known = await log.list_streams()
    for name in names:
        if name not in known:
            raise NoSuchStreamError(f"there is no stream {name!r}{suggestion(name, known)}")


async def look_for_streams(terms: ClusterTerms, names: Iterable[str]) -> None:
    """Look before Spark starts, which takes seconds, whether a job can do anything.

    NoSuchStreamError; InvalidArgumentError if the region is not known.
    """
    async with connect_here(terms) as log:
        await check_streams(log, names)
