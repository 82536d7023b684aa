"""Streams of every policy in a whole cluster, and regions forbidden while it runs."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.admin.placement.region_switches import RegionSwitches
from geolog.client.log import LogConfig
from geolog.ledger.nodes.node_pool import PoolConfig
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.placement_switches import change_switches
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import STREAM, append_each, numbered, open_world, values_of
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.switches import PlacementSwitches

NINE = {"us-east": 3, "eu-west": 3, "ap-northeast": 3}


async def turn(cluster: InProcessCluster, *forbidden: str) -> None:
    """Forbid placement in exactly these regions, as an operator."""
    async with cluster.store.open_session(6.0) as metadata:
        switches = PlacementSwitches(frozenset(forbidden))
        await change_switches(metadata, "default", lambda _: switches)


async def regions_of(log: geolog.Log) -> list[set[str]]:
    """The regions of each segment's last ensemble."""
    return [set(one.regions) for one in await log.list_segments(STREAM)]


@pytest.mark.parametrize(
    ("wanted", "quorums", "policy"),
    [
        ({"survive": "1 node"}, (3, 3, 2, 1), "rack_aware"),
        ({"survive": "1 rack"}, (3, 3, 2, 1), "rack_aware"),
        ({"survive": "1 region"}, (6, 6, 4, 2), "region_aware"),
        ({"survive": "1 region", "durability": "count"}, (6, 6, 4, 2), "region_aware"),
        ({"policy": "default"}, (3, 3, 2, 1), "default"),
        ({"policy": "local_node"}, (1, 1, 1, 1), "local_node"),
        ({"policy": "zone_aware", "min_regions": 2}, (6, 6, 4, 2), "zone_aware"),
        ({}, (6, 6, 4, 2), "region_aware"),
        ({"ack_quorum": 3}, (6, 6, 3, 2), "region_aware"),
        ({"policy": "rack_aware", "ensemble_size": 5}, (5, 5, 3, 1), "rack_aware"),
    ],
)
async def test_a_stream_is_made_written_and_read_under_each_policy(
    wanted: dict[str, object], quorums: tuple[int, int, int, int], policy: str
) -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        made = await log.create_stream(STREAM, **wanted)  # type: ignore[arg-type]
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        (segment,) = await log.list_segments(STREAM)

        found = (made.ensemble_size, made.write_quorum, made.ack_quorum, made.min_regions)
        assert (found, made.policy) == (quorums, policy)
        assert len(made.explanation) >= 3
        assert segment.adherence == "strict"
        if policy in ("rack_aware", "local_node"):  # Its own region has enough racks.
            assert "eu-west" in segment.regions
        assert await values_of(log) == numbered(5)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"survive": "2 regions"}, "Possible now: '1 region'"),
        ({"survive": "1 region", "policy": "rack_aware"}, "needs policy 'region_aware'"),
        ({"policy": "rack_aware", "min_regions": 2}, "use min_regions 1, or policy 're"),
        ({"policy": "local_node", "ensemble_size": 2}, "one copy, on one node"),
        ({"policy": "regoin_aware"}, "did you mean 'region_aware'"),
        ({"policy": "zone_aware", "ensemble_size": 4, "write_quorum": 3}, "6 is"),
        ({"durability": "copies"}, "use 'regions' or 'count'"),
    ],
)
async def test_an_impossible_stream_is_refused_with_the_nearest_possible(
    wanted: dict[str, object], message: str
) -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        with pytest.raises((InvalidArgumentError, NotEnoughNodesError), match=message):
            await log.create_stream(STREAM, **wanted)  # type: ignore[arg-type]

        assert await log.list_streams() == []


async def test_a_stream_given_some_sizes_is_promised_to_survive_a_region() -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        some = await log.create_stream(STREAM, ack_quorum=3)
        tight = await log.create_stream("shop/tight", ack_quorum=5)
        all_given = await log.create_stream(
            "shop/given", ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
        )

        assert (some.survive, some.survives_region) == ("1 region", True)
        assert (tight.survive, tight.survives_region) == (None, False)
        assert "no ack set is left" in tight.survives_region_why_not
        assert any("does NOT survive losing a region" in line for line in tight.explanation)
        assert (all_given.survive, all_given.survives_region) == (None, True)


async def test_sizes_left_out_do_not_count_on_a_forbidden_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await turn(cluster, "ap-northeast")
        made = await log.create_stream(STREAM, ack_quorum=2)

        assert made.survives_region is False
        assert "nodes in 3 regions are needed; there are 2" in made.survives_region_why_not
        assert "placement is forbidden in ap-northeast" in made.survives_region_why_not


