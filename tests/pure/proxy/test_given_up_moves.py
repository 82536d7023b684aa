"""A channel whose partition was about to move: the client sends again what came too late."""

import trio
from trio.testing import MockClock

from geolog.wire.batch import seal_batch
from geolog.wire.session.channel_messages import BatchPlaced, ChannelClosed
from tests.pure.proxy.batches_client import open_batches
from tests.pure.proxy.proxies import open_proxy
from tests.pure.whole.clusters import STREAM, open_world, values_of


async def test_no_batch_is_appended_behind_one_that_came_too_late(
    autojump_clock: MockClock,
) -> None:
    """The move is given up, and the owner goes on; but the client sends both again."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_batches(world.cluster, proxy, STREAM) as client,
    ):
        ((_, writer),) = proxy.held._working()  # noqa: SLF001 - The owner in the proxy.
        for node_id in world.cluster.nodes:
            world.cluster.network.cut("proxy-1", node_id)
        await client.send_batch(seal_batch([b"in time"], created_us=1))
        await trio.sleep(0.1)
        with trio.move_on_after(0.2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.end)
                await trio.sleep(0.1)
                await client.send_batch(seal_batch([b"too late"], created_us=1))
        writer.on_handed_over()
        await client.send_batch(seal_batch([b"behind it"], created_us=1))
        await trio.sleep(0.1)
        for node_id in world.cluster.nodes:
            world.cluster.network.mend("proxy-1", node_id)
        answers = [await client.receive(), await client.receive()]

        assert isinstance(answers[0], BatchPlaced)
        assert isinstance(answers[1], ChannelClosed)
        assert answers[1].taken_count == 1
        assert await values_of(world.log) == [b"in time"]
