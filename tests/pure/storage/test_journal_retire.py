"""Retired files, deleted ledgers and settled damage stay so for ever."""

import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import Answer
from regions.storage.protocol.damage import LOST, Damage
from regions.storage.protocol.records import delete_record, file_name, retire_record
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import Running, restarted, running

KEPT = b"copied " * 20


async def a_disk_to_compact() -> MemoryDisk:
    """File 1 was sealed, and a crash ended file 2; ledger 9 was fenced in file 1."""
    disk = MemoryDisk()
    async with running(disk) as node:
        node.open_ledger(7)
        node.open_ledger(9)
        node.fence(9, 2)
        node.add(7, 0, KEPT)
    async with running(disk, clean_stop=False) as node:
        node.add(7, 1, b"one")
        await node.journal.wait_synced()
        await trio.sleep(1)
    return disk


async def copied(node: Running) -> None:
    """Copy the live entries of files 1 and 2, as compaction does."""
    node.add(7, 0, KEPT)
    node.add(7, 1, b"one")
    await node.journal.wait_synced()


async def check_all_is_there(disk: MemoryDisk) -> None:
    for _ in range(2):
        node = await restarted(disk)
        assert [await node.read(7, entry) for entry in range(2)] == [KEPT, b"one"]
        assert await node.read(7, 2) is Answer.ABSENT
        nine = node.ledgers.replica_of(LedgerId(9))
        assert (nine.is_fenced, nine.epoch_highest) == (True, 2)
        assert not node.ledgers.is_any_in_doubt


async def test_a_retired_file_goes_with_its_table_file_and_is_not_missed(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk_to_compact()
    async with running(disk) as node:
        await copied(node)
    async with running(disk) as node:
        assert table_file_name(2) in await disk.list()
        for file_id in (1, 2):
            await node.journal.retire(file_id)

    names = await disk.list()
    assert not {file_name(1), file_name(2), table_file_name(2)} & set(names)
    await check_all_is_there(disk.crash())


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power loss"])
async def test_a_removal_that_was_interrupted_is_finished_at_the_next_start(
    autojump_clock: MockClock, *, power_loss: bool
) -> None:
    disk = await a_disk_to_compact()
    async with running(disk) as node:
        await copied(node)
    async with running(disk, clean_stop=False) as node:
        for file_id in (1, 2):
            node.journal.append_nowait(retire_record(file_id))
        await node.journal.wait_synced()
    left = disk.crash(keep_unsynced=not power_loss)
    assert file_name(1) in await left.list()

    await restarted(left)

    assert not {file_name(1), file_name(2), table_file_name(2)} & set(await left.list())
    await check_all_is_there(left)


async def test_a_file_is_kept_until_another_table_has_its_promises(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk_to_compact()
    async with running(disk) as node:
        await copied(node)
        node.journal.append_nowait(retire_record(1))
        await node.journal.wait_synced()
    for name in await disk.list():
        if name != file_name(1) and name.endswith(".journal"):
            disk.overwrite(name, disk.content(name)[:-1])  # No footer, so no table.
    await disk.remove(table_file_name(2))

    node = await restarted(disk)

    assert file_name(1) in await disk.list()
    nine = node.ledgers.replica_of(LedgerId(9))
    assert (nine.is_fenced, nine.epoch_highest) == (True, 2)


async def test_a_retired_file_whose_promises_are_nowhere_else_counts_as_lost(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk_to_compact()
    async with running(disk) as node:
        await copied(node)
        await node.journal.retire(1)
    for name in await disk.list():
        if name.endswith(".journal"):
            disk.overwrite(name, disk.content(name)[:-1])
    await disk.remove(table_file_name(2))

    for _ in range(3):  # Tables written without the lost records do not hide the loss.
        node = await restarted(disk)
        assert await node.read(9, 0) is Answer.UNKNOWN
        assert node.ledgers.replica_of(LedgerId(9)).is_in_doubt


@pytest.mark.parametrize("file_bytes_max", [1 << 30, 4400], ids=["one file", "many files"])
async def test_a_deleted_ledger_is_never_known_again(
    autojump_clock: MockClock, file_bytes_max: int
) -> None:
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=file_bytes_max) as node:
        for ledger in range(5, 9):
            node.open_ledger(ledger)
            node.add(ledger, 0, b"x" * 100)
            await node.journal.wait_synced()
        for ledger in (6, 7):
            node.ledgers.delete(LedgerId(ledger))
            node.journal.append_nowait(delete_record(LedgerId(ledger)))
            await node.journal.wait_synced()

    for _ in range(3):
        disk = disk.crash()
        node = await restarted(disk)
        assert [replica.ledger for replica in node.ledgers] == [5, 8]
        assert list(node.ledgers.deleted) == [(6, 7)]


async def test_settled_damage_stays_settled_and_later_damage_counts(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk_to_compact()
    await restarted(disk)
    await disk.remove(file_name(1))
    async with running(disk, clean_stop=False) as node:
        assert await node.read(7, 5) is Answer.UNKNOWN
        assert list(node.ledgers.damaged) == [Damage.of_file(1, LOST)]
        node.settle()
        await node.journal.wait_synced()
        assert await node.read(7, 5) is Answer.ABSENT

    for _ in range(2):
        node = await restarted(disk)
        assert not node.ledgers.is_any_in_doubt
        assert await node.read(7, 5) is Answer.ABSENT
    await disk.remove(file_name(2))
    node = await restarted(disk)
    assert list(node.ledgers.damaged) == [Damage.of_file(2, LOST)]
    assert await node.read(7, 5) is Answer.UNKNOWN
