"""How one node's trouble or one writer's load affects others on the same connection."""

import random

import trio
from trio.testing import MockClock

import geolog
from geolog.client.log import LogConfig
from geolog.ledger.nodes.connection import ConnectionConfig
from geolog.ledger.nodes.node_pool import PoolConfig
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import append_each, numbered, open_world, values_of


async def end_without_a_word(
    cluster: InProcessCluster, node_id: str, *, power_loss: bool = False
) -> None:
    """Kill a node between two instructions, without any of its clean-up."""
    node = cluster.nodes[node_id]
    left = node.disk.crash(keep_unsynced=not power_loss)
    await cluster.kill(node_id)
    node.disk = left


async def test_restarted_nodes_of_an_idle_owner_learn_the_lac_again(
    autojump_clock: MockClock,
) -> None:
    """A pushed LAC is only in memory: no read would find the end before the next append."""
    async with open_world() as world, world.log.open_writer("shop/orders") as writer:
        await append_each(writer, numbered(3))
        await trio.sleep(1)
        for node_id in list(world.cluster.nodes):
            await end_without_a_word(world.cluster, node_id)
            await world.cluster.start(node_id)
            await trio.sleep(5)

        async with world.cluster.open_client("eu-west", host="other") as other:
            with trio.fail_after(5):
                assert await values_of(other) == numbered(3)


async def test_the_windows_of_many_writers_fit_through_one_connection(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(pool=PoolConfig(connection=ConnectionConfig(unsent_bytes_max=4 << 20)))
    names = [f"shop/stream-{number}" for number in range(4)]
    async with open_in_process_cluster({"eu-west": 3}) as cluster:
        cluster.network.latency_s = lambda _one, _other: 0.01
        async with cluster.open_client("eu-west", config=config) as log:
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(fill_a_window, log, name)
            for name in names:
                (segment,) = await log.list_segments(name)  # No member had to be replaced.
                assert segment.last_sequence == 19
            report = await log.verify_stream(names[0])

    assert report.is_good, report.problems


async def fill_a_window(log: geolog.Log, name: str) -> None:
    """Append at once eight times the bytes that may wait on one connection."""
    rng = random.Random(name)
    await log.create_stream(name, ensemble_size=3, write_quorum=3, ack_quorum=2)
    async with log.open_writer(name, batch_bytes=1 << 18) as writer:
        pending = [writer.append_nowait(rng.randbytes(400_000)) for _ in range(20)]
        for each in pending:
            await each.wait()


async def test_a_member_that_stays_away_does_not_cause_a_roll_every_few_seconds(
    autojump_clock: MockClock,
) -> None:
    """To metadata it is up, and there is no other node to replace it."""
    async with (
        open_in_process_cluster({"us-east": 2, "eu-west": 2, "ap-northeast": 2}) as cluster,
        cluster.open_client("us-east", host="client") as log,
    ):
        await log.create_stream(
            "shop/orders", ensemble_size=6, write_quorum=6, ack_quorum=4, min_regions=2
        )
        async with log.open_writer("shop/orders") as writer:
            cluster.network.cut("client", "us-east-1")
            for value in numbered(60):
                await writer.append(value)
                await trio.sleep(10)

            assert len(await log.list_segments("shop/orders")) == 1
            nodes_count = cluster.store.statistics().nodes_count
            await trio.sleep(600)
            assert cluster.store.statistics().nodes_count == nodes_count
