"""A storage node over real sockets, flooded with connections."""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import attrs
import trio

from geolog.protocol.messages import AddsSynced, LedgerOpened
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from regions.storage.config import StorageConfig
from regions.storage.node import StorageNode, open_storage_node
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import open_memory_store
from tests.pure.storage.nodes import BareClient
from tests.system.demo_process import WAIT_S_MAX

CONNECTIONS_MAX = 8
FLOOD_COUNT = 200


@asynccontextmanager
async def a_node_on_loopback(
    *, handshake_timeout_s: float = WAIT_S_MAX
) -> AsyncIterator[StorageNode]:
    config = StorageConfig(
        location="/here/rack-1",
        listen=Address("127.0.0.1", 0),
        connections_max=CONNECTIONS_MAX,
        handshake_timeout_s=handshake_timeout_s,
    )
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        open_storage_node(
            config,
            transport=TcpTransport(),
            disks=[MemoryDisk()],
            metadata=metadata,
            random_bytes=Random(1).randbytes,
        ) as node,
    ):
        yield node


@asynccontextmanager
async def a_client(node: StorageNode) -> AsyncIterator[BareClient]:
    stream = await TcpTransport().connect(node.address)
    try:
        yield BareClient(stream)
    finally:
        stream.close()


@attrs.define
class Flood:
    """Connections made at once by silent strangers."""

    node: StorageNode
    sockets: list[socket.socket] = attrs.field(factory=list)

    def come(self) -> None:
        """Connect this many before the node has a turn: they wait in its backlog."""
        where = (self.node.address.host, self.node.address.port)
        self.sockets = [socket.create_connection(where) for _ in range(FLOOD_COUNT)]

    def wait_closed(self) -> None:
        """Wait until the node has closed them all."""
        for each in self.sockets:
            each.settimeout(WAIT_S_MAX)
            assert each.recv(1) == b""

    def leave(self) -> None:
        for each in self.sockets:
            each.close()


def connections_of(node: StorageNode) -> dict[str, int]:
    found: dict[str, int] = json.loads(node.status())["connections"]
    return found


def descriptors_count() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_flood_takes_no_more_descriptors_than_connections_may_be_open() -> None:
    async with a_node_on_loopback() as node, a_client(node) as good:
        await good.say_hello()
        flood = Flood(node)
        descriptors_max = descriptors_count() + FLOOD_COUNT + CONNECTIONS_MAX
        descriptors_seen = 0
        try:
            flood.come()
            while connections_of(node)["accepted"] < 1 + FLOOD_COUNT:
                descriptors_seen = max(descriptors_seen, descriptors_count())
                await trio.lowlevel.checkpoint()

            assert descriptors_seen <= descriptors_max
            counts = connections_of(node)
            assert counts["open"] == CONNECTIONS_MAX
            assert counts["closed_over_limit"] == FLOOD_COUNT - (CONNECTIONS_MAX - 1)
            await good.send(good.open(), good.add(1, 0, b"zero"))
            await good.receive_one(LedgerOpened)
            await good.receive_one(AddsSynced)
        finally:
            flood.leave()


async def test_there_is_room_again_after_the_connections_of_a_flood_were_closed() -> None:
    async with a_node_on_loopback(handshake_timeout_s=0.5) as node:
        flood = Flood(node)
        try:
            flood.come()
            await trio.to_thread.run_sync(flood.wait_closed)

            async with a_client(node) as good:
                await good.say_hello()
                await good.send(good.open())
                await good.receive_one(LedgerOpened)
        finally:
            flood.leave()
