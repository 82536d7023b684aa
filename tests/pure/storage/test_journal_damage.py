"""Rot and torn tails: damage is never served, and never read as absence."""

from collections.abc import Iterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId
from geolog.protocol.messages import Add, Answer
from geolog.protocol.replica import AcknowledgeAdd, Effect
from regions.protocol.records import (
    DATA_OFFSET,
    HEADER_COPY_OFFSETS,
    RECORD_HEADER_BYTES,
    file_name,
)
from regions.protocol.table_files import table_file_name
from sim.memory_disk import MemoryDisk
from tests.pure.storage.journals import IDENTITY, Running, restarted, running

BODIES = {
    (7, 0): b"zero",
    (7, 1): b"one, " * 10,
    (8, 0): b"of another ledger",
    (7, 2): b"two",
}
FENCED = LedgerId(9)
NEVER_ADDED = (7, 3)


@attrs.frozen
class Aged:
    """A disk on which much has happened, and where in its files anything stands."""

    disk: MemoryDisk
    sealed_name: str
    last_name: str

    def places(self, name: str) -> Iterator[int]:
        """Offsets of all bytes that mean something."""
        for start in HEADER_COPY_OFFSETS:
            yield from range(start, start + 96)
        yield from range(DATA_OFFSET, len(self.disk.content(name)))

    def with_content(self, name: str, content: bytes) -> MemoryDisk:
        disk = self.disk.crash(keep_unsynced=True)
        disk.overwrite(name, content)
        return disk

    def with_flip(self, name: str, offset: int, bit: int) -> MemoryDisk:
        content = bytearray(self.disk.content(name))
        content[offset] ^= 1 << bit
        return self.with_content(name, bytes(content))


async def an_aged_disk(*, clean_stop: bool) -> Aged:
    """Two files: one that was sealed when it was full, and the last."""
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=4600, clean_stop=clean_stop) as node:
        node.open_ledger(7)
        node.open_ledger(8)
        node.open_ledger(FENCED)
        await node.journal.wait_synced()
        for (ledger, entry), body in BODIES.items():
            node.add(ledger, entry, body, lac=entry - 1)
            await node.journal.wait_synced()
            if (ledger, entry) == (7, 1):
                node.fence(FENCED, 2)
                await node.journal.wait_synced()
        await trio.sleep(1)  # The last mark is written.
    names = [file_name(1), file_name(2)]
    assert await disk.list() == names, "the sizes above are chosen to give two files"
    return Aged(disk, *names)


async def check_nothing_is_lost_silently(node: Running) -> None:
    for (ledger, entry), body in BODIES.items():
        assert await node.read(ledger, entry) in (body, Answer.CORRUPT, Answer.UNKNOWN)
    assert await node.read(*NEVER_ADDED) in (Answer.ABSENT, Answer.UNKNOWN)
    fenced = node.ledgers.replica_of(FENCED)
    add = Add(
        ordinal=1,
        ledger=FENCED,
        entry=EntryId(0),
        epoch=Epoch(1),
        lac=NO_ENTRY,
        is_recovery=False,
        wants_received=False,
        instance=IDENTITY.instance,
        body=b"",
        body_crc=0,
    )
    effects: list[Effect] = fenced.on(add, node.entries.held)
    assert AcknowledgeAdd(1) not in effects


async def answers_of(node: Running) -> list[bytes | Answer]:
    return [await node.read(*key) for key in BODIES]


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_no_single_flip_is_served_or_read_as_absence(
    autojump_clock: MockClock, end: str
) -> None:
    aged = await an_aged_disk(clean_stop=end == "stopped")
    # However the process ended, the sealed file is the same.
    names = [aged.sealed_name, aged.last_name] if end == "stopped" else [aged.last_name]
    noticed_count = 0

    for name in names:
        for offset in aged.places(name):
            for bit in range(8):
                node = await restarted(aged.with_flip(name, offset, bit))
                try:
                    await check_nothing_is_lost_silently(node)
                except AssertionError as error:
                    error.add_note(f"bit {bit} of byte {offset} of {name} was flipped")
                    raise
                noticed_count += await answers_of(node) != list(BODIES.values())
    assert noticed_count > 100


async def test_a_shortened_sealed_file_is_never_taken_for_whole(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=False)
    whole = aged.disk.content(aged.sealed_name)

    for length in range(len(whole)):
        node = await restarted(aged.with_content(aged.sealed_name, whole[:length]))
        await check_nothing_is_lost_silently(node)
        assert await node.read(*NEVER_ADDED) is Answer.UNKNOWN


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


async def test_rot_of_a_body_is_corrupt_and_of_that_entry_alone(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)
    offset = aged.disk.content(aged.sealed_name).index(BODIES[7, 1])

    node = await restarted(aged.with_flip(aged.sealed_name, offset, 0))

    assert await answers_of(node) == [
        Answer.CORRUPT if key == (7, 1) else body for key, body in BODIES.items()
    ]
    assert await node.read(*NEVER_ADDED) is Answer.ABSENT
    assert node.entries.statistics().corrupt_count == 1


async def test_a_damaged_table_is_made_anew_from_the_records(autojump_clock: MockClock) -> None:
    aged = await an_aged_disk(clean_stop=True)
    sealed_bytes = len(aged.disk.content(aged.sealed_name))

    node = await restarted(aged.with_flip(aged.sealed_name, sealed_bytes - 60, 0))

    assert await answers_of(node) == list(BODIES.values())
    assert not node.ledgers.is_any_in_doubt


async def test_damage_of_table_and_last_mark_together_is_not_taken_for_a_torn_tail(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)
    content = bytearray(aged.disk.content(aged.sealed_name))
    last_body = bytes(content).rindex(BODIES[7, 1])
    content[last_body - RECORD_HEADER_BYTES :] = b"?" * len(
        content[last_body - RECORD_HEADER_BYTES :]
    )

    node = await restarted(aged.with_content(aged.sealed_name, bytes(content)))

    await check_nothing_is_lost_silently(node)
    assert await node.read(7, 1) is Answer.UNKNOWN


async def test_a_missing_file_puts_what_it_may_have_held_in_doubt(
    autojump_clock: MockClock,
) -> None:
    aged = await an_aged_disk(clean_stop=True)
    disk = aged.disk.crash(keep_unsynced=True)
    await disk.remove(aged.sealed_name)

    node = await restarted(disk)

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
    await disk.remove(table_file_name(1))  # Which would tell what was in it.

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
