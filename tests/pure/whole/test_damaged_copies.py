"""Copies that rot on disk: skipped by reads, found, and distinguished from loss."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.admin.queue_repair import repair_queue
from geolog.admin.repair import LedgerRepairer
from geolog.client.log import LogConfig
from geolog.client.reading.scan import ReaderConfig
from geolog.ledger.copying.fragment_copy import CopyConfig
from geolog.protocol.ids import LedgerId
from tests.pure.whole.clusters import STREAM, World, append_each, open_world, values_of

CONFIG = LogConfig(reader=ReaderConfig(stall_timeout_s=5.0))


async def rot(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit of the value on a node's disk, and restart the node."""
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
    """Append incompressible values; return them and the nodes that hold them."""
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


async def test_an_entry_damaged_everywhere_is_an_error_but_not_reported_as_lost(
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


async def test_a_missing_copy_is_reported_and_fails_only_with_full_copies(
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


async def rot_under(world: World, node_id: str, value: bytes) -> None:
    """Flip a bit of the value on a running node's disk."""
    disk = world.cluster.nodes[node_id].disk
    for name in await disk.list():
        place = disk.content(name).find(value)
        if place >= 0:
            flipped = bytes([disk.content(name)[place] ^ 1])
            disk.overwrite_at(name, place, flipped)


async def test_verification_finds_rot_on_disk_behind_good_bytes_in_memory(
    autojump_clock: MockClock,
) -> None:
    async with open_world(config=CONFIG) as world:
        values, ensemble = await filled(world)
        await rot_under(world, ensemble[0], values[7])

        read = await values_of(world.log)
        report = await world.log.verify_stream(STREAM)
        done = await repair_queue(world.log.access, CopyConfig())
        after = await world.log.verify_stream(STREAM, full_copies=True)

        assert read == values
        assert (report.damaged, report.nodes[ensemble[0]].copies_damaged) == (1, 1)
        assert report.bytes_read == sum(one.bytes_read for one in report.nodes.values()) > 0
        assert report.nodes[ensemble[1]].bytes_read > report.nodes[ensemble[0]].bytes_read
        assert sum(one.copies_stored for one in done.ledgers) == 1
        assert after.is_good, after.reasons


async def test_a_deep_repair_finds_rot_on_disk_behind_good_bytes_in_memory(
    autojump_clock: MockClock,
) -> None:
    async with open_world(config=CONFIG) as world:
        values, ensemble = await filled(world)
        (segment,) = await world.log.list_segments(STREAM)
        await rot_under(world, ensemble[0], values[7])
        repairer = LedgerRepairer(world.log.access, CopyConfig())

        shallow = await repairer.repair(LedgerId(segment.ledger))
        deep = await repairer.repair(LedgerId(segment.ledger), is_deep=True)

        assert (shallow.damaged, shallow.copies_stored) == (0, 0)
        assert (deep.damaged, deep.copies_stored) == (1, 1)
