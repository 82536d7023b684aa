"""A log reached through write proxies alone, without ZooKeeper: it appends and reads."""

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from geolog.background import open_background
from geolog.client.arguments import checked
from geolog.client.cursors.proxied_cursor import open_proxied_cursor
from geolog.client.log import Log
from geolog.client.proxies.connection import ProxyConnections
from geolog.client.proxies.directory import GivenProxies
from geolog.client.proxies.proxies import Proxies
from geolog.client.proxies.routes import ProxyRoutes
from geolog.client.reading.bounds import EARLIEST, Bound, bound_text, check_order
from geolog.client.reading.proxied_reader import open_proxied_reader
from geolog.client.reading.reader import Reader
from geolog.client.reading.stream_reader import check_one_partition
from geolog.client.spooling.spool_inlet import SPOOL_BYTES, SpoolConfig
from geolog.client.spooling.spooled_writer import spooled_writer
from geolog.client.writing.partition_batcher import BATCH_BYTES, WriterConfig
from geolog.client.writing.proxied_writer import WrittenStream, open_proxied_writer
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import AckLevel
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.partition.home_lease import sleepless_clocks
from geolog.protocol.hedge_policy import HedgePolicy
from geolog.protocol.isolation_lease import LeaseClocks
from geolog.protocol.stream_pattern import StreamPattern, is_pattern
from geolog.protocol.stream_state import StreamName, parse_target
from geolog.transport.message_socket import MessageTransport
from geolog.transport.seam import Address, ConnectionFailedError, Transport
from geolog.transport.websocket import WebSockets
from geolog.wire.session.paths import ReadPath
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    OutcomeUnknownError,
    UnavailableError,
)


