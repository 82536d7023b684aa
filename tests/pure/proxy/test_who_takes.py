"""Several proxies agree on the one that takes a partition, whichever is asked."""

import trio
from trio.testing import MockClock

from geolog.client.log import Log
from sim.in_process import InProcessCluster
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import STREAM, open_world

APPEND = "/v1/streams/shop/orders/append"


async def owner_of(log: Log) -> str | None:
    (partition,) = (await log.describe_stream(STREAM)).partition_list
    return partition.owner


async def append_as(cluster: InProcessCluster, host: str, values: list[bytes]) -> None:
    async with (
        cluster.open_client("us-east", host=host, via="proxy") as log,
        log.open_writer(STREAM, writer_id=host) as writer,
    ):
        for value in values:
            await writer.append(value)


async def test_writers_that_ask_different_proxies_find_one_owner(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as one,
        open_proxy(world.cluster, "proxy-2", "us-east") as two,
        open_proxy(world.cluster, "proxy-3", "us-east") as three,
    ):
        async with trio.open_nursery() as nursery:
            for number in range(9):
                host = f"client-{number}"
                nursery.start_soon(append_as, world.cluster, host, [b"v"] * 10)
        owned_count = [len(proxy.held) for proxy in (one, two, three)]
        async with world.log.open_reader(STREAM) as reader:
            read = [record async for record in reader]

    assert sorted(owned_count) == [0, 0, 1]
    assert len(read) == 90
    assert {record.dlsn.segment for record in read} == {1}


async def test_a_proxy_that_cannot_be_reached_is_passed_over(
    autojump_clock: MockClock,
) -> None:
    """Whichever of the two ranks first: one of the streams is its."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", balance_pause_s=3600) as one,
        open_proxy(world.cluster, "proxy-2", "us-east", balance_pause_s=3600) as two,
        world.cluster.open_client("us-east", host="client", via="proxy") as log,
    ):
        world.cluster.network.cut("client", "proxy-2")
        for number in range(8):
            await log.create_stream(f"shop/s{number}", survive="1 region")
            async with log.open_writer(f"shop/s{number}") as writer:
                await writer.append(b"v")
        owned_count = len(one.held), len(two.held)

    assert owned_count == (8, 0)


async def test_a_session_is_sent_to_the_proxy_that_takes_the_partition(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as one,
        open_proxy(world.cluster, "proxy-2", "us-east") as two,
    ):
        sent_away = []
        for proxy in (one, two):
            async with open_session(world.cluster, proxy, APPEND) as client:
                frame = await client.receive()
                if frame["type"] == "error":
                    sent_away.append((proxy, frame))
        ((asked, moved),) = sent_away
        chosen = two if asked is one else one
        avoiding = f"{APPEND}?avoid={chosen.address}"
        async with open_session(world.cluster, chosen, avoiding) as client:
            at_chosen = await client.receive()

    assert (moved["code"], moved["location"]) == (302, f"ws://{chosen.address}{APPEND}")
    assert at_chosen["owner"] == f"proxy {chosen.proxy_id} in us-east"


async def test_the_next_owner_is_in_the_dead_ones_region_though_clients_are_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        proxies = {
            proxy_id: await nursery.start(RunningProxy(world.cluster, proxy_id, region).run)
            for proxy_id, region in [("p1", "us-east"), ("p2", "us-east"), ("p3", "eu-west")]
        }
        await append_as(world.cluster, "near", [b"v"])
        owner = await owner_of(world.log) or ""
        await proxies[owner.split()[1]].kill()
        async with (
            world.cluster.open_client("eu-west", host="far", via="proxy") as far,
            far.open_writer(STREAM) as writer,
        ):
            await writer.append(b"v")
        successor = await owner_of(world.log) or ""
        nursery.cancel_scope.cancel(reason="the test is over")

    assert successor != owner
    assert successor.endswith(" in us-east")
