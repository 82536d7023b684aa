"""A sealed file whose table was not synced: the sync failed or never came."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from trio.testing import MockClock

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Answer
from regions.storage.disk import DiskFailedError, DiskFullError
from regions.storage.journal import JournalEnd
from regions.storage.protocol.records import file_name
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import Running, restarted, running

FENCED, LARGE = 1, 7
BODY = b"x" * 1000
FILE_BYTES_MAX = 100_000


@asynccontextmanager
async def whose_next_sync_fails(disk: MemoryDisk) -> AsyncIterator[Running]:
    """A journal whose open file is nearly full; sealing it with the next group fails."""
    has_failed = False
    try:
        async with running(disk, file_bytes_max=FILE_BYTES_MAX, clean_stop=False) as node:
            node.open_ledger(FENCED)
            node.open_ledger(LARGE)
            for entry in range(90):
                node.add(LARGE, entry, BODY)
            await node.journal.wait_synced()
            disk.faults.sync_failing = disk.syncs_count + 1
            yield node
            for entry in range(90, 110):
                node.add(LARGE, entry, BODY)
            await node.journal.wait_synced()
    except* DiskFailedError:
        has_failed = True
    assert has_failed
    disk.faults.sync_failing = None


def is_fenced(node: Running) -> bool:
    return node.ledgers.replica_of(LedgerId(FENCED)).is_fenced


async def test_a_fence_found_only_in_an_unsynced_table_is_durable_before_it_is_answered(
    autojump_clock: MockClock,
) -> None:
    """A repeated fence is answered at once, so it must be on disk by then."""
    disk = MemoryDisk()
    async with whose_next_sync_fails(disk) as node:
        node.fence(FENCED, epoch=2)

    assert is_fenced(await restarted(disk))
    for _ in range(3):
        disk = disk.crash()
        node = await restarted(disk)
        assert is_fenced(node)
        assert not node.ledgers.is_any_in_doubt
        assert await node.read(LARGE, 89) == BODY
        assert await node.read(LARGE, 90) is Answer.ABSENT


async def test_a_file_goes_only_after_its_retirement_is_on_disk(
    autojump_clock: MockClock,
) -> None:
    """Otherwise it would count as a lost file and put all ledgers in doubt."""
    disk = MemoryDisk()
    async with running(disk):
        pass
    async with whose_next_sync_fails(disk) as node:
        node.journal.files.retire(1)  # Like `retire`, before its record is on the way.

    await restarted(disk)
    assert file_name(1) not in disk.names
    node = await restarted(disk.crash())
    assert not node.ledgers.is_any_in_doubt


async def test_a_start_that_cannot_write_a_table_file_says_so_and_a_later_one_succeeds(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with whose_next_sync_fails(disk) as node:
        node.fence(FENCED, epoch=2)

    disk.faults.full_at_bytes = disk.used_bytes + 5000
    with pytest.raises(
        DiskFullError, match=r"A table file needs \d+ bytes in .*Free some space"
    ):
        await restarted(disk)
    disk.faults.full_at_bytes = None
    assert is_fenced(await restarted(disk))
    assert is_fenced(await restarted(disk.crash()))


async def test_a_file_known_to_be_synced_to_its_end_needs_no_table_file(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        node.open_ledger(LARGE)
        node.add(LARGE, 0, BODY)
    await restarted(disk, noted=JournalEnd(1, len(disk.content(file_name(1)))))
    assert table_file_name(1) not in disk.names

    node = await restarted(disk)
    assert await node.read(LARGE, 0) == BODY
    assert table_file_name(1) not in disk.names
    assert node.entries.answers(LedgerId(LARGE), EntryId(1), 1) == (Answer.ABSENT,)
