"""A `regional` stream has its copies and its owners in its home region alone."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import ended_by

STREAM = "shop/carts"
REGIONS = {"us-east": 4, "eu-west": 3}
APPEND = f"/v1/streams/{STREAM}/append"
_SESSION_GONE_S = 10.0


async def create(cluster: InProcessCluster, region: str) -> None:
    async with cluster.open_client(region) as log:
        await log.create_stream(STREAM, mode="regional", survive="1 rack")


async def test_it_appends_while_its_home_is_cut_off_from_all_other_regions(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        await cluster.kill_region("eu-west")
        async with (
            cluster.open_client("us-east") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"v")
            (segment,) = await log.list_segments(STREAM)

    assert set(segment.regions) == {"us-east"}
    assert len(segment.ensemble) == 3
    assert segment.adherence == "strict"


async def test_a_lost_member_is_replaced_by_a_node_of_the_home(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        async with (
            cluster.open_client("us-east") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"v")
            (segment,) = await log.list_segments(STREAM)
            for node_id in segment.ensemble[:2]:
                await cluster.kill(node_id)
                await cluster.start(node_id)
            await cluster.kill(segment.ensemble[0])
            await trio.sleep(2 * _SESSION_GONE_S)
            await writer.append(b"w")
            last = (await log.list_segments(STREAM))[-1]

    assert set(last.regions) == {"us-east"}
    assert segment.ensemble[0] not in last.ensemble


async def test_a_direct_writer_elsewhere_is_refused_before_it_takes_anything(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        async with cluster.open_client("eu-west") as log:
            with ended_by(geolog.InvalidArgumentError) as ended:
                async with log.open_writer(STREAM):
                    pass
            (partition,) = (await log.describe_stream(STREAM)).partition_list

    assert "append through a write proxy, or from us-east" in str(ended.error)
    assert partition.owner_epoch == 0


async def test_its_home_is_a_region_of_the_cluster(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("eu-west") as log,
        cluster.open_client(None) as nowhere,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match="regions are eu-west, us-east"):
            await log.create_stream(STREAM, mode="regional", home="mars", survive="1 node")
        with pytest.raises(geolog.InvalidArgumentError, match="needs a home region"):
            await nowhere.create_stream(STREAM, mode="regional", survive="1 node")
        with pytest.raises(geolog.InvalidArgumentError, match="'global' has no home"):
            await log.create_stream(STREAM, home="us-east", survive="1 region")
        with pytest.raises(geolog.InvalidArgumentError, match="which is in one region"):
            await log.create_stream(STREAM, mode="regional", survive="1 region")
        with pytest.raises(geolog.InvalidArgumentError, match="use 'rack_aware'"):
            await log.create_stream(STREAM, mode="regional", policy="region_aware")
        with pytest.raises(geolog.InvalidArgumentError, match="min_regions 2 is impossible"):
            await log.create_stream(STREAM, mode="regional", min_regions=2)
        found = await log.create_stream(STREAM, mode="regional", home="us-east")

    assert (found.mode, found.home, found.policy) == ("regional", "us-east", "rack_aware")
    assert found.survives_region is False
    assert found.survives_region_why_not == "all copies are in region us-east"


async def test_too_few_racks_at_home_are_told_with_what_is_possible(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 2, "eu-west": 4}) as cluster,
        cluster.open_client("us-east") as log,
    ):
        with pytest.raises(geolog.NotEnoughNodesError, match=r"in region us-east: .* 3 racks"):
            await log.create_stream(STREAM, mode="regional", survive="1 rack")


async def test_a_proxy_elsewhere_sends_appends_to_the_home(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        async with (
            open_proxy(cluster, "near", "eu-west") as near,
            open_proxy(cluster, "home", "us-east") as home,
        ):
            async with open_session(cluster, near, APPEND) as client:
                moved = await client.receive()
            async with (
                cluster.open_client("eu-west", host="application", via="proxy") as log,
                log.open_writer(STREAM) as writer,
            ):
                receipt = await writer.append(b"v")
            owned_count = len(near.held), len(home.held)

    assert (moved["code"], moved["location"]) == (302, f"ws://{home.address}{APPEND}")
    assert receipt.sequence == 0
    assert owned_count == (0, 1)


async def test_without_a_proxy_at_home_appends_are_refused_for_now(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        async with (
            open_proxy(cluster, "near", "eu-west") as near,
            open_session(cluster, near, APPEND) as client,
        ):
            refused = await client.receive()

    assert (refused["code"], refused["outcome"], refused["retriable"]) == (519, "refused", True)


async def test_a_proxy_that_drains_hands_nothing_to_another_region(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await create(cluster, "us-east")
        async with open_proxy(cluster, "near", "eu-west") as near:
            async with (
                open_proxy(cluster, "home", "us-east"),
                cluster.open_client("us-east", via="proxy") as log,
                log.open_writer(STREAM) as writer,
            ):
                await writer.append(b"v")
            owned_count = len(near.held)
            async with cluster.open_client("us-east", host="reader") as log:
                (partition,) = (await log.describe_stream(STREAM)).partition_list

    assert owned_count == 0
    assert not partition.owner_is_alive
