"""Space that an open journal file takes ahead: a reserve, given back, never required."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.messages import Answer
from regions.storage.disk import DiskFullError
from regions.storage.protocol.records import file_name
from regions.storage.space_ahead import SpaceAhead
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.journals import restarted, running
from tests.pure.thinned import sampled

AHEAD_BYTES = 256 << 10
FILE_BYTES = 4 * AHEAD_BYTES


async def length_of(disk: MemoryDisk, file_id: int) -> int:
    return (await disk.open(file_name(file_id))).size_bytes


async def test_a_fence_can_be_written_when_the_disk_is_full(autojump_clock: MockClock) -> None:
    disk = MemoryDisk(capacity_bytes=64 << 20)
    async with running(
        disk, file_bytes_max=FILE_BYTES, ahead_bytes=AHEAD_BYTES, clean_stop=False
    ) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
        disk.faults = DiskFaults(full_at_bytes=1)  # No more space at all.
        for epoch in range(2, 500):
            node.fence(7, epoch)
            await node.journal.wait_synced()
    left = disk.crash()

    left.faults = DiskFaults()
    node = await restarted(left)
    replica = next(iter(node.ledgers))
    assert (replica.is_fenced, replica.epoch_highest) == (True, 499)


async def test_sealing_gives_back_what_was_not_written(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=FILE_BYTES, ahead_bytes=AHEAD_BYTES) as node:
        node.add(7, 0, b"x" * 1000)
        await node.journal.wait_synced()
        assert await length_of(disk, 1) >= AHEAD_BYTES

    assert await length_of(disk, 1) < 8000
    assert disk.content(file_name(1)).rstrip(b"\0")[-4:] == disk.content(file_name(1))[-4:]


@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "power loss"])
async def test_space_that_was_never_written_is_neither_damage_nor_kept(
    autojump_clock: MockClock, *, power_loss: bool
) -> None:
    disk = MemoryDisk()
    async with running(
        disk, file_bytes_max=FILE_BYTES, ahead_bytes=AHEAD_BYTES, clean_stop=False
    ) as node:
        node.open_ledger(7)
        node.add(7, 0, b"x" * 1000)
        await node.journal.wait_synced()
        await trio.sleep(1)
    left = disk.crash(keep_unsynced=not power_loss)
    assert await length_of(left, 1) >= AHEAD_BYTES

    for _ in range(2):
        node = await restarted(left)
        assert await node.read(7, 0) == b"x" * 1000
        assert await node.read(7, 1) is Answer.ABSENT
        assert not node.ledgers.is_any_in_doubt
        assert await length_of(left, 1) < 8000


@pytest.mark.parametrize("seed", sampled(range(20), one_in=2))
async def test_power_loss_anywhere_in_space_taken_ahead_keeps_all_that_was_synced(
    autojump_clock: MockClock, seed: int
) -> None:
    chance = Random(seed)
    disk = MemoryDisk()
    synced = 0
    for _ in range(3):
        disk.faults = DiskFaults(sync_s=0.01)
        async with running(
            disk, file_bytes_max=FILE_BYTES, ahead_bytes=AHEAD_BYTES, clean_stop=False
        ) as node:
            while await node.read(7, synced) is not Answer.ABSENT:
                synced += 1  # It was written, but not answered.
            for entry in range(synced):
                assert await node.read(7, entry) == bytes([entry]) * 30_000
            for entry in range(synced, synced + chance.randrange(12)):
                node.add(7, entry, bytes([entry]) * 30_000)
                await node.journal.wait_synced()
                synced = entry + 1
            node.add(7, synced, bytes([synced]) * 30_000)
            await trio.sleep(chance.choice([0, 0.003, 0.02]))
            disk = disk.crash(keep_unsynced=chance)


async def test_pieces_shrink_as_the_disk_fills_and_nothing_fails(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk(capacity_bytes=8 << 20)
    file = await disk.create("one")
    space = SpaceAhead(disk, 1 << 20)
    taken: list[int] = []
    for end in range(0, 8 << 20, 128 << 10):
        await space.reach(file, end)
        await file.write_synced(end, [bytes(1000)])
        taken.append(file.size_bytes - end)

    assert taken[0] == 512 << 10, "a sixteenth of what is free"
    assert taken[-1] <= 64 << 10
    assert all(later <= 1 << 20 for later in taken)
    with pytest.raises(DiskFullError):
        await file.allocate(0, 9 << 20)
    await file.write_synced(0, [b"it may still be written"])


async def test_a_full_disk_is_not_asked_for_space_at_each_write(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk(capacity_bytes=4 << 20)
    filler = await disk.create("filler")
    await filler.allocate(0, 4 << 20)
    await filler.truncate((4 << 20) - 1000)
    file = await disk.create("one")
    space = SpaceAhead(disk, 1 << 20)

    for end in range(0, 1000, 10):
        await space.reach(file, end)
    assert file.size_bytes == 0

    await filler.truncate(0)
    await space.reach(file, 300 << 10)
    assert file.size_bytes > 300 << 10, "it is tried again later"
