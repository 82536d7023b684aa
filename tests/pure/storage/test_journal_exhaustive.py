"""Every bit flip and every cut of a file is noticed, or changes nothing.

The disk is a small one on which everything has happened (`aged_disks`); flips are in files
whose last mark is written. Damage in a group that power loss left without a mark is a torn
tail by definition.
"""

import logging

import pytest
from trio.testing import MockClock

from geolog.protocol.messages import Answer
from regions.storage.journal_end import OlderDiskError
from regions.storage.protocol.records import RECORD_HEADER_BYTES, file_name
from regions.storage.protocol.table_files import TableFile
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.aged_disks import (
    BODIES,
    CRASHED_NAME,
    LAST_NAME,
    NAMES,
    NEVER_ADDED,
    SEALED_NAME,
    TABLE_NAME,
    Aged,
    an_aged_disk,
    answers_of,
    check_nothing_is_lost_silently,
)
from tests.pure.storage.journals import restarted, running
from tests.pure.thinned import thinned

WHOLE = list(BODIES.values())


@pytest.fixture(autouse=True)
def without_log(caplog: pytest.LogCaptureFixture) -> None:
    """Logging thousands of damages would take longer than finding them."""
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("end", [pytest.param("stopped", marks=pytest.mark.long), "killed"])
async def test_no_single_flip_is_served_or_read_as_absence(
    autojump_clock: MockClock, end: str
) -> None:
    aged = await an_aged_disk(clean_stop=end == "stopped")
    # However the process ended, the older files are the same.
    names = NAMES if end == "stopped" else [LAST_NAME]
    tried_count = noticed_count = 0

    for name in names:
        for offset in thinned(list(aged.places(name)), one_in=7):
            for bit in range(8):
                tried_count += 1
                node = await restarted(aged.with_flip(name, offset, bit), noted=aged.end)
                try:
                    answers = await check_nothing_is_lost_silently(node)
                except AssertionError as error:
                    error.add_note(f"bit {bit} of byte {offset} of {name} was flipped")
                    raise
                noticed_count += answers != WHOLE
    assert noticed_count > tried_count / 40


async def test_no_flip_of_a_table_file_does_more_than_cost_a_walk(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)

    for offset in aged.places(TABLE_NAME):
        node = await restarted(aged.with_flip(TABLE_NAME, offset, offset % 8), noted=aged.end)
        assert await answers_of(node) == WHOLE
        assert await node.read(*NEVER_ADDED) is Answer.ABSENT


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_a_last_file_cut_below_what_was_noted_is_refused_at_every_length(
    autojump_clock: MockClock, end: str
) -> None:
    aged = await an_aged_disk(clean_stop=end == "stopped")
    whole = aged.disk.content(LAST_NAME)

    for length in range(len(whole)):
        disk = aged.with_content(LAST_NAME, whole[:length])
        if length < aged.end.offset:
            await check_refused(disk, aged)
        else:
            node = await restarted(disk, noted=aged.end)
            assert await answers_of(node) == WHOLE


async def check_refused(disk: MemoryDisk, aged: Aged) -> None:
    """Refused, without any change."""
    contents = {name: disk.content(name) for name in await disk.list()}

    with pytest.raises(OlderDiskError, match="geolog node replace node-1"):
        await restarted(disk, noted=aged.end)

    assert {name: disk.content(name) for name in await disk.list()} == contents


@pytest.mark.parametrize("name", [SEALED_NAME, CRASHED_NAME])
@pytest.mark.parametrize(
    "has_table_file",
    [
        pytest.param(True, id="table file", marks=pytest.mark.long),
        pytest.param(False, id="no table file"),
    ],
)
async def test_an_older_file_cut_at_any_length_is_never_taken_for_whole(
    autojump_clock: MockClock, name: str, *, has_table_file: bool
) -> None:
    aged = await an_aged_disk(clean_stop=False)
    whole = aged.disk.content(name)
    # After its last mark, a file that a crash ended holds nothing needed.
    needed_bytes = len(whole) - (RECORD_HEADER_BYTES if name == CRASHED_NAME else 0)

    for length in thinned(range(needed_bytes), one_in=5):
        disk = aged.with_content(name, whole[:length])
        if not has_table_file:
            await disk.remove(TABLE_NAME)
        node = await restarted(disk, noted=aged.end)
        await check_nothing_is_lost_silently(node)
        assert await node.read(*NEVER_ADDED) is Answer.UNKNOWN


