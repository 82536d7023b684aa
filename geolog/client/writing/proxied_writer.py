"""Opens a writer whose partitions are owned by write proxies."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from geolog.background import all_of, open_background
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.client.proxies.proxies import Proxies
from geolog.client.proxies.remote_partition import RemotePartition
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import AckLevel
from geolog.client.writing.writer_session import open_session
from geolog.protocol.stream_state import StreamRecord
from topology.errors import SealedError


class RemotePartitions:
    """The partitions of one writer, in order."""

    def __init__(
        self,
        stream: StreamRecord,
        *,
        catalog: StreamCatalog,
        proxies: Proxies,
        rng: random.Random,
        nursery: trio.Nursery,
    ) -> None:
        self._stream = stream
        self._catalog = catalog
        self._proxies = proxies
        self._rng = rng
        self._nursery = nursery
        self.in_order: list[RemotePartition] = []

    async def open(self, numbers: list[int]) -> None:
        """Open channels to these partitions of the stream, all at once."""
        new = [
            RemotePartition(
                self._stream.partition(number),
                connections=self._proxies.connections,
                routes=self._proxies.routes,
                rng=self._rng,
            )
            for number in numbers
        ]
        self.in_order += new
        for one in new:
            self._nursery.start_soon(one.run, name=f"channel of {one.name}")
        await all_of([one.wait_opened for one in new])

    async def grow(self) -> int:
        """Read how many partitions the stream has, and open those that are new too."""
        self._stream = await self._catalog.read_same_latest(self._stream)
        await self.open(list(range(len(self.in_order), self._stream.partitions)))
        return len(self.in_order)

    def close(self) -> None:
        """Give all channels up."""
        for one in self.in_order:
            one.close()


@asynccontextmanager
async def open_proxied_writer(
    stream: StreamRecord,
    number: int | None,
    config: WriterConfig,
    *,
    writer_id: str | None,
    ack: AckLevel,
    catalog: StreamCatalog,
    proxies: Proxies,
    rng: random.Random,
    now_us: Callable[[], int],
) -> AsyncIterator[Writer]:
    """Append to the stream, or partition `number` of it, through proxies in the block.

    SealedError, NoSuchStreamError, FencedError if a direct writer owns a partition,
    UnavailableError if no proxy takes one.
    """
    if stream.is_sealed:
        raise SealedError(f"{stream.name} is sealed: it takes no more records")
    async with open_background() as nursery:
        remote = RemotePartitions(
            stream,
            catalog=catalog,
            proxies=proxies,
            rng=rng,
            nursery=nursery,
        )
        try:
            await remote.open(list(range(stream.partitions)) if number is None else [number])
            session = None
            if writer_id is not None:
                session = await open_session(
                    writer_id,
                    remote.in_order,
                    is_whole=number is None,
                    count_partitions=remote.grow,
                    rng=rng,
                )
            writer = Writer(
                remote.in_order,
                config,
                session=session,
                ack=ack,
                home_epoch=stream.home_epoch,
                now_us=now_us,
                first_partition=rng.randrange(len(remote.in_order)),
            )
            async with open_linger(writer):
                yield writer
        finally:
            remote.close()
