"""Opens a writer whose partitions are owned by write proxies."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.client.proxies.proxies import Proxies
from geolog.client.proxies.remote_partition import RemotePartition
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import AckLevel
from geolog.client.writing.writer_session import open_session
from geolog.protocol.session_home import SessionHome
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord


@attrs.frozen
class WrittenStream:
    """Facts of a stream that a writer through proxies needs."""

    name: StreamName
    life: str
    partitions: int
    home_epoch: int
    session_epoch: int

    @property
    def home(self) -> SessionHome:
        """Where sessions that are opened now belong."""
        return SessionHome(self.life, self.session_epoch)

    @classmethod
    def of(cls, record: StreamRecord) -> "WrittenStream":
        """Take them from its record."""
        return cls(
            record.name,
            record.life,
            record.partitions,
            record.home_epoch,
            record.session_epoch,
        )


ReadStream = Callable[[], Awaitable[WrittenStream]]
"""Reads a stream, with every partition that was added before the call."""


class RemotePartitions:
    """The partitions of one writer, in order."""

    def __init__(
        self,
        stream: WrittenStream,
        *,
        read_stream: ReadStream,
        proxies: Proxies,
        rng: random.Random,
        nursery: trio.Nursery,
    ) -> None:
        self._stream = stream
        self._read_stream = read_stream
        self._proxies = proxies
        self._rng = rng
        self._nursery = nursery
        self.in_order: list[RemotePartition] = []

    async def open(self, numbers: list[int]) -> None:
        """Open channels to these partitions of the stream, all at once."""
        new = [
            RemotePartition(
                PartitionName(self._stream.name, number, self._stream.life),
                home=self._stream.home,
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
        found = await self._read_stream()
        self._stream.home.check(PartitionName(found.name, 0, found.life), found.session_epoch)
        self._stream = found
        await self.open(list(range(len(self.in_order), self._stream.partitions)))
        return len(self.in_order)

    def close(self) -> None:
        """Give all channels up."""
        for one in self.in_order:
            one.close()


@asynccontextmanager
async def open_proxied_writer(
    stream: WrittenStream,
    number: int | None,
    config: WriterConfig,
    *,
    writer_id: str | None,
    ack: AckLevel,
    read_stream: ReadStream,
    proxies: Proxies,
    rng: random.Random,
    now_us: Callable[[], int],
) -> AsyncIterator[Writer]:
    """Append to the stream, or partition `number` of it, through proxies in the block.

    SealedError, NoSuchStreamError, FencedError if a direct writer owns a partition,
    UnavailableError if no proxy takes one.
    """
    async with open_background() as nursery:
        remote = RemotePartitions(
            stream,
            read_stream=read_stream,
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
                    home=stream.home,
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
