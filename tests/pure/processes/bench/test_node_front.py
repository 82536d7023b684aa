"""The front of storage nodes: what it delays, stalls and cuts, and what it lets pass."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import attrs
import trio
from trio.testing import MockClock

from geolog.protocol.ids import EntryId
from geolog.protocol.messages import ReadAnswer, Status, StatusRequest
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError
from geolog.wire.codec import encode
from sim.fakes.memory_transport import MemoryNetwork
from sim.processes.bench.hedge.node_front import FrontConditions, NodePassage
from tests.pure.storage.nodes import BareClient

NODE, FRONT = Address("node", 1), Address("front", 1)
LAC = EntryId(0)


@attrs.define
class Fronted:
    """A node that answers when the test says so, its front, and a client."""

    passage: NodePassage
    node: ByteStream
    client: BareClient

    async def answer(self, request: int) -> None:
        await self.node.send(encode(ReadAnswer(request, LAC, LAC, ())))

    async def tell_status(self, request: int) -> None:
        await self.node.send(encode(Status(request, "{}")))

    async def received(self) -> int:
        message = await self.client.receive()
        assert isinstance(message, ReadAnswer | Status)
        return message.request


@asynccontextmanager
async def a_front(conditions: FrontConditions) -> AsyncIterator[Fronted]:
    network = MemoryNetwork()
    at_node = await network.transport("node").listen(NODE)
    at_front = await network.transport("front").listen(FRONT)
    passage = NodePassage(network.transport("front"), NODE, random.Random(1))
    passage.change(conditions)
    async with trio.open_nursery() as nursery:
        client = await network.transport("client").connect(FRONT)
        nursery.start_soon(passage.carry, await at_front.accept())
        yield Fronted(passage, await at_node.accept(), BareClient(client))
        nursery.cancel_scope.cancel()


async def test_a_stalled_answer_to_a_read_holds_up_no_other_answer(
    autojump_clock: MockClock,
) -> None:
    stalls = FrontConditions(stall_rate=1.0, stall_s=0.5)
    async with a_front(stalls) as fronted:
        started_s = trio.current_time()
        await fronted.answer(1)
        await fronted.tell_status(2)

        assert await fronted.received() == 2
        assert trio.current_time() == started_s
        assert await fronted.received() == 1
        assert trio.current_time() - started_s == 0.5


async def test_a_share_of_the_answers_is_stalled(autojump_clock: MockClock) -> None:
    async with a_front(FrontConditions(stall_rate=0.1, stall_s=60.0)) as fronted:
        for request in range(500):
            await fronted.answer(request)
        soon = 0
        with trio.move_on_after(1):
            while True:
                await fronted.received()
                soon += 1

        assert 420 <= soon <= 480


async def test_a_slow_node_keeps_its_answers_in_order(autojump_clock: MockClock) -> None:
    async with a_front(FrontConditions(delay_s=0.1)) as fronted:
        started_s = trio.current_time()
        for request in range(5):
            await fronted.answer(request)

        assert [await fronted.received() for _ in range(5)] == list(range(5))
        assert trio.current_time() - started_s == 0.1


async def test_nothing_passes_a_cut_and_all_of_it_when_it_is_healed(
    autojump_clock: MockClock,
) -> None:
    async with a_front(FrontConditions(is_cut=True)) as fronted:
        await fronted.client.send(StatusRequest(7))
        await fronted.answer(1)
        buffer = bytearray(1000)
        with trio.move_on_after(30) as waited:
            await fronted.received()
        assert waited.cancelled_caught
        with trio.move_on_after(30) as waited:
            await fronted.node.receive_into(buffer)
        assert waited.cancelled_caught

        fronted.passage.change(FrontConditions())

        assert await fronted.received() == 1
        count = await fronted.node.receive_into(buffer)
        assert bytes(buffer[:count]) == b"".join(encode(StatusRequest(7)))


async def test_the_end_of_one_side_ends_the_other(autojump_clock: MockClock) -> None:
    async with a_front(FrontConditions()) as fronted:
        fronted.node.close()

        with suppress(ConnectionFailedError):  # A reset is an end, too.
            assert await fronted.client.receive() is None
