"""The matrix of round trips between regions, as proxies measure it, or the command itself."""

import trio
from trio.testing import MockClock

from geolog.admin.region_latency import HERE, LatencyMatrix, RegionLatency
from sim.in_process import InProcessCluster
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import open_proxy
from tests.pure.proxy.test_http_port import samples_of
from tests.pure.whole.clusters import STREAM, open_world

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
FAR_S = {
    frozenset({"us-east", "eu-west"}): 0.04,
    frozenset({"us-east", "ap-northeast"}): 0.075,
    frozenset({"eu-west", "ap-northeast"}): 0.11,
}


def spread(cluster: InProcessCluster) -> None:
    """Put the regions apart; hosts are named after them, others are in us-east."""

    def region_of(host: str) -> str:
        return next((one for one in REGIONS if one in host), "us-east")

    def latency_s(one: str, other: str) -> float:
        return FAR_S.get(frozenset({region_of(one), region_of(other)}), 0.0002)

    cluster.network.latency_s = latency_s


def trips(matrix: LatencyMatrix) -> dict[tuple[str, str], float | None]:
    return {
        (row.region, one.region): None if one.rtt_s is None else round(one.rtt_s, 3)
        for row in matrix.rows
        for one in row.to
    }


async def test_each_row_is_measured_in_its_region(autojump_clock: MockClock) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        open_proxy(world.cluster, "us-east-proxy", "us-east"),
        open_proxy(world.cluster, "eu-west-proxy", "eu-west"),
    ):
        spread(world.cluster)
        await trio.sleep(20)
        matrix = await RegionLatency(world.log.access).matrix()

    assert matrix.regions == sorted(REGIONS)
    assert [(row.region, row.measured_by) for row in matrix.rows] == [
        ("eu-west", "eu-west-proxy"),
        ("us-east", "us-east-proxy"),
    ]
    assert trips(matrix) == {
        ("eu-west", "ap-northeast"): 0.22,
        ("eu-west", "eu-west"): 0.0,
        ("eu-west", "us-east"): 0.08,
        ("us-east", "ap-northeast"): 0.15,
        ("us-east", "eu-west"): 0.08,
        ("us-east", "us-east"): 0.0,
    }


async def test_a_region_that_is_cut_off_is_silent(autojump_clock: MockClock) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        open_proxy(world.cluster, "us-east-proxy", "us-east"),
    ):
        await trio.sleep(5)
        for node in world.cluster.nodes_of("eu-west"):
            world.cluster.network.cut("us-east-proxy", node.node_id)
        await trio.sleep(10)
        latency = RegionLatency(world.log.access)
        (cut,) = (await latency.matrix()).rows
        await trio.sleep(60)
        (later,) = (await latency.matrix()).rows

    assert [(one.region, one.is_silent) for one in cut.to] == [
        ("ap-northeast", False),
        ("eu-west", True),
        ("us-east", False),
    ]
    assert cut.to[1].rtt_s is not None
    assert later.to[1].rtt_s is None, "what was measured before the cut is too old"


async def test_a_proxy_that_does_not_answer_is_passed_over(autojump_clock: MockClock) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        open_proxy(world.cluster, "us-east-a", "us-east"),
        open_proxy(world.cluster, "us-east-b", "us-east"),
    ):
        world.cluster.network.cut("client", "us-east-a")
        await trio.sleep(3)
        matrix = await RegionLatency(world.log.access).matrix()

    assert [row.measured_by for row in matrix.rows] == ["us-east-b"]


async def test_without_a_proxy_the_own_row_is_measured(autojump_clock: MockClock) -> None:
    async with open_world(regions=REGIONS) as world:
        spread(world.cluster)
        matrix = await RegionLatency(world.log.access).matrix()
        async with world.cluster.open_client(None, host="somewhere") as log:
            nowhere = await RegionLatency(log.access).matrix()

    assert [row.region for row in matrix.rows] == ["us-east"]
    assert trips(matrix)["us-east", "ap-northeast"] == 0.15
    assert [row.region for row in nowhere.rows] == [HERE]
    assert nowhere.regions == sorted(REGIONS)


async def test_a_proxy_counts_reads_by_the_region_that_served_them(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        open_proxy(world.cluster, "us-east-proxy", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        path = f"/v1/streams/{STREAM}"
        await client.ask("POST", f"{path}/append", b'{"value":"one"}')
        await client.ask("GET", f"{path}/read")
        found = samples_of((await client.ask("GET", "/metrics")).body)

    assert found['geolog_read_duration_seconds_count{served_from="us-east"}'] >= 1
    assert found['geolog_read_speculative_wins_total{winner_region="us-east"}'] == 0
    assert found['geolog_read_speculative_total{reason="late"}'] == 0
    assert found['geolog_read_replica_demotions_total{reason="silent"}'] == 0
    assert found["geolog_read_extra_bytes_total"] == 0


async def test_a_proxy_shows_its_row_as_metrics_too(autojump_clock: MockClock) -> None:
    async with (
        open_world(regions=REGIONS) as world,
        open_proxy(world.cluster, "us-east-proxy", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        spread(world.cluster)
        await trio.sleep(20)
        found = samples_of((await client.ask("GET", "/metrics")).body)

    name = 'geolog_region_rtt_seconds{from="us-east",to="eu-west"}'
    assert round(found[name], 3) == 0.08
