"""Rot and torn tails: damage is never served, and never passes for absence."""

import trio
from trio.testing import MockClock

from geolog.protocol.messages import Answer
from regions.storage.protocol.records import DATA_OFFSET, RECORD_HEADER_BYTES, file_name
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.aged_disks import (
    BODIES,
    NEVER_ADDED,
    SEALED_NAME,
    an_aged_disk,
    answers_of,
    check_nothing_is_lost_silently,
)
from tests.pure.storage.journals import restarted, running


async def test_a_tail_torn_at_any_length_loses_nothing_that_was_synced(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"synced")
        await node.journal.wait_synced()
        synced_bytes = len(disk.content(file_name(1)))
        node.add(7, 1, b"torn " * 20)
        node.add(7, 2, b"torn too")
    whole = disk.content(file_name(1))
    assert len(whole) > synced_bytes

    for length in range(synced_bytes, len(whole)):
        torn = disk.crash(keep_unsynced=True)
        torn.overwrite(file_name(1), whole[:length])
        node = await restarted(torn)
        assert await node.read(7, 0) == b"synced"
        assert await node.read(7, 1) in (b"torn " * 20, Answer.ABSENT)
        assert await node.read(7, 2) is Answer.ABSENT
        assert not node.ledgers.is_any_in_doubt


async def test_records_after_the_first_bad_one_of_a_torn_tail_are_dropped(
    autojump_clock: MockClock,
) -> None:
    """It was never acknowledged, and taking it would leave a hole before it."""
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        for entry in range(3):
            node.add(7, entry, b"of one group")
        await node.journal.wait_synced()
    content = bytearray(disk.content(file_name(1)))
    middle = len(content) - 2 * (RECORD_HEADER_BYTES + len(b"of one group"))

    for place in range(middle, middle + RECORD_HEADER_BYTES):
        torn = disk.crash()
        content[place] ^= 1
        torn.overwrite(file_name(1), bytes(content))
        content[place] ^= 1
        node = await restarted(torn)
        assert await node.read(7, 0) == b"of one group"
        assert await node.read(7, 1) is Answer.ABSENT
        assert await node.read(7, 2) is Answer.ABSENT


async def test_rot_of_a_body_is_corrupt_and_of_that_entry_alone(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)
    offset = aged.disk.content(SEALED_NAME).index(BODIES[7, 1])

    node = await restarted(aged.with_flip(SEALED_NAME, offset, 0))

    assert await answers_of(node) == [
        Answer.CORRUPT if key == (7, 1) else body for key, body in BODIES.items()
    ]
    assert await node.read(*NEVER_ADDED) is Answer.ABSENT
    assert node.entries.statistics().corrupt_count == 1


async def test_a_damaged_table_is_rebuilt_from_the_records(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)
    sealed_bytes = len(aged.disk.content(SEALED_NAME))

    node = await restarted(aged.with_flip(SEALED_NAME, sealed_bytes - 60, 0))

    assert await answers_of(node) == list(BODIES.values())
    assert not node.ledgers.is_any_in_doubt


async def test_damage_of_table_and_last_mark_together_is_not_taken_for_a_torn_tail(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)
    content = bytearray(aged.disk.content(SEALED_NAME))
    last_body = bytes(content).rindex(BODIES[7, 1])
    content[last_body - RECORD_HEADER_BYTES :] = b"?" * len(
        content[last_body - RECORD_HEADER_BYTES :]
    )

    node = await restarted(aged.with_content(SEALED_NAME, bytes(content)))

    await check_nothing_is_lost_silently(node)
    assert await node.read(7, 1) is Answer.UNKNOWN


async def test_a_missing_file_puts_ledgers_it_may_have_held_in_doubt(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)

    node = await restarted(await aged.without(SEALED_NAME))

    await check_nothing_is_lost_silently(node)
    assert await node.read(*NEVER_ADDED) is Answer.UNKNOWN


async def test_a_ledger_whose_first_record_is_newer_than_the_damage_is_not_in_doubt(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"of the first file")
        await node.journal.wait_synced()
        await trio.sleep(1)
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(8)
        await node.journal.wait_synced()
        await trio.sleep(1)
    content = bytearray(disk.content(file_name(1)))
    content[DATA_OFFSET + 60] ^= 1  # The first record behind the first mark.
    disk.overwrite(file_name(1), bytes(content))
    await disk.remove(table_file_name(1))  # It would reveal the content.

    node = await restarted(disk)

    assert await node.read(7, 1) is Answer.UNKNOWN
    assert await node.read(8, 0) is Answer.ABSENT


async def test_a_record_at_another_place_is_not_taken_for_one(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
    misdirected = disk.crash(keep_unsynced=True)
    content = misdirected.content(file_name(1))
    misdirected.overwrite(file_name(1), content + content[DATA_OFFSET:])

    node = await restarted(misdirected)

    assert await node.read(7, 0) == b"zero"
    assert node.entries.statistics().entries_count == 1