async def test_an_open_ledger_leaves_a_forbidden_region_and_comes_back(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(regions=NINE) as world, world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(3))
        await turn(world.cluster, "ap-northeast")
        await trio.sleep(2)
        await append_each(writer, numbered(3, start=3))
        await turn(world.cluster)
        await trio.sleep(2)
        await append_each(writer, numbered(3, start=6))

        everywhere = set(NINE)
        assert await regions_of(world.log) == [
            everywhere,
            everywhere - {"ap-northeast"},
            everywhere,
        ]
        assert await values_of(world.log) == numbered(9)
        told = [one.getMessage() for one in caplog.records if " placement is " in one.message]
        assert [one.partition("placement is ")[2].split(" ")[0] for one in told] == [
            "SOFT",
            "STRICT",
        ]


async def test_a_lost_member_is_not_replaced_by_a_node_of_a_forbidden_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 2, "eu-west": 1, "ap-northeast": 1}) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, ensemble_size=2, ack_quorum=1)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            (before,) = await log.list_segments(STREAM)
            (lost,) = (node for node in before.ensemble if not node.startswith("us-east"))
            (free,) = {"eu-west-1", "ap-northeast-1"} - {lost}
            await turn(cluster, free.removesuffix("-1"))
            await cluster.kill(lost)
            await trio.sleep(30)
            await append_each(writer, numbered(3, start=3))

        after = (await log.list_segments(STREAM))[-1].ensemble
        assert set(after) == {"us-east-1", "us-east-2"}
        assert await values_of(log) == numbered(6)


async def test_a_lost_member_of_a_rack_aware_stream_is_replaced_on_a_rack_of_its_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 4, "eu-west": 4}) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await log.create_stream(STREAM, survive="1 rack")
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            (before,) = await log.list_segments(STREAM)
            await cluster.kill(before.ensemble[1])
            await trio.sleep(15)
            await append_each(writer, numbered(3, start=3))
            after = (await log.list_segments(STREAM))[-1]

        assert set(before.regions) == set(after.regions) == {"eu-west"}
        assert before.ensemble[1] not in after.ensemble
        assert after.adherence == "strict"
        assert await values_of(log) == numbered(6)


async def test_records_in_a_forbidden_region_can_be_read_even_if_nothing_can_be_written(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 1, "eu-west": 2, "ap-northeast": 1}) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, ensemble_size=3, ack_quorum=2, min_regions=2)
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
        await turn(cluster, "eu-west")
        with pytest.raises(NotEnoughNodesError, match="placement is forbidden in eu-west"):
            async with log.open_writer(STREAM):
                pass

        assert await values_of(log) == numbered(3)


async def test_a_region_forbidden_before_the_writer_opens_gets_nothing() -> None:
    async with open_world(regions=NINE) as world:
        await turn(world.cluster, "us-east")
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))

        assert await regions_of(world.log) == [{"eu-west", "ap-northeast"}]


async def test_a_stream_of_two_regions_cannot_open_with_only_one_region_allowed() -> None:
    async with open_world(regions=NINE) as world:
        await turn(world.cluster, "us-east", "eu-west")

        with pytest.raises(NotEnoughNodesError, match="placement is forbidden in eu-west, us"):
            async with world.log.open_writer(STREAM):
                pass


async def test_a_promise_does_not_count_on_a_forbidden_region() -> None:
    async with open_world(regions=NINE) as world:
        await turn(world.cluster, "us-east")

        with pytest.raises(NotEnoughNodesError, match="Placement is forbidden in us-east"):
            await world.log.create_stream("shop/other", survive="1 region")


async def test_a_promise_uses_the_locations_of_a_table(tmp_path: Path) -> None:
    table = tmp_path / "locations.toml"
    table.write_text('[locations]\n"ap-*" = "/eu-west/rack-9"\n')
    placement = PlacementConfig(locations=table)
    config = LogConfig(pool=PoolConfig(placement=placement))
    async with (
        open_in_process_cluster(NINE) as cluster,
        cluster.open_client("us-east", config=config) as log,
    ):
        regions = {one.region: one.nodes for one in await RegionSwitches(log.access).regions()}
        with pytest.raises(NotEnoughNodesError, match=r"nodes are up in 2 \(eu-west, us-east"):
            await log.create_stream(STREAM, survive="1 region")

        assert regions == {"us-east": 3, "eu-west": 6}
