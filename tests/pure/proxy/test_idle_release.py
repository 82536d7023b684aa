"""A partition to which nobody appends is given up, while its sessions stay."""

import random

import trio
from trio.testing import MockClock

from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import STREAM, open_world, values_of

APPEND = "/v1/streams/shop/orders/append"
IDLE_S = 60.0
"""Time until a partition is given up."""


async def test_a_session_stays_and_its_next_append_takes_the_partition_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        answers = [await client.ask(id=1, value="one", seq=1)]
        await trio.sleep(2 * IDLE_S)
        held_count = len(proxy.held)
        answers.append(await client.ask(id=2, value="two", seq=2))
        answers.append(await client.ask(id=3, value="one", seq=1, writer="till-7"))
        takeovers_count = proxy.held.takeovers_count
        read = await values_of(world.log)

    assert held_count == 0
    assert [one["sequence"] for one in answers] == [0, 1, 0]
    assert takeovers_count == 2
    assert [one["duplicate"] for one in answers] == [False, False, True]
    assert read == [b"one", b"two"]


async def test_a_session_whose_proxy_takes_the_partition_again_is_not_forwarded(
    autojump_clock: MockClock,
) -> None:
    """An append that is forwarded is answered only once it is durable."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
    ):
        await client.receive()
        answers = []
        for number in range(3):
            answers.append(await client.ask(value="v", seq=number, ack="received"))
            await trio.sleep(2 * IDLE_S)

    assert [one["sequence"] for one in answers] == [0, 1, 2]
    assert [one.get("provisional") for one in answers] == [True] * 3


async def test_a_client_of_batches_keeps_its_channel_and_knows_every_outcome(
    autojump_clock: MockClock,
) -> None:
    """Without an id, a batch that was taken twice or not at all would show."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
        world.cluster.open_client("us-east", host="client", via="proxy") as log,
        log.open_writer(STREAM) as writer,
    ):
        held_counts = []
        for number in range(3):
            pendings = [writer.append_nowait(b"%d %d" % (number, one)) for one in range(5)]
            for pending in pendings:
                await pending.wait()
            await trio.sleep(2 * IDLE_S)
            held_counts.append(len(proxy.held))
        read = await values_of(world.log)
        takeovers_count = proxy.held.takeovers_count

    assert held_counts == [0, 0, 0]
    assert takeovers_count == 3
    assert read == [b"%d %d" % (number, one) for number in range(3) for one in range(5)]


async def test_appends_that_come_while_a_partition_is_given_up_are_known_too(
    autojump_clock: MockClock,
) -> None:
    """The pauses are about as long as it takes to be idle."""
    rng = random.Random(1)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=0.05) as proxy,
        world.cluster.open_client("us-east", host="client", via="proxy") as log,
        log.open_writer(STREAM) as writer,
    ):
        world.cluster.store.round_trip_s = lambda: 0.02  # So that a release takes its time.
        for number in range(60):
            await writer.append(b"%d" % number)
            await trio.sleep(rng.uniform(0.04, 0.10))
        read = await values_of(world.log)
        takeovers_count = proxy.held.takeovers_count

    assert read == [b"%d" % number for number in range(60)]
    assert takeovers_count > 10


async def test_the_next_append_may_be_taken_by_another_proxy(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.ask(value="one")
        await trio.sleep(2 * IDLE_S)
        async with (
            open_proxy(world.cluster, "proxy-2", "eu-west") as other,
            open_session(world.cluster, other, APPEND) as far,
        ):
            await far.receive()
            await far.ask(value="two")
            answer = await client.ask(value="three")
            owned_counts = len(proxy.held), len(other.held)

    assert answer["sequence"] == 2
    assert owned_counts == (0, 1)


async def test_a_partition_with_appends_now_and_then_is_kept(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        for number in range(5):
            await client.ask(value=f"{number}")
            await trio.sleep(0.7 * IDLE_S)
        takeovers_count = proxy.held.takeovers_count

    assert takeovers_count == 1


async def test_a_client_may_leave_while_its_partition_rests(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=IDLE_S) as proxy,
    ):
        async with open_session(world.cluster, proxy, APPEND) as client:
            await client.receive()
            await client.ask(value="one")
            await trio.sleep(2 * IDLE_S)
        await trio.sleep(1.0)
        sessions_count = proxy.endpoint.sessions_count

    assert sessions_count == 0
