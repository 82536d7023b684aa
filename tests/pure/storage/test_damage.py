"""Settled damage, and later damage to the same files."""

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.messages import Answer
from regions.storage.protocol.damage import (
    LOST,
    Damage,
    DamageSet,
    gaps_extent,
    shortened_extent,
    unproven_extent,
    unreadable_extent,
)
from regions.storage.protocol.records import RECORD_HEADER_BYTES, file_name
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import restarted, running

LEDGER = 7
ENTRIES = range(40)
NAME = file_name(1)

files = st.integers(1, 9)
extents = st.integers(0, 2)
damages = st.lists(
    st.tuples(files, files, extents).map(lambda t: Damage(min(t[:2]), max(t[:2]), t[2]))
)


Harm = Callable[[MemoryDisk], Awaitable[None]]


def body_of(entry: int) -> bytes:
    return b"entry %d " % entry * 20


async def a_disk_of_many_files() -> MemoryDisk:
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=12 << 10) as node:
        node.open_ledger(LEDGER)
        for entry in ENTRIES:
            node.add(LEDGER, entry, body_of(entry))
            await node.journal.wait_synced()
    return disk


async def cut(disk: MemoryDisk) -> None:
    disk.overwrite(NAME, disk.content(NAME)[:-4000])


async def spoil_a_record(disk: MemoryDisk) -> None:
    """Spoil also the table, which would reveal it."""
    content = disk.content(NAME)
    at = content.index(body_of(2)) - RECORD_HEADER_BYTES
    disk.overwrite_at(NAME, at, b"rot")
    disk.overwrite_at(NAME, len(content) - 20, b"rot")


async def spoil_another_record(disk: MemoryDisk) -> None:
    """Spoil also the table file, which would reveal it."""
    at = disk.content(NAME).index(body_of(4)) - RECORD_HEADER_BYTES
    disk.overwrite_at(NAME, at, b"rot")
    await remove_table_file(disk)


async def cut_more(disk: MemoryDisk) -> None:
    """Remove also the table file, which would reveal it."""
    await cut(disk)
    await remove_table_file(disk)


async def remove(disk: MemoryDisk) -> None:
    await disk.remove(NAME)
    await remove_table_file(disk)


async def remove_table_file(disk: MemoryDisk) -> None:
    if table_file_name(1) in disk.names:
        await disk.remove(table_file_name(1))


async def make_good_and_settle(disk: MemoryDisk) -> None:
    """Act like a repair that brings all copies back, and then settles."""
    async with running(disk) as node:
        assert node.ledgers.is_any_in_doubt
        for entry in ENTRIES:
            if await node.read(LEDGER, entry) != body_of(entry):
                node.add(LEDGER, entry, body_of(entry))
                await node.journal.wait_synced()
        node.settle()
        await node.journal.wait_synced()
        assert not node.ledgers.is_any_in_doubt


@pytest.mark.parametrize("first", [cut, spoil_a_record])
@pytest.mark.parametrize("second", [remove, cut_more, spoil_another_record])
async def test_a_file_that_is_damaged_again_after_its_damage_was_settled_is_in_doubt(
    autojump_clock: MockClock,
    first: Harm,
    second: Harm,
) -> None:
    disk = await a_disk_of_many_files()
    await first(disk)
    await make_good_and_settle(disk)
    await second(disk)

    node = await restarted(disk)

    assert node.ledgers.is_any_in_doubt
    found = [await node.read(LEDGER, entry) for entry in ENTRIES]
    assert Answer.ABSENT not in found
    assert Answer.UNKNOWN in found


@pytest.mark.parametrize("first", [cut, spoil_a_record, remove])
async def test_settled_damage_that_is_found_again_as_it_was_puts_nothing_in_doubt(
    autojump_clock: MockClock, first: Harm
) -> None:
    disk = await a_disk_of_many_files()
    await first(disk)
    await make_good_and_settle(disk)

    for _ in range(2):
        await remove_table_file(disk)  # So that the file is walked again.
        async with running(disk) as node:
            assert not node.ledgers.is_any_in_doubt
            for entry in ENTRIES:
                assert await node.read(LEDGER, entry) == body_of(entry)


@given(damages, damages)
def test_only_damage_settled_to_the_same_extent_is_taken_out(
    found: list[Damage], settled: list[Damage]
) -> None:
    left = DamageSet(found).without(DamageSet(settled))

    def each(damages: list[Damage]) -> set[tuple[int, int]]:
        return {(f, one.extent) for one in damages for f in range(one.first, one.last + 1)}

    expected = each(found) - each(settled)
    assert each(list(left)) == expected
    assert left.through == max((file_id for file_id, _ in expected), default=0)
    assert all(left.is_in(file_id) for file_id, _ in expected)


def test_extents_differ_by_what_is_missing() -> None:
    extents = [
        LOST,
        unreadable_extent(),
        shortened_extent(4096),
        shortened_extent(4097),
        unproven_extent(4096),
        gaps_extent([(4096, 4097)]),
        gaps_extent([(4096, 4098)]),
        gaps_extent([(4096, 4097), (4098, 4099)]),
    ]

    assert len(set(extents)) == len(extents)
