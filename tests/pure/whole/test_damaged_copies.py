"""Copies that rot on the disks of real nodes: read past, found, and told apart from loss."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.log import LogConfig
from geolog.client.reading.scan import ReaderConfig
from tests.pure.whole.clusters import STREAM, World, append_each, open_world, values_of

CONFIG = LogConfig(reader=ReaderConfig(stall_timeout_s=5.0))


async def rot(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit of that value on the disk of a node, and start the node anew."""
    await world.cluster.kill(node_id)
    disk = world.cluster.nodes[node_id].disk
    flipped_count = 0
    for name in await disk.list():
        content = bytearray(disk.content(name))
        place = content.find(value)
        if place >= 0:
            content[place] ^= 1
            disk.overwrite(name, bytes(content))
            flipped_count += 1
    assert flipped_count == 1, f"the value is in {flipped_count} files"
    await world.cluster.start(node_id)


async def filled(world: World) -> tuple[list[bytes], list[str]]:
    """Values that are stored as they are, and the nodes that hold them."""
    rng = random.Random(1)
    values = [rng.randbytes(1000) for _ in range(20)]
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, values)
    (segment,) = await world.log.list_segments(STREAM)
    return values, segment.ensemble


async def test_a_damaged_copy_is_read_past_and_found(autojump_clock: MockClock) -> None:
    async with open_world(config=CONFIG) as world:
        values, ensemble = await filled(world)
        for node_id in ensemble[:2]:
            await rot(world, node_id, values[7])
        await rot(world, ensemble[2], values[8])

        assert await values_of(world.log) == values
        report = await world.log.verify_stream(STREAM)
        assert not report.is_good
        assert (report.damaged, report.without_ack_set) == (3, 1)


async def test_an_entry_damaged_everywhere_is_an_error_but_not_said_to_be_lost(
    autojump_clock: MockClock,
) -> None:
    async with open_world(config=CONFIG) as world:
        values, ensemble = await filled(world)
        for node_id in ensemble:
            await rot(world, node_id, values[7])
        async with world.log.open_reader(STREAM) as reader:
            found = [await anext(reader) for _ in range(7)]
            with pytest.raises(geolog.UnavailableError, match="entry 7"):
                await anext(reader)

        assert [record.value for record in found] == values[:7]


async def test_a_missing_copy_is_told_and_harmless_unless_all_are_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"everywhere")
            (segment,) = await world.log.list_segments(STREAM)
            await world.cluster.kill(segment.ensemble[0])
            await writer.append(b"at two")
        await world.cluster.start(segment.ensemble[0])
        await trio.sleep(5)

        lenient = await world.log.verify_stream(STREAM)
        strict = await world.log.verify_stream(STREAM, full_copies=True)
        assert lenient.is_good
        assert lenient.under_replicated == 1
        assert not strict.is_good
