"""A storage node in one process, and a client that speaks the bare protocol."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import attrs
import trio
from crc32c import crc32c

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import (
    Add,
    AddsSynced,
    Fence,
    Follow,
    Hello,
    HelloAnswer,
    LedgerOpened,
    Message,
    OpenLedger,
    Probe,
    ProbeAnswer,
    PushLac,
    Read,
    ReadAnswer,
)
from geolog.transport.seam import Address, ByteStream
from geolog.wire.codec import PROTOCOL_VERSION, decode, encode
from geolog.wire.frame import FrameReader
from regions.storage.config import StorageConfig
from regions.storage.disk import Disk
from regions.storage.node import StorageNode, open_storage_node
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store
from sim.fakes.memory_transport import MemoryNetwork

M = TypeVar("M", bound=Message)
LEDGER = LedgerId(7)
HOST = "storage"


@attrs.define
class World:
    """A node's surroundings, which outlive it."""

    store: MemoryStore
    chance: Random
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)
    disk: Disk = attrs.field(factory=MemoryDisk)
    disks: list[Disk] = attrs.field(factory=list)
    """For a node with several data directories, in the order given."""
    node_session: MemoryMetadata = attrs.field(init=False)
    """For the node that was started last."""

    @asynccontextmanager
    async def node(self, config: StorageConfig | None = None) -> AsyncIterator[StorageNode]:
        async with (
            self.store.open_session() as self.node_session,
            open_storage_node(
                config or a_config(),
                transport=self.network.transport(HOST),
                disks=self.disks or [self.disk],
                metadata=self.node_session,
                random_bytes=self.chance.randbytes,
            ) as node,
        ):
            yield node

    @asynccontextmanager
    async def client(self, node: StorageNode) -> "AsyncIterator[BareClient]":
        async with self.bare_client(node.address) as client:
            await client.say_hello()
            yield client

    @asynccontextmanager
    async def bare_client(self, address: Address) -> "AsyncIterator[BareClient]":
        stream = await self.network.transport("client").connect(address)
        try:
            yield BareClient(stream)
        finally:
            stream.close()


@asynccontextmanager
async def a_world(seed: int = 1) -> AsyncIterator[World]:
    async with open_memory_store() as store:
        yield World(store, chance=Random(seed))


def a_config() -> StorageConfig:
    return StorageConfig(location="/here/rack-1", listen=Address(HOST, 7001))


class BareClient:
    """Sends messages and receives answers, in order."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._reader = FrameReader()
        self._received: list[Message] = []
        self._instance = InstanceId("0" * 32)
        self.added_through = 0
        """Ordinal of the last add by `store`."""

    async def say_hello(self, cluster: str = "default") -> HelloAnswer:
        await self.send(Hello(1, PROTOCOL_VERSION, cluster))
        answer = await self.receive_one(HelloAnswer)
        self._instance = answer.instance
        return answer

    async def send(self, *messages: Message) -> None:
        for message in messages:
            await self.stream.send(encode(message))

    async def send_at_once(self, *messages: Message) -> None:
        """Send so that the node receives all in few pieces."""
        await self.stream.send([buffer for each in messages for buffer in encode(each)])

    async def receive(self) -> Message | None:
        """The next message; None at the end."""
        while not self._received:
            count = await self.stream.receive_into(self._reader.buffer())
            if not count:
                return None
            self._reader.received(count)
            self._received += [decode(frame) for frame in self._reader.frames()]
        return self._received.pop(0)

    async def receive_one(self, kind: type[M]) -> M:
        message = await self.receive()
        assert isinstance(message, kind), message
        return message

    async def store(self, *bodies: bytes, lac: int = -1, ledger: LedgerId = LEDGER) -> None:
        """Open the ledger, add these entries to it, and wait until they are on disk."""
        await self.send(self.open(ledger=ledger))
        await self.receive_one(LedgerOpened)
        for entry, body in enumerate(bodies):
            ordinal = self.added_through = self.added_through + 1
            await self.send(self.add(ordinal, entry, body, lac=lac, ledger=ledger))
        synced_through = 0
        while bodies and synced_through < self.added_through:
            synced_through = (await self.receive_one(AddsSynced)).through

    async def is_closed(self) -> bool:
        """Whether the node closes the connection, whatever it still sends."""
        with trio.fail_after(60):
            while await self.receive() is not None:
                pass
        return True

    def open(self, epoch: int = 1, ledger: LedgerId = LEDGER) -> OpenLedger:
        return OpenLedger(2, ledger, Epoch(epoch), self._instance)

    def fence(self, epoch: int) -> Fence:
        return Fence(3, LEDGER, Epoch(epoch), self._instance)

    def add(
        self,
        ordinal: int,
        entry: int,
        body: bytes,
        *,
        epoch: int = 1,
        lac: int = -1,
        recovery: bool = False,
        wants_received: bool = False,
        ledger: LedgerId = LEDGER,
    ) -> Add:
        return Add(
            ordinal,
            ledger,
            EntryId(entry),
            Epoch(epoch),
            EntryId(lac),
            is_recovery=recovery,
            wants_received=wants_received,
            instance=self._instance,
            body=body,
            body_crc=crc32c(body),
        )

    async def read(
        self, first: int, count: int, *, bytes_max: int = 1 << 20, fence_epoch: int = 0
    ) -> ReadAnswer:
        await self.send(
            self.reading(first, count, bytes_max=bytes_max, fence_epoch=fence_epoch)
        )
        return await self.receive_one(ReadAnswer)

    def reading(
        self,
        first: int,
        count: int,
        *,
        request: int = 4,
        bytes_max: int = 1 << 20,
        answers_max: int = 1,
        fence_epoch: int = 0,
        ledger: LedgerId = LEDGER,
    ) -> Read:
        return Read(
            request,
            ledger,
            EntryId(first),
            count,
            bytes_max,
            answers_max,
            Epoch(fence_epoch),
            self._instance,
        )

    def following(
        self,
        first: int,
        *,
        request: int = 6,
        count: int = 100,
        wait_s: float = 10.0,
        ledger: LedgerId = LEDGER,
    ) -> Follow:
        wait_ms = int(wait_s * 1000)
        return Follow(request, ledger, EntryId(first), count, 1 << 20, wait_ms, self._instance)

    def push(self, lac: int, *, epoch: int = 1) -> PushLac:
        return PushLac(LEDGER, Epoch(epoch), EntryId(lac), self._instance)

    async def ask_for_reads(self, count: int) -> None:
        """Request the first entry repeatedly, without receiving answers."""
        for _ in range(count):
            await self.send(self.reading(0, 1))

    def probing(self, first: int, count: int) -> Probe:
        return Probe(5, LEDGER, EntryId(first), count, self._instance)

    async def probe(self, first: int, count: int) -> ProbeAnswer:
        await self.send(self.probing(first, count))
        return await self.receive_one(ProbeAnswer)
