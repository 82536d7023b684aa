"""Rot is found although nobody reads, and every reader then sees it."""

import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.copying.rate_limit import RateLimit
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Answer
from regions.storage.journal import JournalEnd
from regions.storage.protocol.records import file_name
from regions.storage.scrub import Scrub
from regions.storage.sealed_files import SealedFiles
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import IDENTITY, Running, running

BODY = b"some entry " * 50


async def a_disk() -> MemoryDisk:
    disk = MemoryDisk()
    for ledger in (1, 2):
        async with running(disk) as node:
            node.open_ledger(ledger)
            for entry in range(20):
                node.add(ledger, entry, b"%d/%d " % (ledger, entry) + BODY)
    return disk


def a_scrub(node: Running, disk: MemoryDisk, *, bytes_per_s: float = 1 << 20) -> Scrub:
    return Scrub(
        node.entries,
        SealedFiles(disk, IDENTITY),
        rate=RateLimit(bytes_per_s),
        interval_s=1000.0,
    )


def rot(disk: MemoryDisk, file_id: int, was: bytes) -> None:
    content = disk.content(file_name(file_id))
    assert was in content
    disk.overwrite(file_name(file_id), content.replace(was, b"\xff" * len(was)))


async def test_a_damaged_entry_is_found_reported_once_and_stored_again(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk()
    rot(disk, 1, b"1/7 some")
    told: list[tuple[int, int]] = []
    async with running(disk) as node:
        node.entries.on_corrupt = lambda ledger, entry: told.append((ledger, entry))
        assert node.entries.held(LedgerId(1), EntryId(7)).answer is Answer.HAVE
        scrub = a_scrub(node, disk)
        for _ in range(2):
            await scrub.read_all()
        assert told == [(1, 7)]
        assert node.entries.held(LedgerId(1), EntryId(7)).answer is Answer.CORRUPT
        assert node.entries.statistics().corrupt_count == 1
        assert (scrub.counts.rounds, scrub.counts.entries) == (2, 80)

        node.add(1, 7, b"1/7 " + BODY)
        await node.journal.wait_synced()
        assert await node.read(1, 7) == b"1/7 " + BODY
        assert node.entries.statistics().corrupt_count == 0


@pytest.mark.parametrize("at", [-1, -100, -700])
async def test_a_damaged_table_is_found(autojump_clock: MockClock, at: int) -> None:
    disk = await a_disk()
    end = JournalEnd(2, len(disk.content(file_name(2))))
    async with running(disk, noted=end) as node:
        content = bytearray(disk.content(file_name(2)))
        content[at] ^= 1
        disk.overwrite(file_name(2), bytes(content))
        scrub = a_scrub(node, disk)
        await scrub.read_all()
        assert scrub.counts.damaged_tables == 1


async def test_a_round_keeps_its_rate_and_repeats(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk()
    async with running(disk) as node:
        scrub = a_scrub(node, disk, bytes_per_s=1024)
        start_s = trio.current_time()
        await scrub.read_all()
        assert trio.current_time() - start_s >= 20
        with trio.move_on_after(2600):
            await scrub.run()
        assert scrub.counts.rounds == 4
