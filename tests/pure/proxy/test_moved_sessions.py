"""A session whose partition moves while it appends: forwarded, or told where to go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import attrs
import trio
from trio.testing import MockClock

from geolog.catalog.offers import Offer
from geolog.transport.message_socket import SocketClosedError
from geolog.wire.session.channel_messages import (
    AskStanding,
    ChannelClosed,
    RequestRefused,
    StandingTold,
)
from geolog.wire.session.told_errors import error_of
from regions.proxy.proxy import WriteProxy
from tests.pure.proxy.batches_client import CHANNEL, open_batches
from tests.pure.proxy.proxies import Frame, SessionClient, open_proxy, open_session
from tests.pure.whole.clusters import STREAM, World, open_world, values_of

APPEND = "/v1/streams/shop/orders/append"
PACE_S = 0.003
FRAMES_COUNT = 200


@attrs.define
class Moving:
    """A session with the first of two proxies, and the frames that it got."""

    world: World
    owner: WriteProxy
    other: WriteProxy
    client: SessionClient
    answers: list[Frame] = attrs.field(factory=list)

    async def move(self) -> None:
        """Hand the partition to the other proxy."""
        offers: list[Offer] = await self.owner.held._offers.list_live()  # noqa: SLF001
        (target,) = (one for one in offers if one.owner == "proxy proxy-2 in us-east")
        await self.owner.held.hand_over({f"{STREAM}#0": target})

    async def move_slowly(self) -> None:
        """Likewise, while what the owner has in flight is not answered for a while."""
        network, nodes = self.world.cluster.network, list(self.world.cluster.nodes)
        for node_id in nodes:
            network.cut("proxy-1", node_id)
        await trio.sleep(PACE_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.move)
            await trio.sleep(20 * PACE_S)
            for node_id in nodes:
                network.mend("proxy-1", node_id)

    async def append_on(self, *, is_numbered: bool = False) -> None:
        """Send frames at a steady pace."""
        with suppress(SocketClosedError):  # The session ends as its partition moves.
            for number in range(FRAMES_COUNT):
                await self.send(number, is_numbered=is_numbered)
                await trio.sleep(PACE_S)

    async def send(self, number: int, *, is_numbered: bool) -> None:
        """Send one frame."""
        seq = {"seq": number} if is_numbered else {}
        await self.client.send(id=number, value=f"{number}", **seq)


@asynccontextmanager
async def open_moving(query: str = "") -> AsyncIterator[Moving]:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_session(world.cluster, owner, f"{APPEND}{query}") as client,
    ):
        await client.receive()
        async with open_proxy(world.cluster, "proxy-2", "us-east") as other:
            world.cluster.store.round_trip_s = lambda: 0.02
            yield Moving(world, owner, other, client)


async def test_a_forwarded_session_goes_on_at_the_new_owner_and_every_answer_is_true(
    autojump_clock: MockClock,
) -> None:
    async with open_moving("?redirect=forward") as moving, trio.open_nursery() as nursery:
        nursery.start_soon(moving.append_on)
        for number in range(FRAMES_COUNT):
            if number == 50:
                nursery.start_soon(moving.move)
            moving.answers.append(await moving.client.receive())
        read = await values_of(moving.world.log)
        owned_counts = len(moving.owner.held), len(moving.other.held)

    stored = [one for one in moving.answers if one["type"] == "ack"]
    assert [one["id"] for one in moving.answers] == list(range(FRAMES_COUNT))
    assert {one.get("outcome") for one in moving.answers} <= {None, "refused"}
    assert [one["sequence"] for one in stored] == list(range(len(stored)))
    assert read == [str(one["id"]).encode() for one in stored]
    assert (moving.answers[-1]["type"], owned_counts) == ("ack", (0, 1))


async def test_no_numbered_record_overtakes_one_that_the_old_owner_refused(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_moving("?redirect=forward&writer=till-7") as moving,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(moving.append_on, is_numbered=True))
        for number in range(FRAMES_COUNT):
            if number == 50:
                nursery.start_soon(moving.move_slowly)
            moving.answers.append(await moving.client.receive())
        left = [at for at, one in enumerate(moving.answers) if one["type"] != "ack"]
        for number in left:
            await moving.send(number, is_numbered=True)
        again = [await moving.client.receive() for _ in left]
        read = await values_of(moving.world.log)
        owned_counts = len(moving.owner.held), len(moving.other.held)

    assert {one.get("code") for one in moving.answers} == {None, 429, 503}
    assert [one["type"] for one in again] == ["ack"] * len(left)
    assert read == [b"%d" % number for number in range(FRAMES_COUNT)]
    assert owned_counts == (0, 1)


async def test_frames_that_come_while_the_new_owner_is_looked_up_are_answered(
    autojump_clock: MockClock,
) -> None:
    """They are refused for certain: without an answer, a client would take them for unknown."""
    async with open_moving() as moving, trio.open_nursery() as nursery:
        nursery.start_soon(moving.append_on)
        await trio.sleep(50 * PACE_S)
        nursery.start_soon(moving.move)
        frames = await moving.client.receive_all()
        read = await values_of(moving.world.log)
        nursery.cancel_scope.cancel(reason="the session is over")

    *answers, moved = frames
    refused = [one for one in answers if one["type"] == "error"]
    assert moved["code"] in (302, 503)
    assert "id" not in moved
    assert len(answers) < FRAMES_COUNT
    assert [one["id"] for one in answers] == list(range(len(answers)))
    assert {one["outcome"] for one in refused} == {"refused"}
    assert read == [str(one["id"]).encode() for one in answers if one["type"] == "ack"]
    assert len(refused) > 3


async def test_a_writer_that_asks_while_the_new_owner_is_looked_up_is_told_to_ask_again(
    autojump_clock: MockClock,
) -> None:
    answers: list[StandingTold | RequestRefused] = []
    async with (
        open_moving() as moving,
        open_batches(moving.world.cluster, moving.owner, STREAM) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(moving.move)
        for request in range(FRAMES_COUNT):
            await trio.sleep(PACE_S)
            answer = await client.ask(AskStanding(CHANNEL, request, b"w", None))
            if isinstance(answer, ChannelClosed):
                break
            assert isinstance(answer, StandingTold | RequestRefused)
            answers.append(answer)

    refused = [one for one in answers if isinstance(one, RequestRefused)]
    assert len(answers) > len(refused) > 3
    assert [one for one in refused if not error_of(one.error).retriable] == []
