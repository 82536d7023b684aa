"""Connects from where a driver or a task runs, for writes and jobs."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.standing import NoSuchRegionError
from geolog.protocol.stream_state import parse_target
from geolog.spark.batch_reading import told
from geolog.spark.surroundings import own_region
from geolog.transport.seam import Address
from topology.errors import InvalidArgumentError, NoSuchStreamError
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


@asynccontextmanager
async def connect_here(terms: ClusterTerms) -> AsyncIterator[Log]:
    """Connect from the region of the terms, or of this machine.

    NoSuchRegionError says where the machine has its region from.
    """
    async with AsyncExitStack() as stack:
        try:
            log = await stack.enter_async_context(
                connect(
                    zookeeper=terms.zookeeper,
                    cluster=terms.cluster,
                    region=terms.region or own_region(os.environ),
                    gateway=terms.gateway,
                )
            )
        except NoSuchRegionError as error:
            raise told(error, is_region_found=terms.region is None) from error
        yield log


async def check_streams(
    log: Log, names: Iterable[str], *, takes_partitions: bool = True
) -> None:
    """Look whether these streams or partitions exist.

    NoSuchStreamError; InvalidArgumentError if a stream has not so many partitions, or if
    `takes_partitions` is false and one is named.
    """
    known = await log.list_streams()
    for name in names:
        stream, partition = parse_target(name)
        if str(stream) not in known:
            missing = f"there is no stream {str(stream)!r}"
            raise NoSuchStreamError(f"{missing}{suggestion(str(stream), known)}")
        if partition is None:
            continue
        if not takes_partitions:
            raise InvalidArgumentError(
                f"{name} names a partition, and keys decide into which each record goes:"
                f" name the stream, {stream}"
            )
        streams = StreamCatalog(log.access.metadata, log.access.paths)
        (await streams.read_latest(stream)).partition(partition)  # InvalidArgumentError.


async def look_for_streams(
    terms: ClusterTerms, names: Iterable[str], *, takes_partitions: bool = True
) -> None:
    """Look before Spark starts, which takes seconds, whether a job can do anything.

    Errors as of `check_streams`; InvalidArgumentError if the region is not known.
    """
    async with connect_here(terms) as log:
        await check_streams(log, names, takes_partitions=takes_partitions)
