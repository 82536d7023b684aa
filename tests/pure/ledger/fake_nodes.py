"""Storage nodes that speak the wire protocol, record every message, and lie on request."""

import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.ledger.nodes.connection import ConnectionConfig
from geolog.ledger.nodes.node_pool import NodePool, PoolConfig, open_node_pool
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import NO_ENTRY, NO_EPOCH, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import (
    Add,
    AddsSynced,
    Answer,
    Cancel,
    EntryAnswer,
    Fence,
    Fenced,
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
    Reason,
    Refused,
)
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from geolog.wire.batch import seal_batch
from geolog.wire.codec import PROTOCOL_VERSION, decode, encode
from geolog.wire.entry import EncodedEntry, encode_entry
from geolog.wire.frame import FrameReader
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from topology.location import Location
from topology.quorum import QuorumConfig

LEDGER = LedgerId(7)
SEGMENT = 3
CLUSTER = "default"

Lie = Callable[[Message, list[Message]], list[Message]]
"""Maps a message and its honest answers to the answers that are sent."""


def honest(_asked: Message, answers: list[Message]) -> list[Message]:
    return answers


@attrs.define(eq=False)
class FakeNode:
    """A node that stores entries in a dictionary."""

    network: MemoryNetwork
    node_id: str
    region: str
    instance: InstanceId
    lie: Lie = honest
    delay_s: float = 0.0
    """How long it takes to answer each message."""
    answer_s: float = 0.0
    """How long it takes to read the entries of one answer."""
    is_reading: bool = True
    """Whether it reads the messages sent to it."""
    entries: dict[EntryId, bytes] = attrs.field(factory=dict)
    follows: dict[int, Follow] = attrs.field(factory=dict)
    """Those that wait, of its newest connection."""
    asked: list[Message] = attrs.field(factory=list)
    """All messages to it, in order, over all connections."""
    lac: EntryId = NO_ENTRY
    fence: Epoch = NO_EPOCH
    connections_count: int = 0
    streams: list[ByteStream] = attrs.field(factory=list)

    @property
    def address(self) -> Address:
        return Address(self.node_id, 4000)

    @property
    def member(self) -> Member:
        return Member(self.instance, self.node_id, Location.parse(f"/{self.region}/rack-1"))

    def adds(self) -> list[EntryId]:
        """The entries of all adds sent to it, repeats included."""
        return [message.entry for message in self.asked if isinstance(message, Add)]

    async def send(self, message: Message) -> None:
        """Send an unexpected message over its newest connection."""
        await self.streams[-1].send(encode(message))

    async def run(self) -> None:
        listener = await self.network.transport(self.node_id).listen(self.address)
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await listener.accept()
                except ConnectionFailedError:
                    return  # The host was killed.
                self.connections_count += 1
                self.streams.append(stream)
                self.follows.clear()
                nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: ByteStream) -> None:
        reader = FrameReader()
        try:
            while True:
                count = await stream.receive_into(reader.buffer())
                if not count:
                    return
                reader.received(count)
                for frame in reader.frames():
                    message = decode(frame)
                    self.asked.append(message)
                    if self.delay_s and not isinstance(message, Hello):
                        await trio.sleep(self.delay_s)
                    for answer in self.lie(message, self._answers(message)):
                        if self.answer_s and isinstance(message, Read):
                            await trio.sleep(self.answer_s)
                        await stream.send(encode(answer))
                    if not self.is_reading and not isinstance(message, Hello | OpenLedger):
                        await trio.sleep_forever()
        except ConnectionFailedError:
            return

    def _answers(self, message: Message) -> list[Message]:
        match message:
            case Hello(request):
                location = f"/{self.region}/rack-1"
                return [
                    HelloAnswer(request, PROTOCOL_VERSION, self.instance, location, 1 << 20)
                ]
            case OpenLedger(request):
                return [LedgerOpened(request)]
            case Fence(request, epoch=epoch):
                self.fence = max(self.fence, epoch)
                return [Fenced(request, self.lac, max(self.entries, default=NO_ENTRY))]
            case Add(ordinal, entry=entry, body=body, lac=lac):
                self.entries[entry] = bytes(body)
                self.lac = max(self.lac, lac)
                return [AddsSynced(ordinal)]
            case PushLac(lac=lac):
                self.lac = max(self.lac, lac)
                return []
            case Cancel(request):
                return self._answers_to_cancel(request)
            case Read():
                return self._answers_to_read(message)
            case Follow(request):
                self.follows[request] = message
                return self._answers_to_follows()
            case Probe(request, first=first, count_max=count):
                probed = tuple(self._entry(EntryId(first + one)).answer for one in range(count))
                highest = max(self.entries, default=NO_ENTRY)
                return [
                    ProbeAnswer(
                        request, self.lac, highest, bool(self.fence), self.fence, probed
                    )
                ]
            case _:
                raise AssertionError(message)

    async def acknowledge(self, lac: int) -> None:
        """Learn of a LAC, and answer the follows that waited for it."""
        self.lac = EntryId(lac)
        for answer in self._answers_to_follows():
            await self.send(answer)

    def _answers_to_follows(self) -> list[Message]:
        answers: list[Message] = []
        for request, follow in list(self.follows.items()):
            if follow.first > self.lac and not self.fence:
                continue
            del self.follows[request]
            end = min(self.lac + 1, follow.first + follow.count_max)
            found = tuple(self._entry(EntryId(entry)) for entry in range(follow.first, end))
            answers.append(
                ReadAnswer(request, self.lac, follow.first, found, is_fenced=bool(self.fence))
            )
        return answers

    def _answers_to_cancel(self, request: int) -> list[Message]:
        if self.follows.pop(request, None) is None:
            return []  # It answers everything else at once.
        return [Refused(request, Reason.CANCELLED, NO_EPOCH, "cancelled")]

    def _answers_to_read(self, read: Read) -> list[Message]:
        left = [self._entry(EntryId(read.first + one)) for one in range(read.count_max)]
        answers: list[Message] = []
        first = read.first
        while left and len(answers) < read.answers_max:
            count, size_bytes = 0, 0
            while count < len(left) and (not count or size_bytes <= read.bytes_max):
                size_bytes += len(left[count].body)
                count += 1
            if size_bytes > read.bytes_max and count > 1:
                count -= 1
            found, left = tuple(left[:count]), left[count:]
            is_last = not left or len(answers) == read.answers_max - 1
            answers.append(ReadAnswer(read.request, self.lac, first, found, is_last=is_last))
            first = EntryId(first + count)
        return answers

    def _entry(self, entry: EntryId) -> EntryAnswer:
        body = self.entries.get(entry)
        if body is None:
            return EntryAnswer(Answer.ABSENT)
        return EntryAnswer(Answer.HAVE, body)


