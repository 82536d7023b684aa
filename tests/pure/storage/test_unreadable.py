"""Unreadable sectors are damage, like flipped bytes: the node starts and goes on."""

import pytest
from trio.testing import MockClock

from geolog.protocol.messages import Answer
from regions.storage.cookies import COOKIE_NAME, DamagedCookieError
from regions.storage.protocol.compaction import CompactionPolicy
from regions.storage.protocol.records import DATA_OFFSET, RECORD_HEADER_BYTES, file_name
from regions.storage.protocol.table_files import table_file_name
from regions.storage.readable import FILLER, PAGE_BYTES, Readable, read_around
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_inode import SECTOR_BYTES
from tests.pure.storage.aged_disks import (
    BODIES,
    NAMES,
    SEALED_NAME,
    TABLE_NAME,
    Aged,
    an_aged_disk,
    answers_of,
    check_nothing_is_lost_silently,
)
from tests.pure.storage.journals import restarted, running
from tests.pure.storage.nodes import a_world
from tests.pure.storage.test_compaction import Compacting, body_of, compacting
from tests.pure.storage.test_scrub import a_scrub

LEDGER = 1


def unreadable_at(aged: Aged, name: str, offset: int) -> MemoryDisk:
    disk = aged.disk.crash(keep_unsynced=True)
    disk.make_unreadable(name, offset)
    return disk


@pytest.mark.parametrize("clean_stop", [True, False])
@pytest.mark.parametrize("name", NAMES)
async def test_any_unreadable_sector_loses_nothing_silently(
    autojump_clock: MockClock, name: str, *, clean_stop: bool
) -> None:
    """Not even the sector with the last mark, and although metadata noted nothing."""
    aged = await an_aged_disk(clean_stop=clean_stop)

    for offset in range(0, len(aged.disk.content(name)), SECTOR_BYTES):
        disk = unreadable_at(aged, name, offset)
        node = await restarted(disk)
        first = await check_nothing_is_lost_silently(node)
        again = await restarted(disk.crash(keep_unsynced=True))
        second = await check_nothing_is_lost_silently(again)
        assert Answer.ABSENT not in [*first, *second]


async def test_an_unreadable_table_is_rebuilt_from_the_records(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)

    for disk in (
        unreadable_at(aged, SEALED_NAME, len(aged.disk.content(SEALED_NAME)) - 1),
        unreadable_at(aged, TABLE_NAME, 0),
    ):
        node = await restarted(disk)
        answers = await answers_of(node)
        readable = [answer for answer in answers if isinstance(answer, bytes)]
        assert readable == [body for body in BODIES.values() if body in readable]


async def test_unwritten_space_is_told_from_unreadable_bytes(
    autojump_clock: MockClock,
) -> None:
    """A hole in the tail of the newest file may have held acknowledged entries."""
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(LEDGER)
        node.add(LEDGER, 0, b"synced, and no mark says so yet")
        await node.journal.wait_synced()
        disk = disk.crash()
    disk.make_unreadable(file_name(1), DATA_OFFSET)

    node = await restarted(disk)

    assert node.ledgers.is_any_in_doubt
    assert await node.read(LEDGER, 0) is Answer.UNKNOWN


@pytest.mark.parametrize("hole", [0, 1, 2, 3])
async def test_a_hole_in_a_tail_is_damage_though_the_table_that_notes_it_is_lost_too(
    autojump_clock: MockClock, hole: int
) -> None:
    """The file with the hole is not the newest any more."""
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(LEDGER)
        node.add(LEDGER, 0, bytes(3 * PAGE_BYTES))
        node.add(LEDGER, 1, b"after the hole")
        await node.journal.wait_synced()
        disk = disk.crash()
    disk.make_unreadable(file_name(1), DATA_OFFSET + hole * PAGE_BYTES)
    await restarted(disk)
    disk = disk.crash()
    disk.make_unreadable(table_file_name(1), 0)

    node = await restarted(disk)

    for entry in (0, 1):
        assert await node.read(LEDGER, entry) is not Answer.ABSENT


async def a_compacted_node(it: Compacting) -> None:
    it.node.open_ledger(LEDGER)
    it.node.open_ledger(LEDGER + 1)
    for entry in range(60):
        await it.add_all(LEDGER + entry % 2, 1, first=entry)


async def test_scrub_and_compaction_go_on_past_an_unreadable_region(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk) as it:
        await a_compacted_node(it)
    at = disk.content(file_name(1)).index(body_of(LEDGER, 10))
    disk.make_unreadable(file_name(1), at)
    policy = CompactionPolicy(live_share_max=0.9, small_bytes=0)
    async with compacting(disk, policy=policy) as it:
        scrub = a_scrub(it.node, disk)
        it.delete(LEDGER + 1)

        await scrub.read_all()
        await it.compact_all()

        assert scrub.counts.rounds == 1
        assert scrub.counts.damaged_entries >= 1
        assert it.compaction.counts.files_retired >= 1
        assert file_name(1) in disk.names, "it is held while an entry in it is damaged"
        assert await it.node.read(LEDGER, 10) is Answer.CORRUPT
        for entry in range(0, 60, 2):  # Like a repair that brings good copies.
            if await it.node.read(LEDGER, entry) is Answer.CORRUPT:
                await it.add_all(LEDGER, 1, first=entry)
        await it.compact_all()
        assert file_name(1) not in disk.names
        found = [await it.node.read(LEDGER, entry) for entry in range(0, 60, 2)]
        assert found == [body_of(LEDGER, entry) for entry in range(0, 60, 2)]


async def test_a_cookie_that_cannot_be_read_is_damaged(autojump_clock: MockClock) -> None:
    async with a_world() as world:
        async with world.node():
            pass
        assert isinstance(world.disk, MemoryDisk)
        world.disk.make_unreadable(COOKIE_NAME, 0)

        with pytest.raises(DamagedCookieError, match="node replace"):
            async with world.node():
                pass


async def test_everything_around_an_unreadable_page_is_read(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    content = bytes(range(1, 251)) * 80
    file = await disk.create("one")
    await file.write_synced(0, [content])
    disk.make_unreadable("one", 2 * PAGE_BYTES + 700)

    whole = await read_around(file, 100, len(content))
    behind = await read_around(file, 3 * PAGE_BYTES, 10)

    hole = 2 * PAGE_BYTES, 3 * PAGE_BYTES
    assert whole.holes == (hole,)
    filled = content[: hole[0]] + FILLER * PAGE_BYTES + content[hole[1] :]
    assert whole.content == filled[100:]
    assert behind == Readable(content[3 * PAGE_BYTES :][:10])


async def test_a_sector_that_is_written_again_can_be_read(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    file = await disk.create("one")
    await file.write_synced(0, [bytes(3 * SECTOR_BYTES)])
    disk.make_unreadable("one", SECTOR_BYTES)
    found = disk.crash(keep_unsynced=True)
    again = await found.open("one")

    await again.write_synced(SECTOR_BYTES - RECORD_HEADER_BYTES, [b"x" * 2 * SECTOR_BYTES])

    assert len(await again.read(0, 3 * SECTOR_BYTES)) == 3 * SECTOR_BYTES
