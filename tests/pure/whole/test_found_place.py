"""Clients that nobody told their region find it by round trips, and read from there."""

import trio
from trio.testing import MockClock

import geolog
from geolog.ledger.replicas.region_prober import GONE_KEPT_S, RegionProber
from geolog.ledger.replicas.region_search import RegionSearch
from sim.in_process import InProcessCluster
from tests.pure.whole.clusters import STREAM, World, append_each, open_world

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
FAR_S = {
    frozenset({"us-east", "eu-west"}): 0.04,
    frozenset({"us-east", "ap-northeast"}): 0.075,
    frozenset({"eu-west", "ap-northeast"}): 0.11,
}


def spread(cluster: InProcessCluster, home: str) -> None:
    """Put the regions apart; every host that is not a node is in `home`."""

    def region_of(host: str) -> str:
        return next((one for one in REGIONS if host.startswith(one)), home)

    def latency_s(one: str, other: str) -> float:
        return FAR_S.get(frozenset({region_of(one), region_of(other)}), 0.0002)

    cluster.network.latency_s = latency_s


async def write_some(world: World) -> None:
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, [b"%d" % number for number in range(5)])


async def read_all(log: geolog.Log) -> list[bytes]:
    async with log.open_reader(STREAM) as reader:
        return [record.value async for record in reader]


def place_of(log: geolog.Log) -> str | None:
    place = log.access.replicas.order.local
    return None if place is None else place.region


async def test_a_client_without_a_region_finds_the_nearest(autojump_clock: MockClock) -> None:
    async with open_world(regions=REGIONS) as world:
        await write_some(world)
        spread(world.cluster, "eu-west")
        async with world.cluster.open_client(None, host="somewhere") as log:
            before = place_of(log)
            values = await read_all(log)
            await trio.sleep(3)
            after = place_of(log)
            again = await read_all(log)

    assert (before, after) == (None, "eu-west")
    assert values == again
    assert log.region is None, "it was found, not told"


async def test_a_client_that_reads_nothing_probes_nothing(autojump_clock: MockClock) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        world.cluster.open_client(None, host="somewhere") as log,
    ):
        await log.describe_stream(STREAM)
        await trio.sleep(3)

        assert log.access.pool.links() == []


async def test_a_region_that_is_down_holds_up_no_search(autojump_clock: MockClock) -> None:
    async with open_world(regions=REGIONS) as world:
        await write_some(world)
        spread(world.cluster, "us-east")
        for node in world.cluster.nodes_of("us-east"):
            world.cluster.network.cut("somewhere", node.node_id)
        async with world.cluster.open_client(None, host="somewhere") as log:
            await read_all(log)
            await trio.sleep(20)

            assert place_of(log) == "eu-west", "the nearest that answers"


async def test_a_place_is_looked_for_again_after_a_while(autojump_clock: MockClock) -> None:
    async with open_world(regions=REGIONS) as world:
        spread(world.cluster, "us-east")
        async with (
            world.cluster.open_client(None, host="somewhere") as log,
            trio.open_nursery() as nursery,
        ):
            replicas = log.access.replicas
            search = RegionSearch(replicas, RegionProber(replicas, log.access.rng))
            replicas.order.place_wanted.set()
            nursery.start_soon(search.run)
            await trio.sleep(5)
            first = place_of(log)
            spread(world.cluster, "ap-northeast")
            await trio.sleep(700)
            second = place_of(log)
            nursery.cancel_scope.cancel()

    assert (first, second) == ("us-east", "ap-northeast")


async def test_a_prober_asks_one_node_of_each_region(autojump_clock: MockClock) -> None:
    async with open_world(regions=REGIONS) as world:
        spread(world.cluster, "us-east")
        async with world.cluster.open_client("us-east", host="prober") as log:
            prober = RegionProber(log.access.replicas, log.access.rng)
            regions = await prober.probe()
            for _ in range(4):
                await prober.probe()
            links = {link.instance for link in log.access.pool.links()}
            trips = prober.round_trips
            now_s = trio.current_time()
            medians = {region: trips.median_s(region, now_s) for region in regions}

    assert regions == ["ap-northeast", "eu-west", "us-east"]
    assert len(links) == 3
    assert {region: round(median_s or 0, 3) for region, median_s in medians.items()} == {
        "ap-northeast": 0.15,
        "eu-west": 0.08,
        "us-east": 0.0,
    }


async def test_a_region_without_listed_nodes_stays_silent_for_a_while(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        world.cluster.open_client("us-east", host="prober") as log,
    ):
        prober = RegionProber(log.access.replicas, log.access.rng)
        await prober.probe()
        await world.cluster.kill_region("eu-west")
        await trio.sleep(30)
        soon = [await prober.probe() for _ in range(3)][-1]
        is_silent = prober.round_trips.is_silent("eu-west")
        await trio.sleep(GONE_KEPT_S)
        later = await prober.probe()

    assert (soon, is_silent) == (["ap-northeast", "eu-west", "us-east"], True)
    assert later == ["ap-northeast", "us-east"]


async def test_a_silent_node_gives_way_to_another_of_its_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        world.cluster.open_client("us-east", host="prober") as log,
    ):
        prober = RegionProber(log.access.replicas, log.access.rng)
        world.cluster.network.cut("prober", "eu-west-1")
        for _ in range(12):
            await prober.probe()

        assert not prober.round_trips.is_silent("eu-west")
        assert prober.round_trips.count("eu-west", trio.current_time()) > 0