async def test_a_table_file_cut_at_any_length_costs_a_walk(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)
    whole = aged.disk.content(TABLE_NAME)

    for length in range(len(whole)):
        disk = aged.with_content(TABLE_NAME, whole[:length])
        node = await restarted(disk, noted=aged.end)
        assert await answers_of(node) == WHOLE
        assert not node.ledgers.is_any_in_doubt
        assert TableFile.decode(disk.content(TABLE_NAME), 3), "it is rebuilt"


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_a_last_file_that_is_zero_from_anywhere_on_is_not_taken_for_space_taken_ahead(
    autojump_clock: MockClock, end: str
) -> None:
    """An older copy looks like that if its file had taken as much space ahead."""
    aged = await an_aged_disk(clean_stop=end == "stopped")
    whole = aged.disk.content(LAST_NAME)
    refused_count = 0

    for length in range(aged.end.offset):
        disk = aged.with_content(LAST_NAME, whole[:length].ljust(len(whole), b"\0"))
        try:
            node = await restarted(disk, noted=aged.end)
        except OlderDiskError:
            refused_count += 1
        else:
            await check_nothing_is_lost_silently(node)
    assert refused_count > 50


async def test_any_one_or_two_lost_files_are_noticed(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)
    journals = [SEALED_NAME, CRASHED_NAME]

    for names in [*([name] for name in journals), journals]:
        node = await restarted(await aged.without(*names), noted=aged.end)
        await check_nothing_is_lost_silently(node)
        assert await node.read(*NEVER_ADDED) is Answer.UNKNOWN
    for name in journals:
        await check_refused(await aged.without(name, LAST_NAME), aged)


async def test_the_end_noted_in_metadata_is_proof_without_a_mark(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero")
        await node.journal.wait_synced()
        end = node.journal.end
    content = disk.content(file_name(1))
    assert len(content) == end.offset, "no mark was written"
    first_record = len(content) - 2 * RECORD_HEADER_BYTES - len(b"zero")

    for place in range(first_record, len(content)):
        damaged = disk.crash()
        flipped = bytearray(content)
        flipped[place] ^= 1
        damaged.overwrite(file_name(1), bytes(flipped))
        node = await restarted(damaged, noted=end)
        assert await node.read(7, 0) in (b"zero", Answer.CORRUPT, Answer.UNKNOWN)


async def test_a_second_restart_reports_the_same_damage(autojump_clock: MockClock) -> None:
    """The first one begins a file and writes table files: that must not hide the damage."""
    aged = await an_aged_disk(clean_stop=False)

    for name in (SEALED_NAME, CRASHED_NAME, LAST_NAME):
        for offset in list(aged.places(name))[::5]:
            disk = aged.with_flip(name, offset, offset % 8)
            await disk.remove(TABLE_NAME)
            first = await restarted(disk, noted=aged.end)
            noted = first.journal.end
            answers = [await answers_of(first), await first.read(*NEVER_ADDED)]
            again = await restarted(disk, noted=noted)
            await check_nothing_is_lost_silently(again)
            told = [await answers_of(again), await again.read(*NEVER_ADDED)]
            assert told == answers, f"byte {offset} of {name}"


async def test_the_aged_disk_has_the_described_history(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)

    node = await restarted(aged.disk, noted=aged.end)

    assert await answers_of(node) == WHOLE
    assert await node.read(*NEVER_ADDED) is Answer.ABSENT
    assert not node.ledgers.is_any_in_doubt
