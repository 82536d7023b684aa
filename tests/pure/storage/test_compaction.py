"""Space of deleted ledgers is freed, and no live entry is lost on the way."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.ledger.copying.rate_limit import RateLimit
from geolog.protocol.ids import Epoch, LedgerId
from geolog.protocol.messages import Answer
from geolog.protocol.replica import PersistFence
from regions.storage.compaction import Compaction
from regions.storage.disk import Disk
from regions.storage.protocol.compaction import CompactionPolicy, FileUse, choose_file
from regions.storage.protocol.records import (
    RECORD_HEADER_BYTES,
    delete_record,
    file_name,
    record_of,
)
from regions.storage.protocol.sweep import Sweep
from regions.storage.protocol.tables import OpenTable
from regions.storage.sealed_files import SealedFiles
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import IDENTITY, Running, running

FILE_BYTES = 16 << 10
BODY = b"entry " * 100
POLICY = CompactionPolicy(live_share_max=0.5, small_bytes=0)


@attrs.frozen
class Compacting:
    node: Running
    compaction: Compaction

    def delete(self, ledger: int) -> None:
        self.node.ledgers.delete(LedgerId(ledger))
        self.node.journal.append_nowait(delete_record(LedgerId(ledger)))

    def let_go(self, ledger: int, epoch: int) -> None:
        assert self.node.entries.let_go(LedgerId(ledger))
        replica = self.node.ledgers.replica_of(LedgerId(ledger))
        for effect in replica.let_go(Epoch(epoch)):
            assert isinstance(effect, PersistFence)
            self.node.journal.append_nowait(record_of(effect))

    async def compact_all(self) -> None:
        while await self.compaction.compact_next():
            pass

    async def add_all(self, ledger: int, count: int, *, first: int = 0) -> None:
        for entry in range(first, first + count):
            self.node.add(ledger, entry, body_of(ledger, entry), lac=entry - 1)
            await self.node.journal.wait_synced()

    async def check(self, ledger: int, count: int) -> None:
        found = [await self.node.read(ledger, entry) for entry in range(count)]
        assert found == [body_of(ledger, entry) for entry in range(count)]


def body_of(ledger: int, entry: int) -> bytes:
    return b"%d/%d " % (ledger, entry) + BODY


@asynccontextmanager
async def compacting(
    disk: Disk,
    *,
    policy: CompactionPolicy = POLICY,
    room_bytes: Callable[[], int] = lambda: 1 << 40,
    clean_stop: bool = True,
) -> AsyncIterator[Compacting]:
    async with running(disk, file_bytes_max=FILE_BYTES, clean_stop=clean_stop) as node:
        compaction = Compaction(
            node.ledgers,
            node.entries,
            node.journal,
            SealedFiles(disk, IDENTITY),
            policy,
            rate=RateLimit(1 << 30),
            room_bytes=room_bytes,
            pause_s=1.0,
        )
        yield Compacting(node, compaction)


def journal_names(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".journal")]


async def test_files_of_deleted_ledgers_go_and_those_of_others_stay(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk) as it:
        for ledger in (1, 2, 3):
            it.node.open_ledger(ledger)
            await it.add_all(ledger, 100)
        before = await disk.list()
        await it.compact_all()
        assert await disk.list() == before

        it.delete(2)
        await it.compact_all()

        assert len(await disk.list()) < 0.8 * len(before)
        await it.check(1, 100)
        await it.check(3, 100)
        assert await it.node.read(2, 0) is Answer.UNKNOWN
    async with compacting(disk.crash()) as it:
        await it.check(1, 100)
        await it.check(3, 100)
        assert await it.node.read(3, 100) is Answer.ABSENT
        assert await it.node.read(2, 0) is Answer.UNKNOWN


async def test_live_entries_of_a_file_of_many_ledgers_are_copied(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk) as it:
        for ledger in (1, 2, 3, 4):
            it.node.open_ledger(ledger)
        for entry in range(60):
            for ledger in (1, 2, 3, 4):
                await it.add_all(ledger, 1, first=entry)
        it.node.fence(1, 5)
        before = len(await disk.list())
        for ledger in (2, 3, 4):
            it.delete(ledger)
        await it.compact_all()
        assert len(await disk.list()) < 0.6 * before
        assert it.compaction.counts.copied_entries >= 40
        await it.check(1, 60)
    async with compacting(disk.crash()) as it:
        await it.check(1, 60)
        one = it.node.ledgers.replica_of(LedgerId(1))
        assert (one.is_fenced, one.epoch_highest, one.lac) == (True, 5, 58)
        assert not it.node.ledgers.is_any_in_doubt


async def test_a_damaged_live_entry_keeps_its_file_until_it_was_stored_again(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk) as it:
        for ledger in (1, 2):
            it.node.open_ledger(ledger)
        await it.add_all(1, 1)
        await it.add_all(2, 100)
        content = disk.content(file_name(1))
        disk.overwrite(file_name(1), content.replace(body_of(1, 0), body_of(1, 9)))
        it.delete(2)
        await it.compact_all()

        assert file_name(1) in await disk.list()
        assert await it.node.read(1, 0) is Answer.CORRUPT
        assert it.compaction.counts.files_held == 1
        await it.add_all(1, 1)  # As repair does.
        await it.compact_all()
        assert file_name(1) not in await disk.list()
        await it.check(1, 1)


async def test_a_file_that_does_not_fit_waits_and_one_without_live_entries_does_not(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk, room_bytes=lambda: 0) as it:
        for ledger in (1, 2):
            it.node.open_ledger(ledger)
        await it.add_all(1, 2)
        await it.add_all(2, 100)
        before = journal_names(await disk.list())
        it.delete(2)
        await it.compact_all()
        after = journal_names(await disk.list())
        assert (after[0], len(after) < len(before)) == (file_name(1), True)
        await it.check(1, 2)


async def test_no_file_goes_while_no_later_table_can_be_read(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk, clean_stop=False) as it:
        for ledger in (1, 2):
            it.node.open_ledger(ledger)
        it.node.fence(1, 7)
        await it.add_all(2, 100)
        names = journal_names(await disk.list())
        for name in names[1:-1]:
            disk.overwrite(name, disk.content(name)[:-1])
        it.delete(2)
        await it.compact_all()
        assert journal_names(await disk.list()) == names


async def test_a_file_whose_damage_was_settled_goes_before_it_is_damaged_again(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with compacting(disk, clean_stop=False) as it:
        it.node.open_ledger(1)
        await it.add_all(1, 100)
    content = disk.content(file_name(1))
    disk.overwrite(file_name(1), content[:-1] + b"?")  # Its table,
    header_at = content.index(body_of(1, 5)) - RECORD_HEADER_BYTES
    disk.overwrite_at(file_name(1), header_at, b"rot")  # and a record.
    async with compacting(disk) as it:
        await it.compact_all()
        assert file_name(1) in disk.names, "it puts ledgers in doubt"
        lost = [n for n in range(100) if await it.node.read(1, n) is Answer.UNKNOWN]
        assert lost == [5]
        await it.add_all(1, 1, first=5)  # Like a repair that then settles.
        it.node.settle()
        await it.compact_all()
        assert file_name(1) not in disk.names
        await it.check(1, 100)
    async with compacting(disk.crash()) as it:
        await it.check(1, 100)


async def test_many_small_files_become_one(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    policy = CompactionPolicy(live_share_max=0.5, small_bytes=4 << 10)
    for start in range(12):
        async with compacting(disk, policy=policy, clean_stop=bool(start % 2)) as it:
            it.node.open_ledger(start)
            await it.add_all(start, 2)
    async with compacting(disk, policy=policy) as it:
        await it.compact_all()
        assert len(journal_names(await disk.list())) <= 9
        for ledger in range(12):
            await it.check(ledger, 2)
    async with compacting(disk.crash()) as it:
        for ledger in range(12):
            await it.check(ledger, 2)


async def test_a_reader_of_a_file_that_goes_is_answered(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with compacting(disk) as it:
        for ledger in (1, 2):
            it.node.open_ledger(ledger)
        await it.add_all(1, 3)
        await it.add_all(2, 100)
        it.delete(2)
        old = it.node.entries.files[0]
        await it.compact_all()
        assert await old.file.read(0, 8) == b"geologJF"
        await it.check(1, 3)


uses = st.builds(
    lambda file_id, stored, share, damaged: FileUse(
        file_id, stored, int(stored * share), is_suspect=damaged
    ),
    st.integers(1, 50),
    st.integers(0, 1000),
    st.floats(0, 1),
    st.booleans(),
)


@given(st.lists(uses, unique_by=lambda use: use.file_id), st.integers(0, 1000))
def test_a_chosen_file_fits_and_is_worth_it(files: list[FileUse], room_bytes: int) -> None:
    policy = CompactionPolicy(live_share_max=0.5, small_bytes=100)
    chosen = choose_file(files, policy, room_bytes=room_bytes)
    fitting = [each for each in files if each.live_bytes <= room_bytes]
    worth = [each for each in fitting if each.live_share < 0.5 or each.is_suspect]
    if chosen is None:
        assert not worth
    elif worth:
        assert chosen in worth
        assert chosen.live_share == min(each.live_share for each in worth)
    else:
        assert chosen.live_bytes < 100


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 300)), max_size=60),
    st.integers(64, 4096),
    st.integers(1, 7),
    st.floats(0.0, 1.0),
)
def test_a_sweep_yields_each_entry_once_by_offset_even_of_a_cut_file(
    entries: list[tuple[int, int]], window_bytes: int, rows_max: int, left_share: float
) -> None:
    table, offset = OpenTable(), 4096
    for entry, (ledger, length) in enumerate(entries):
        table.add(ledger, entry, offset, length, 0)
        offset += length
    size_bytes = int(offset * left_share)
    sweep = Sweep(table.sealed(), size_bytes=size_bytes, window_bytes=window_bytes)
    assert sum(sweep.prepare(step=5)) == len(entries)
    pieces = list(sweep.windows(rows_max=rows_max))
    assert [row.entry for piece in pieces for row in piece] == list(range(len(entries)))
    assert all(0 < len(piece) <= rows_max for piece in pieces)


@pytest.mark.parametrize("live_share_max", [0.2, 0.9])
async def test_a_higher_share_takes_more_files(
    autojump_clock: MockClock, live_share_max: float
) -> None:
    disk = MemoryDisk()
    policy = CompactionPolicy(live_share_max, small_bytes=0)
    async with compacting(disk, policy=policy) as it:
        for ledger in (1, 2):
            it.node.open_ledger(ledger)
        for entry in range(60):
            for ledger in (1, 2):
                await it.add_all(ledger, 1, first=entry)
        it.delete(2)
        await it.compact_all()
        assert (it.compaction.counts.files_retired > 0) == (live_share_max > 0.5)
        await it.check(1, 60)
