"""A proxy takes no more than its bounds allow, however many sessions wait for room."""

import random
from collections import deque
from collections.abc import Sequence

import attrs
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.wire.batch import seal_batch
from geolog.wire.batch_terms import NO_TERMS
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchPlaced,
    ChannelClosed,
    ChannelOpened,
    DescribeRequest,
    OpenChannel,
    SendBatch,
    StandingTold,
    StreamTold,
)
from regions.proxy.in_flight_bytes import REFUSED_BYTES_MAX, InFlightBytes
from regions.proxy.protocol.append_admission import AppendAdmission
from tests.pure.proxy.batches_client import CHANNEL, BatchesClient, open_batches
from tests.pure.proxy.proxies import OpenSession, open_proxy
from tests.pure.whole.clusters import STREAM, World, open_world

SESSIONS_COUNT = 5
MESSAGE = b"12345678"
BATCH = seal_batch([random.Random(0).randbytes(400)], created_us=1)
MESSAGE_BYTES_MAX = 2 * BATCH.length_bytes
"""A message with one such batch has fewer."""


@attrs.define(eq=False)
class Unread:
    """A socket whose messages have come already."""

    messages: deque[bytes]
    subprotocol: str | None = None
    origin: str | None = None

    @property
    def next_arrived_s(self) -> float | None:
        return 0.0 if self.messages else None

    async def wait_message(self) -> None:
        if not self.messages:
            await trio.sleep_forever()

    async def receive(self) -> bytes:
        await self.wait_message()
        return self.messages.popleft()

    async def send(self, message: str | bytes) -> None:
        raise AssertionError("nobody is answered here")

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        raise AssertionError("nobody is answered here")

    async def ping(self) -> None:
        raise AssertionError("nobody is answered here")

    async def close(self, close_code: int, reason: str = "") -> None:
        raise AssertionError("nobody is answered here")


async def test_sessions_that_wait_for_room_pass_the_bound_by_one_message_and_go_in_turn() -> (
    None
):
    admission = AppendAdmission(
        proxy_bytes_max=100,
        partition_bytes_max=100,
        client_bytes_max=100,
        queue_s_max=1.0,
        rng=random.Random(0),
    )
    in_flight = InFlightBytes(10, admission)
    taken_by: list[int] = []

    async def take(number: int, socket: Unread) -> None:
        while True:
            await in_flight.next_message(socket)
            taken_by.append(number)

    in_flight.take(10)
    async with trio.open_nursery() as nursery:
        for number in range(SESSIONS_COUNT):
            nursery.start_soon(take, number, Unread(deque([MESSAGE, MESSAGE])))
            await wait_all_tasks_blocked()
        assert taken_by == []
        in_flight.give_back(1)
        await wait_all_tasks_blocked()
        assert (taken_by, in_flight.bytes) == ([0], 9 + len(MESSAGE))
        for count in range(2, 2 * SESSIONS_COUNT + 1):
            in_flight.give_back(len(MESSAGE))
            await wait_all_tasks_blocked()
            assert len(taken_by) == count
            assert in_flight.bytes == 9 + len(MESSAGE)
        nursery.cancel_scope.cancel()

    assert taken_by == [*range(SESSIONS_COUNT), *range(SESSIONS_COUNT)]


