"""The reads of a start, and its refusals, which touch nothing."""

from contextlib import suppress
from itertools import product
from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.ids import InstanceId
from geolog.protocol.messages import Answer
from regions.storage.cookies import WrongDataDirectoryError
from regions.storage.disk import DiskFailedError, DiskFullError
from regions.storage.journal import JournalEnd
from regions.storage.journal_end import NO_END, OlderDiskError
from regions.storage.protocol.records import (
    DATA_OFFSET,
    FORMAT_VERSION,
    FileHeader,
    UnknownFormatError,
    file_name,
)
from regions.storage.protocol.table_files import TableFile, table_file_name
from sim.fakes.failing_disk import ALL_CALLS, DiskCall, FailingDisk, Failure
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.aged_disks import (
    BODIES,
    LAST_NAME,
    NEVER_ADDED,
    TABLE_NAME,
    an_aged_disk,
    answers_of,
    check_nothing_is_lost_silently,
)
from tests.pure.storage.journals import IDENTITY, restarted, running
from tests.pure.thinned import sampled

HEADER = FileHeader(1, IDENTITY.instance, IDENTITY.cluster_id, b"saltsalt")


async def a_disk(*, clean_stop: bool, entries_count: int = 200) -> MemoryDisk:
    disk = MemoryDisk()
    async with running(disk, clean_stop=clean_stop) as node:
        node.open_ledger(7)
        for entry in range(entries_count):
            node.add(7, entry, bytes([entry]) * 1000)
        await node.journal.wait_synced()
        await trio.sleep(1)
    return disk


async def test_after_a_clean_stop_nothing_is_walked(autojump_clock: MockClock) -> None:
    disk = await a_disk(clean_stop=True)
    assert len(disk.content(file_name(1))) > 200_000

    bytes_before = disk.read_bytes
    await restarted(disk)

    assert disk.read_bytes - bytes_before < 100_000


async def test_a_file_that_a_crash_ended_is_walked_once(autojump_clock: MockClock) -> None:
    disk = await a_disk(clean_stop=False)

    read_bytes = []
    for _ in range(3):
        bytes_before = disk.read_bytes
        node = await restarted(disk)
        read_bytes.append(disk.read_bytes - bytes_before)
        assert node.entries.statistics().entries_count == 200

    assert read_bytes[0] > 200_000
    assert max(read_bytes[1:]) < 180_000, "tables, and the ends of files"


