"""The journal as the store: every answered entry is there after every kind of end."""

from functools import partial
from random import Random

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import Answer
from regions.storage import journal
from regions.storage.disk import DiskFailedError, DiskFullError
from regions.storage.protocol.records import DATA_OFFSET
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.journals import restarted, running
from tests.pure.thinned import sampled


async def add_one_by_one(disk: MemoryDisk, synced: list[int]) -> None:
    async with running(disk, file_bytes_max=6000) as node:
        for entry in range(8):
            node.add(7, entry, bytes([entry]) * 700)
            node.journal.when_synced(partial(synced.append, entry))
            await trio.sleep(0.1)


async def test_entries_are_read_back_while_in_flight_and_when_synced(
    autojump_clock: MockClock,
) -> None:
    async with running(MemoryDisk()) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        assert await node.read(7, 0) == b"zero"

        await node.journal.wait_synced()

        assert await node.read(7, 0) == b"zero"
        assert await node.read(7, 1) is Answer.ABSENT


async def test_records_that_wait_together_share_one_sync(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        syncs_before = disk.syncs_count
        for entry in range(100):
            node.add(7, entry, b"x" * 100)
        await node.journal.wait_synced()

        assert disk.syncs_count == syncs_before + 1


async def test_a_callback_comes_after_the_sync_of_all_before_it_also_when_nothing_is_new(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    disk.faults = DiskFaults(sync_s=1.0)
    called_s: list[float] = []
    async with running(disk) as node:
        start_s = trio.current_time()
        node.add(7, 0, b"zero")
        await trio.testing.wait_all_tasks_blocked()  # The group is being written.
        node.journal.when_synced(lambda: called_s.append(trio.current_time() - start_s))
        await node.journal.wait_synced()
        node.journal.when_synced(lambda: called_s.append(trio.current_time() - start_s))

    assert called_s == [pytest.approx(1.0), pytest.approx(1.0)]


@pytest.mark.parametrize("clean_stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("file_bytes_max", [1 << 30, 6000], ids=["one file", "many files"])
async def test_a_restart_finds_entries_fences_and_lac(
    autojump_clock: MockClock, *, clean_stop: bool, file_bytes_max: int
) -> None:
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=file_bytes_max, clean_stop=clean_stop) as node:
        node.open_ledger(7)
        node.open_ledger(8, epoch=3)
        for entry in range(20):
            node.add(7, entry, bytes([entry]) * 300, lac=entry - 1)
            await node.journal.wait_synced()
        node.fence(8, 4)
        await node.journal.wait_synced()

    for _ in range(3):  # Each restart continues from the files of the one before.
        disk = disk.crash()
        node = await restarted(disk)
        for entry in range(20):
            assert await node.read(7, entry) == bytes([entry]) * 300
        assert await node.read(7, 20) is Answer.ABSENT
        eight, seven = (
            node.ledgers.replica_of(LedgerId(8)),
            node.ledgers.replica_of(LedgerId(7)),
        )
        assert (eight.epoch_highest, eight.is_fenced) == (4, True)
        assert (seven.lac, seven.entry_highest, seven.is_fenced) == (18, 19, False)
        assert not node.ledgers.is_any_in_doubt


@pytest.mark.parametrize("seed", sampled(range(40), one_in=4))
async def test_power_loss_at_any_time_keeps_all_that_was_synced(
    autojump_clock: MockClock, seed: int
) -> None:
    chance = Random(seed)
    disk = MemoryDisk()
    written: dict[int, bytes] = {}
    synced: dict[int, bytes] = {}
    fences: list[int] = []
    next_entry = 0
    for _ in range(4):
        disk.faults = DiskFaults(sync_s=0.01)
        async with running(disk, file_bytes_max=9000, clean_stop=False) as node:
            lost = [entry for entry in written if await node.read(7, entry) is Answer.ABSENT]
            for entry in lost:
                assert entry not in synced
                assert all(later in lost for later in range(entry, next_entry)), "a hole"
                del written[entry]
            for entry, body in written.items():
                assert await node.read(7, entry) == body
            next_entry = len(written)
            assert [
                node.ledgers.replica_of(LedgerId(ledger)).is_fenced for ledger in fences
            ] == [True for _ in fences]
            for _ in range(chance.randrange(12)):
                body = chance.randbytes(chance.randrange(1, 900))
                written[next_entry] = body
                node.add(7, next_entry, body)
                node.journal.when_synced(partial(synced.update, {next_entry: body}))
                next_entry += 1
                if chance.random() < 0.3:
                    ledger = 100 + next_entry
                    node.open_ledger(ledger)
                    node.fence(ledger, 2)
                    node.journal.when_synced(partial(fences.append, ledger))
                await trio.sleep(chance.choice([0, 0.003, 0.02, 0.2]))
            disk = disk.crash(keep_unsynced=chance)
            synced, fences = dict(synced), list(fences)  # Later syncs do not count.


async def test_records_above_the_mark_are_synced_again_before_anything_is_answered(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
        node.add(7, 1, b"written, but was it synced?")
        with trio.move_on_after(0):
            await node.journal.wait_synced()
    killed = disk.crash(keep_unsynced=True)

    after_restart = await restarted(killed)
    answer = await after_restart.read(7, 1)
    after_power_loss = await restarted(killed.crash())

    assert await after_power_loss.read(7, 1) == answer


@pytest.mark.parametrize("failing", range(1, 14))
@pytest.mark.parametrize("call", ["write_failing", "sync_failing"])
async def test_nothing_is_answered_over_a_failed_write_or_sync(
    autojump_clock: MockClock, call: str, failing: int
) -> None:
    disk = MemoryDisk()
    disk.faults = DiskFaults(**{call: failing})
    synced: list[int] = []

    try:
        await add_one_by_one(disk, synced)
    except* DiskFailedError:
        pass  # At once if the start already failed.

    assert synced == list(range(len(synced)))
    disk.faults = DiskFaults()
    node = await restarted(disk.crash())
    for entry in synced:
        assert await node.read(7, entry) == bytes([entry]) * 700


async def test_a_full_disk_ends_the_node_and_loses_nothing(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    disk.faults = DiskFaults(full_at_bytes=6000)
    synced: list[int] = []

    with pytest.RaisesGroup(DiskFullError):
        await add_one_by_one(disk, synced)

    assert synced
    disk.faults = DiskFaults()
    node = await restarted(disk.crash())
    assert [await node.read(7, entry) for entry in synced] == [
        bytes([entry]) * 700 for entry in synced
    ]


async def test_the_size_of_a_seal_is_known_even_while_a_file_is_sealed(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    disk.faults.sync_s = 0.01
    async with running(disk, file_bytes_max=2000) as node:
        node.open_ledger(7)
        await node.journal.wait_synced()
        file_id = node.journal.file_id
        for entry in range(4):
            node.add(7, entry, bytes(1000))
        while node.journal.file_id == file_id:
            assert node.journal.seal_bytes > 0
            await trio.sleep(0.001)


async def test_other_tasks_get_turns_while_a_large_file_is_sealed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_SEAL_ROWS_MAX", 10)
    node = await restarted(MemoryDisk())
    for entry in range(300):
        node.entries.open_table.add(7, entry, DATA_OFFSET, 10, 0)
    turns_count = 0

    async def take_turns() -> None:
        nonlocal turns_count
        while True:
            turns_count += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await node.journal.finish()
        nursery.cancel_scope.cancel(reason="the file is sealed")

    assert turns_count > 300 / 10 / 2


async def test_a_write_begins_in_the_turn_of_its_append_and_the_next_as_soon_as_it_ends(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        await trio.testing.wait_all_tasks_blocked()
        disk.faults = DiskFaults(sync_s=1.0)
        start_s = trio.current_time()
        called_s: list[float] = []

        def note() -> None:
            called_s.append(trio.current_time() - start_s)

        node.gather(7, 0, b"zero")
        node.journal.begin_nowait()
        node.journal.when_synced(note)
        node.gather(7, 1, b"one")
        node.journal.begin_nowait()  # One write at a time: the end of the first begins it.
        node.journal.when_synced(note)
        assert not node.journal.is_idle
        await node.journal.wait_synced()

    assert called_s == [pytest.approx(1.0), pytest.approx(2.0)]


async def test_a_stop_waits_for_the_write_under_way_and_loses_nothing_behind_it(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    synced: list[int] = []
    async with running(disk) as node:
        await trio.testing.wait_all_tasks_blocked()
        disk.faults = DiskFaults(sync_s=1.0)
        for entry in range(2):
            node.gather(7, entry, bytes([entry]) * 700)
            node.journal.when_synced(partial(synced.append, entry))
            node.journal.begin_nowait()

    assert synced == [0, 1]
    disk.faults = DiskFaults()
    after = await restarted(disk.crash())
    assert [await after.read(7, entry) for entry in synced] == [b"\0" * 700, b"\1" * 700]


async def test_a_write_that_fails_while_the_journal_stops_ends_it_with_its_error(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    synced: list[int] = []

    with pytest.RaisesGroup(DiskFailedError):
        async with running(disk) as node:
            await trio.testing.wait_all_tasks_blocked()
            disk.faults = DiskFaults(sync_failing=disk.syncs_count + 1, sync_s=1.0)
            for entry in range(2):
                node.gather(7, entry, b"lost?")
                node.journal.when_synced(partial(synced.append, entry))
                node.journal.begin_nowait()

    syncs_count = disk.syncs_count
    await node.journal.finish()
    assert synced == []
    assert disk.syncs_count == syncs_count


async def test_an_error_of_what_a_write_calls_back_ends_the_journal_not_the_process(
    autojump_clock: MockClock,
) -> None:
    def fail() -> None:
        raise ValueError("a defect")

    later: list[int] = []
    with pytest.RaisesGroup(ValueError):
        async with running(MemoryDisk()) as node:
            node.add(7, 0, b"zero")
            node.journal.when_synced(fail)
            await trio.sleep(1)
            later.append(0)

    assert later == []


async def test_an_idle_while_after_begun_writes_ends_with_one_mark(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        for entry in range(3):
            node.gather(7, entry, b"begun in its turn")
            node.journal.begin_nowait()
            await trio.sleep(0.04)  # Less than the time to a mark, counted from the last write.
        writes_count = disk.writes_count
        await trio.sleep(0.04)
        assert disk.writes_count == writes_count + 1
        await trio.sleep(10)
        assert disk.writes_count == writes_count + 1
