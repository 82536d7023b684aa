"""Deleting streams, at once or again after an interruption."""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import STREAM, World, ended_by, numbered, open_world

MANY = "shop/many"


async def make(world: World, partitions: int) -> None:
    await world.log.create_stream(MANY, survive="1 region", partitions=partitions)
    async with world.log.open_writer(MANY) as writer:
        for value in numbered(40):
            writer.append_nowait(value, key=value)


def nodes_in_metadata(world: World) -> set[str]:
    """All streams and ledgers in metadata."""
    paths = world.cluster.store.tree.nodes
    return {
        path
        for path in paths
        if "/streams/" in path or (f"/ledgers/{0:012d}/" in path and "/repairs/" not in path)
    }


async def test_nothing_is_left_of_a_deleted_stream(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        before = nodes_in_metadata(world)
        await make(world, partitions=40)
        await world.log.delete_stream(MANY)

        assert nodes_in_metadata(world) == before
        with pytest.raises(geolog.NoSuchStreamError):
            await world.log.delete_stream(MANY)


@pytest.mark.parametrize("after_s", [0.03, 0.08, 0.14, 0.2])
async def test_a_half_deleted_stream_is_refused_and_can_be_deleted_again(
    after_s: float, autojump_clock: MockClock
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        before = nodes_in_metadata(world)
        await make(world, partitions=5)
        world.cluster.store.round_trip_s = lambda: 0.01
        with trio.move_on_after(after_s):
            await other.delete_stream(MANY)

        half = f"geolog stream delete {MANY}"
        if MANY in await world.log.list_streams():
            for use in (
                world.log.describe_stream(MANY),
                world.log.update_stream(MANY, partitions=9),
                world.log.seal_stream(MANY),
                world.log.create_stream(MANY, survive="1 region"),
            ):
                with pytest.raises(geolog.NoSuchStreamError, match=half):
                    await use
            with ended_by(geolog.NoSuchStreamError):
                async with world.log.open_writer(MANY):
                    pass
            await world.log.delete_stream(MANY)
        assert nodes_in_metadata(world) == before


@pytest.mark.parametrize("partitions", [64, 130])
async def test_a_stream_of_many_partitions_is_complete_or_refused(
    partitions: int, autojump_clock: MockClock
) -> None:
    """With long names they do not fit into one request to the metadata store."""
    name = f"{'n' * 128}/{'s' * 128}"
    async with open_world() as world:
        world.cluster.store.round_trip_s = lambda: 0.01
        for patience_s in (0.02, 0.03, 0.04, 0.05, 0.06, 0.07):
            with trio.move_on_after(patience_s):
                await world.log.create_stream(name, survive="1 region", partitions=partitions)
            if name in await world.log.list_streams():
                with suppress(geolog.NoSuchStreamError):  # It is still incomplete.
                    described = await world.log.describe_stream(name)
                    assert len(described.partition_list) == partitions
                await world.log.delete_stream(name)

        await world.log.create_stream(name, survive="1 region", partitions=partitions)
        await world.log.update_stream(name, partitions=partitions + 70)
        described = await world.log.describe_stream(name)
        assert len(described.partition_list) == partitions + 70
        assert all(one.owner_epoch == 0 for one in described.partition_list)


async def test_deleting_a_stream_ends_its_creation(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        world.cluster.store.round_trip_s = lambda: 0.01
        for after_s in (0.05, 0.06, 0.08):
            before = nodes_in_metadata(world)

            async def delete(after_s: float) -> None:
                await trio.sleep(after_s)
                await other.delete_stream(MANY)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(delete, after_s)
                with suppress(geolog.NoSuchStreamError):
                    await world.log.create_stream(MANY, survive="1 region", partitions=130)
            assert nodes_in_metadata(world) == before


async def test_two_clients_can_delete_a_stream_at_once(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        await make(world, partitions=5)

        async def delete(log: geolog.Log) -> None:
            try:
                await log.delete_stream(MANY)
            except geolog.NoSuchStreamError:
                return  # The other client had finished before this one looked.

        async with trio.open_nursery() as nursery:
            for log in (world.log, other, world.log, other):
                nursery.start_soon(delete, log)

        assert MANY not in await world.log.list_streams()
        await make(world, partitions=2)


async def test_a_follower_of_a_deleted_stream_is_not_advised_to_delete_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
        with ended_by(geolog.NoSuchStreamError) as ended:
            async with world.log.open_reader(STREAM, follow=True) as reader:
                assert (await anext(reader)).value == b"one"
                await world.log.delete_stream(STREAM)
                await anext(reader)

    assert "deleted" in str(ended.error)
    assert "geolog stream delete" not in str(ended.error)
