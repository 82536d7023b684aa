"""What streams do on two regions, of which one is lost: as the page about placement says."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.in_process import InProcessCluster, open_in_process_cluster
from topology.errors import NotEnoughNodesError

STREAM = "shop/orders"
TWO = {"us-east": 3, "eu-west": 3}


async def append(log: geolog.Log, *values: bytes) -> None:
    async with log.open_writer(STREAM) as writer:
        for value in values:
            await writer.append(value)


async def values(cluster: InProcessCluster, region: str) -> list[bytes]:
    """Values that a client which knows nothing yet reads there."""
    async with cluster.open_client(region) as log, log.open_reader(STREAM) as reader:
        return [record.value async for record in reader]


async def test_the_loss_of_a_region_cannot_be_promised() -> None:
    async with (
        open_in_process_cluster(TWO) as cluster,
        cluster.open_client("us-east") as log,
    ):
        with pytest.raises(NotEnoughNodesError, match="needs nodes in at least 3 regions"):
            await log.create_stream(STREAM, survive="1 region")
        made = await log.create_stream(STREAM, ensemble_size=4, min_regions=2)

    assert (made.survive, made.survives_region) == (None, False)
    assert (made.write_quorum, made.ack_quorum, made.min_regions) == (4, 3, 2)


async def test_with_two_min_regions_nothing_is_lost_and_appends_wait_for_the_other_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(TWO) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, ensemble_size=4, min_regions=2)
        await append(log, b"one", b"two")
        await cluster.kill_region("eu-west")
        await trio.sleep(10)
        alone = await values(cluster, "us-east")
        with pytest.raises((NotEnoughNodesError, geolog.UnavailableError)):
            await append(log, b"refused")
        await cluster.restart_region("eu-west")
        await trio.sleep(10)
        await append(log, b"three")
        together = await values(cluster, "eu-west")

    assert alone == [b"one", b"two"]
    assert together == [b"one", b"two", b"three"]


async def test_a_home_goes_on_without_the_other_region(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(TWO) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, mode="regional", home="us-east", relay_to=["eu-west"])
        await cluster.kill_region("eu-west")
        await trio.sleep(10)
        await append(log, b"one")

        assert await values(cluster, "us-east") == [b"one"]