async def test_a_table_file_of_another_file_or_node_is_not_taken(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk(clean_stop=False, entries_count=3)
    await restarted(disk)
    found = TableFile.decode(disk.content(table_file_name(1)), 1)
    assert found is not None
    empty = attrs.evolve(found, proven_bytes=DATA_OFFSET)
    for alien in (
        attrs.evolve(found, instance=InstanceId("ee" * 16)).encode(1),
        attrs.evolve(found, salt=b"othersal").encode(1),
        found.encode(2),
        empty.encode(1),  # Written when less of the file was known to be synced.
    ):
        disk.overwrite(table_file_name(1), alien)
        node = await restarted(disk)
        assert await node.read(7, 2) == bytes([2]) * 1000
        made = TableFile.decode(disk.content(table_file_name(1)), 1)
        assert made is not None
        assert (made.salt, made.proven_bytes) == (found.salt, found.proven_bytes)


@pytest.mark.parametrize(
    ("header", "error", "message"),
    [
        (
            attrs.evolve(HEADER, instance=InstanceId("ee" * 16)),
            WrongDataDirectoryError,
            r"0001\.journal in .+ was written by instance e+ of .* `geolog node replace`",
        ),
        (
            attrs.evolve(HEADER, cluster_id="ff" * 16),
            WrongDataDirectoryError,
            "of cluster f+, but the directory belongs to",
        ),
        (
            attrs.evolve(HEADER, file_id=9),
            WrongDataDirectoryError,
            r"in .+ is journal file 0+9, renamed: restore the directory's own files",
        ),
    ],
    ids=["another node", "another cluster", "another name"],
)
async def test_a_foreign_file_is_refused_untouched(
    autojump_clock: MockClock,
    header: FileHeader,
    error: type[Exception],
    message: str,
) -> None:
    disk = MemoryDisk()
    await disk.create(file_name(1))
    disk.overwrite(file_name(1), header.encode())
    await disk.create("0000000000000002.journal.new")

    with pytest.raises(error, match=message):
        await restarted(disk)

    assert await disk.list() == [file_name(1), "0000000000000002.journal.new"]


@pytest.mark.parametrize("version", [1, FORMAT_VERSION + 1])
async def test_a_file_of_another_format_version_is_refused_untouched(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    disk = MemoryDisk()
    await disk.create(file_name(1))
    with monkeypatch.context() as patched:
        patched.setattr("regions.storage.protocol.records.FORMAT_VERSION", version)
        disk.overwrite(file_name(1), HEADER.encode())

    with pytest.raises(UnknownFormatError, match=rf"unknown .* format .* version {version};"):
        await restarted(disk)

    assert await disk.list() == [file_name(1)]


async def test_a_file_with_neither_header_puts_all_in_doubt_and_is_kept(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk(clean_stop=False, entries_count=3)
    await restarted(disk)
    await disk.remove(table_file_name(1))
    content = disk.content(file_name(1))
    disk.overwrite(file_name(1), bytes(DATA_OFFSET) + content[DATA_OFFSET:])

    node = await restarted(disk)

    assert node.ledgers.is_any_in_doubt
    assert file_name(1) in await disk.list()


async def test_a_start_on_a_full_disk_uses_the_space_that_was_taken_ahead(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(
        disk, file_bytes_max=1 << 20, ahead_bytes=1 << 20, clean_stop=False
    ) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
    used_bytes = disk.capacity_bytes - await disk.free_bytes()
    disk.faults = DiskFaults(full_at_bytes=used_bytes)

    node = await restarted(disk)

    assert await node.read(7, 0) == b"zero"


async def test_space_taken_ahead_is_given_back_before_the_tail_is_safe_but_the_tail_is_not(
    autojump_clock: MockClock,
) -> None:
    """The last record was synced and answered, but no mark says so."""
    disk = MemoryDisk()
    async with running(
        disk, file_bytes_max=1 << 20, ahead_bytes=1 << 20, clean_stop=False
    ) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
    disk = disk.crash()
    disk.faults = DiskFaults(write_failing=1)
    with pytest.raises(DiskFailedError):
        await restarted(disk)

    node = await restarted(disk.crash(keep_unsynced=True))

    assert await node.read(7, 0) == b"zero"


async def test_a_table_file_stands_in_for_a_damaged_header_only_if_it_is_this_node_s(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk(clean_stop=False, entries_count=3)
    await restarted(disk)
    content = disk.content(file_name(1))
    disk.overwrite(file_name(1), bytes(DATA_OFFSET) + content[DATA_OFFSET:])

    node = await restarted(disk)
    assert await node.read(7, 2) == bytes([2]) * 1000
    assert not node.ledgers.is_any_in_doubt

    found = TableFile.decode(disk.content(table_file_name(1)), 1)
    assert found is not None
    alien = attrs.evolve(found, instance=InstanceId("ee" * 16))
    disk.overwrite(table_file_name(1), alien.encode(1))
    node = await restarted(disk)
    assert await node.read(7, 2) is Answer.UNKNOWN


async def test_a_table_file_tells_that_there_was_a_next_file(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)

    for _ in range(2):
        node = await restarted(await aged.without(LAST_NAME))
        assert await node.read(*NEVER_ADDED) is Answer.UNKNOWN
        assert node.journal.file_id == 5, "the lost one's id is not used again"


async def test_a_start_without_any_space_says_so_and_a_later_one_succeeds(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk(clean_stop=True, entries_count=3)
    disk.faults = DiskFaults(full_at_bytes=0)
    with pytest.raises(DiskFullError, match="No space left"):
        await restarted(disk)

    disk.faults = DiskFaults()
    node = await restarted(disk)

    assert await node.read(7, 2) == bytes([2]) * 1000
    assert not [name for name in await disk.list() if name.endswith(".new")]


@pytest.mark.parametrize("clean_stop", [True, False], ids=["stopped", "killed"])
async def test_starts_that_end_early_leave_nothing_behind(
    autojump_clock: MockClock, *, clean_stop: bool
) -> None:
    disk = await a_disk(clean_stop=clean_stop)
    noted = (await restarted(disk)).journal.end
    names, free_bytes = await disk.list(), await disk.free_bytes()

    for _ in range(5):
        node = await restarted(disk, noted=noted)
        assert node.journal.end == noted
        assert await node.read(7, 199) == bytes([199]) * 1000
        assert not node.ledgers.is_any_in_doubt

    assert (await disk.list(), await disk.free_bytes()) == (names, free_bytes)


async def test_an_empty_file_that_metadata_knows_to_have_been_written_is_refused(
    autojump_clock: MockClock,
) -> None:
    disk = await a_disk(clean_stop=True)
    await restarted(disk)

    with pytest.raises(OlderDiskError):
        await restarted(disk, noted=JournalEnd(2, DATA_OFFSET + 1))


@pytest.mark.parametrize("call", ["write_failing", "sync_failing"])
@pytest.mark.parametrize("seed", sampled(range(20), one_in=2))
async def test_a_start_that_is_cut_off_anywhere_loses_nothing(
    autojump_clock: MockClock, call: str, seed: int
) -> None:
    """At each of its writes and syncs, repeatedly, on the disk that remains."""
    is_marked = seed % 3 > 0  # Without it, the last record is above all that is proven.
    aged = await an_aged_disk(clean_stop=seed % 2 == 0 and is_marked, is_marked=is_marked)
    disk = await aged.without(TABLE_NAME)
    noted = aged.end if is_marked else NO_END
    chance = Random(seed)
    cut_off_count = 0

    for failing in range(1, 9):
        disk = disk.crash(keep_unsynced=chance)
        disk.faults = DiskFaults(**{call: failing})
        try:
            await restarted(disk, noted=noted)
        except DiskFailedError:
            cut_off_count += 1
    disk = disk.crash(keep_unsynced=chance)

    assert cut_off_count >= 1
    node = await restarted(disk, noted=noted)
    assert await answers_of(node) == list(BODIES.values())
    assert await node.read(*NEVER_ADDED) is Answer.ABSENT
    await check_nothing_is_lost_silently(node)


async def test_power_loss_after_two_starts_killed_anywhere_loses_nothing(
    autojump_clock: MockClock,
) -> None:
    """A killed start leaves names in memory only, and power loss takes any of them."""
    chance = Random(1)
    written = MemoryDisk()
    async with running(written, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
    calls_count = await calls_of_start_cut_at(None, written.handed_on())

    for first, second in product(range(1, calls_count + 1), repeat=2):
        disk = written.handed_on()
        for at in (first, second):
            await calls_of_start_cut_at(at, disk)
            disk = disk.handed_on()
        for _ in range(10):
            node = await restarted(disk.crash(keep_unsynced=chance))

            assert not node.ledgers.is_any_in_doubt, (first, second)
            assert await node.read(7, 0) == b"zero"
            assert await node.read(7, 1) is Answer.ABSENT


async def calls_of_start_cut_at(call: int | None, disk: MemoryDisk) -> int:
    """Start, and end at this call; the number of calls made, not counting reads."""
    cut = Failure(call, calls=ALL_CALLS - {DiskCall.READ})
    with suppress(DiskFailedError):
        await restarted(FailingDisk(disk, cut))
    return cut.seen_count


async def test_a_table_file_that_finds_no_space_is_left_out(autojump_clock: MockClock) -> None:
    disk = await a_disk(clean_stop=False, entries_count=200)
    used_bytes = disk.capacity_bytes - await disk.free_bytes()
    disk.faults = DiskFaults(full_at_bytes=used_bytes + 6000)

    node = await restarted(disk)

    assert await node.read(7, 199) == bytes([199]) * 1000
    assert await disk.list() == [file_name(1), file_name(2)]


async def test_a_clean_stop_on_a_full_disk_loses_nothing(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    async with running(disk) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
        disk.faults = DiskFaults(full_at_bytes=1)
    disk.faults = DiskFaults()

    node = await restarted(disk.crash())

    assert await node.read(7, 0) == b"zero"


async def test_a_journal_told_not_to_roll_grows_past_its_size(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=6000) as node:
        node.journal.postpones_roll = True
        for entry in range(10):
            node.add(7, entry, b"x" * 1000)
            await node.journal.wait_synced()
        assert node.journal.file_id == 1
        node.journal.postpones_roll = False
        node.add(7, 10, b"x")
        await node.journal.wait_synced()
        assert node.journal.file_id == 2