def test_a_client_that_is_refused_much_has_no_room_and_others_have() -> None:
    admission = AppendAdmission(
        proxy_bytes_max=1,
        partition_bytes_max=1,
        client_bytes_max=1,
        queue_s_max=1.0,
        rng=random.Random(0),
    )
    in_flight, clients = InFlightBytes(1, admission), ("greedy", "modest")

    in_flight.take_refused("greedy", REFUSED_BYTES_MAX // 2)
    has_room = list(map(in_flight.has_room_for_refused, clients))
    in_flight.take_refused("modest", REFUSED_BYTES_MAX // 2)
    has_room.append(in_flight.has_room_for_refused("third"))
    in_flight.give_back_refused("greedy", REFUSED_BYTES_MAX // 2)
    has_room.append(in_flight.has_room_for_refused("third"))

    assert has_room == [False, True, False, True]
    assert in_flight.refused_bytes == REFUSED_BYTES_MAX // 2


async def test_refused_frames_of_a_partition_that_is_held_up_stop_no_other_session(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"/v1/streams/{STREAM}/append") as client,
    ):
        await client.receive()
        proxy.in_flight.take_refused("another client", REFUSED_BYTES_MAX)
        with trio.fail_after(10):
            answers = [await client.ask(id=number, value="v") for number in range(3)]
        proxy.in_flight.give_back_refused("another client", REFUSED_BYTES_MAX)

    assert [one["type"] for one in answers] == ["ack"] * 3


def cut_all(world: World) -> None:
    """Let nothing be answered from now on."""
    for node_id in world.cluster.nodes:
        world.cluster.network.cut("proxy-1", node_id)


def mend_all(world: World) -> None:
    for node_id in world.cluster.nodes:
        world.cluster.network.mend("proxy-1", node_id)


async def send_many(client: BatchesClient, count: int) -> None:
    for _ in range(count):
        await client.send_batch(BATCH)


async def test_batches_wait_while_their_partition_has_too_much_unanswered(
    autojump_clock: MockClock,
) -> None:
    bound = 4 * BATCH.length_bytes
    async with (
        open_world() as world,
        open_proxy(
            world.cluster,
            "proxy-1",
            "us-east",
            partition_in_flight_bytes_max=bound,
            in_flight_bytes_max=4 * bound,
        ) as proxy,
        open_batches(world.cluster, proxy, STREAM, host="one") as one,
        open_batches(world.cluster, proxy, STREAM, host="other") as other,
    ):
        cut_all(world)
        await send_many(one, 10)
        await send_many(other, 10)
        await trio.sleep(1)
        held_bytes = proxy.in_flight.bytes
        mend_all(world)
        answers = [await client.receive() for client in (one, other) for _ in range(10)]
        left_bytes = proxy.in_flight.bytes

    assert bound <= held_bytes <= 2 * bound + 2 * MESSAGE_BYTES_MAX
    assert all(isinstance(answer, BatchPlaced) for answer in answers)
    assert left_bytes == 0


async def test_batches_that_wait_hold_up_no_other_partition_and_keep_their_order(
    autojump_clock: MockClock,
) -> None:
    other, count = "shop/other", 5
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        await world.log.create_stream(other, survive="1 region")
        told = await client.ask(DescribeRequest(2, other))
        assert isinstance(told, StreamTold)
        opened = await client.ask(OpenChannel(CHANNEL + 1, other, told.life, 0))
        assert isinstance(opened, ChannelOpened)
        bound = proxy.in_flight.bytes + (64 << 20)
        proxy.in_flight.take(bound)
        proxy.in_flight.take_share(f"{STREAM}#0", "another client", bound)
        await send_many(client, count)
        await client.send(AskStanding(CHANNEL, 3, b"w", None))
        await client.send(SendBatch(CHANNEL + 1, 0, NO_TERMS, BATCH))
        with trio.fail_after(10):
            of_other = await client.receive()
        held_bytes = proxy.in_flight.bytes - bound
        proxy.in_flight.give_back_share(f"{STREAM}#0", "another client", bound)
        answers = [await client.receive() for _ in range(count + 1)]
        left_bytes = proxy.in_flight.bytes

    assert isinstance(of_other, BatchPlaced)
    assert of_other.channel == CHANNEL + 1
    placed = [one for one in answers if isinstance(one, BatchPlaced)]
    assert [one.number for one in placed] == list(range(count))
    assert [one.first_sequence for one in placed] == list(range(count))
    assert sum(isinstance(one, StandingTold) for one in answers) == 1
    assert (held_bytes, left_bytes) == (count * BATCH.length_bytes, 0)


async def test_a_channel_that_ends_while_its_batches_wait_says_that_none_was_taken(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        proxy.in_flight.take(64 << 20)
        proxy.in_flight.take_share(f"{STREAM}#0", "another client", 64 << 20)
        await send_many(client, 3)
        client.batches_count += 1  # The next one is out of order.
        await client.send_batch(BATCH)
        closed = await client.receive()
        await trio.sleep(1)
        left_bytes = proxy.in_flight.bytes
        proxy.in_flight.give_back_share(f"{STREAM}#0", "another client", 64 << 20)

    assert isinstance(closed, ChannelClosed)
    assert (closed.taken_count, left_bytes) == (0, 64 << 20)


async def test_a_client_of_batches_has_only_its_share_and_others_are_served(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    share = 4 * BATCH.length_bytes
    async with (
        open_world() as world,
        open_proxy(
            world.cluster,
            "proxy-1",
            "us-east",
            in_flight_bytes_max=5 * share,
            client_share=0.2,
        ) as proxy,
        open_batches(world.cluster, proxy, STREAM, host="greedy") as first,
        open_batches(world.cluster, proxy, STREAM, host="greedy") as second,
        open_session(
            world.cluster, proxy, f"/v1/streams/{STREAM}/append", host="modest"
        ) as modest,
    ):
        await modest.receive()
        cut_all(world)
        await send_many(first, 20)
        await send_many(second, 20)
        await modest.send(value="y" * 400)
        await trio.sleep(1)
        held_bytes = proxy.in_flight.bytes
        mend_all(world)
        answer = await modest.receive()
        answers = [await client.receive() for client in (first, second) for _ in range(20)]
        left_bytes = proxy.in_flight.bytes

    assert share <= held_bytes <= share + MESSAGE_BYTES_MAX + 1000
    assert answer["type"] == "ack"
    assert all(isinstance(answer, BatchPlaced) for answer in answers)
    assert left_bytes == 0