@attrs.define
class FakeNodes:
    """Three or more nodes in three regions, and the door to them."""

    network: MemoryNetwork
    nodes: list[FakeNode]
    metadata: MemoryMetadata
    pool: NodePool
    replicas: Replicas
    nursery: trio.Nursery

    async def record_now(self, _ledger: LedgerId) -> LedgerRecord:
        """The ledger's record as metadata would have it."""
        return self.ledger()

    def ledger(self) -> LedgerRecord:
        """An open ledger on the first three nodes: E 3, W 3, A 2, in two regions."""
        quorum = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)
        members = tuple(node.member for node in self.nodes[:3])
        return LedgerRecord(
            ledger=LEDGER,
            state=LedgerState.OPEN,
            epoch=Epoch(1),
            quorum=quorum,
            fragments=(Fragment(EntryId(0), members),),
            segment=SEGMENT,
        )

    def store(self, count: int, *, at: tuple[int, ...] = (0, 1, 2)) -> None:
        """Store the first entries at some nodes, as if they had been acknowledged."""
        for entry in range(count):
            for node in at:
                self.nodes[node].entries[EntryId(entry)] = entry_of(entry).join()


def entry_of(entry: int, *, value: bytes = b"value", segment: int = SEGMENT) -> EncodedEntry:
    """An entry of one record, whose sequence is its number."""
    sealed = seal_batch([value + b" %d" % entry], created_us=0)
    return encode_entry(
        [sealed],
        home_epoch=1,
        segment=segment,
        entry=entry,
        first_sequence=entry,
        append_time_us=entry,
    )


@asynccontextmanager
async def open_fake_nodes(
    connection: ConnectionConfig | None = None,
    *,
    count: int = 3,
    regions: Sequence[str] = ("near", "far", "farther"),
) -> AsyncIterator[FakeNodes]:
    """Open nodes that alternate between these regions, honest until told otherwise."""
    network = MemoryNetwork()
    nodes = [
        FakeNode(network, f"node-{number}", region, InstanceId(f"{number}" * 32))
        for number, region in zip(range(count), itertools.cycle(regions), strict=False)
    ]
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        trio.open_nursery() as nursery,
    ):
        paths = ClusterPaths(CLUSTER)
        await metadata.ensure_path(paths.nodes_known)
        await metadata.ensure_path(paths.nodes_live)
        for node in nodes:
            nursery.start_soon(node.run)
            record = NodeRecord(node.node_id, node.instance, node.address, node.member.location)
            await metadata.create(paths.node_known(node.node_id), seal_document(record))
            await metadata.create(paths.node_live(node.instance), seal_document(record))
        async with open_node_pool(
            transport=network.transport("client"),
            metadata=metadata,
            cluster=CLUSTER,
            rng=random.Random(1),
            config=PoolConfig(connection=connection or ConnectionConfig()),
        ) as pool:
            replicas = Replicas.of(pool, region="near")
            yield FakeNodes(network, nodes, metadata, pool, replicas, nursery)
        nursery.cancel_scope.cancel()