class ProxiedLog(Log):
    """A `Log` without ZooKeeper. It has no part of `Log` but what goes through proxies."""

    def __init__(  # It builds nothing that needs metadata, so not the parts of `Log` either.
        self,
        *,
        cluster: str,
        region: str | None,
        proxies: Proxies,
        messages: MessageTransport,
        rng: random.Random,
        now_us: Callable[[], int],
    ) -> None:
        self.cluster = cluster
        self.region = region
        self._proxies = proxies
        self._messages = messages
        self._rng = rng
        self._now_us = now_us
        self._progress = RecoveryProgress()
        self._is_closed = False

    def __getattr__(self, name: str) -> object:
        """Say that a part of `Log` needs ZooKeeper."""
        if name.startswith("__"):
            raise AttributeError(name)
        raise InvalidArgumentError(
            "this call needs ZooKeeper: connect with zookeeper='HOST:PORT' (--zookeeper)."
            " Through write proxies alone only appends and reads work"
        )

    @property
    def recovery_progress(self) -> RecoveryProgress:
        """Progress of recoveries in this process: proxies recover, so there is none."""
        return self._progress

    @asynccontextmanager
    @checked
    async def open_writer(
        self,
        name: str,
        *,
        writer_id: str | None = None,
        ack: AckLevel | Literal["received", "durable"] = AckLevel.DURABLE,
        linger_s: float = 0.001,
        batch_bytes: int = BATCH_BYTES,
        in_flight_bytes: int = 32 * 1024 * 1024,
        spool: str | Path | None = None,
        spool_bytes: int = SPOOL_BYTES,
    ) -> AsyncIterator[Writer]:
        """Append to the stream, or one partition of it. Arguments: as of `Log.open_writer`."""
        self.check_open()
        config = WriterConfig(
            linger_s=linger_s, batch_bytes=batch_bytes, in_flight_bytes=in_flight_bytes
        )
        if spool is not None:
            again = partial(
                self.open_writer,
                name,
                writer_id=writer_id,
                linger_s=linger_s,
                batch_bytes=batch_bytes,
            )
            async with spooled_writer(
                again,
                spool,
                SpoolConfig(
                    spool_bytes=spool_bytes,
                    batch_bytes=batch_bytes,
                    in_flight_bytes=in_flight_bytes,
                ),
                cluster=self.cluster,
                stream=name,
                writer_id=writer_id,
                ack=AckLevel(ack),
                rng=self._rng,
                now_us=self._now_us,
            ) as spooled:
                yield spooled
            return
        stream, number = parse_target(name)
        found = await self._described(stream)
        _check_partition(found, number)

        async def read_stream() -> WrittenStream:
            now = await self._described(stream)
            if now.life != found.life:
                raise NoSuchStreamError(f"{stream} was deleted, and created again")
            return now

        async with open_proxied_writer(
            found,
            number,
            config,
            writer_id=writer_id,
            ack=AckLevel(ack),
            read_stream=read_stream,
            proxies=self._proxies,
            rng=self._rng,
            now_us=self._now_us,
        ) as writer:
            yield writer

    @asynccontextmanager
    @checked
    async def open_reader(
        self,
        name: str,
        *,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
        cursor: str | None = None,
        shared: bool = False,
        take: bool = False,
        auto_commit: bool = True,
        hedge: str | HedgePolicy | None = None,
        positions: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Reader]:
        """Read in order. Arguments: as of `Log.open_reader`."""
        self.check_open()
        if cursor is None and (shared or take or not auto_commit):
            raise InvalidArgumentError(
                "shared, take and auto_commit are for a cursor: give cursor='NAME' as well"
            )
        if hedge is not None:
            raise InvalidArgumentError(
                "hedge needs ZooKeeper: connect with zookeeper='HOST:PORT' (--zookeeper)."
                " Write proxies hedge reads by a policy of their own"
            )
        if is_pattern(name):
            raise InvalidArgumentError(
                f"{name!r} is a pattern, and reading one needs ZooKeeper: connect with"
                " zookeeper='HOST:PORT' (--zookeeper), or open a WebSocket to"
                f" /v1/streams/{StreamPattern.parse(name)}/read at a write proxy"
            )
        if positions is not None:
            raise InvalidArgumentError("positions are for patterns, e.g. 'shop/*'")
        stream, number = parse_target(name)
        found = await self._described(stream)
        _check_partition(found, number)
        if cursor is not None:
            check_one_partition(name, found.partitions if number is None else 1, start)
            check_one_partition(name, found.partitions if number is None else 1, stop)
            check_order(start, stop)
            async with open_proxied_cursor(
                ReadPath(
                    stream=stream,
                    partition=number,
                    start=bound_text(start),
                    stop=None if stop is None else bound_text(stop),
                    is_following=follow,
                    cursor=cursor,
                    is_shared=shared,
                    is_taking=take,
                ),
                stop=stop,
                home_epoch=found.home_epoch,
                is_automatic=auto_commit,
                routes=self._proxies.routes,
                messages=self._messages,
                rng=self._rng,
            ) as of_cursor:
                yield of_cursor
            return
        async with open_proxied_reader(
            stream,
            range(found.partitions) if number is None else [number],
            start=start,
            stop=stop,
            is_following=follow,
            routes=self._proxies.routes,
            messages=self._messages,
            rng=self._rng,
        ) as reader:
            yield reader

    async def _described(self, stream: StreamName) -> WrittenStream:
        """Ask the proxies, one after the other, for the facts of a stream."""
        failed: list[Address] = []
        known_count = len(await self._proxies.routes.known())
        while True:
            address = await self._proxies.routes.any(failed=failed)
            try:
                connection = await self._proxies.connections.to(address)
                told = await connection.describe(str(stream))
            except (ConnectionFailedError, OutcomeUnknownError, UnavailableError) as error:
                failed.append(address)
                if len(failed) >= known_count:
                    raise _no_answer(failed, error) from error
                continue
            return WrittenStream(
                stream, told.life, told.partitions, told.home_epoch, told.session_epoch
            )


def _no_answer(failed: Sequence[Address], error: GeologError) -> UnavailableError:
    asked = ", ".join(map(str, failed))
    return UnavailableError(f"no write proxy answers (asked {asked}): {error}")


def _check_partition(stream: WrittenStream, number: int | None) -> None:
    if number is not None and number >= stream.partitions:
        raise InvalidArgumentError(
            f"{stream.name} has no partition {number}; its partitions are"
            f" {'0' if stream.partitions == 1 else f'0 to {stream.partitions - 1}'}"
        )


@asynccontextmanager
async def open_proxied_log(
    given: Sequence[Address],
    *,
    transport: Transport,
    cluster: str,
    region: str | None,
    rng: random.Random,
    now_us: Callable[[], int],
    messages: MessageTransport | None = None,
    lease_clocks: Callable[[], LeaseClocks] = sleepless_clocks,
) -> AsyncIterator[ProxiedLog]:
    """Open a log over these write proxies, for the length of the block.

    messages: carries the sessions with them; WebSockets over the transport if None.
    """
    messages = messages or WebSockets(transport)
    async with open_background() as nursery:
        routes = ProxyRoutes(GivenProxies(given), rng)
        log = ProxiedLog(
            cluster=cluster,
            region=region,
            proxies=Proxies(ProxyConnections(messages, nursery, lease_clocks), routes, "proxy"),
            messages=messages,
            rng=rng,
            now_us=now_us,
        )
        try:
            yield log
        finally:
            log.close()
