"""A disk on which everything that can happen to a journal has happened."""

from collections.abc import Iterator

import attrs
import trio

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId
from geolog.protocol.messages import Add, Answer
from geolog.protocol.replica import AcknowledgeAdd
from regions.storage.journal import JournalEnd
from regions.storage.protocol.records import (
    DATA_OFFSET,
    FILE_HEADER_BYTES,
    HEADER_COPY_OFFSETS,
    delete_record,
    file_id_of,
    file_name,
)
from regions.storage.protocol.table_files import table_file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import IDENTITY, Running, running

BODIES = {
    (7, 0): b"zero, which was copied when its file was retired",
    (8, 0): b"of another ledger",
    (7, 1): b"one, " * 8,
    (7, 2): b"two, of a file that a crash ended",
    (8, 1): b"the last",
}
NEVER_ADDED = (7, 3)
FENCED = LedgerId(9)
DELETED = LedgerId(6)

RETIRED_NAME = file_name(1)
SEALED_NAME = file_name(2)
CRASHED_NAME = file_name(3)
TABLE_NAME = table_file_name(3)
LAST_NAME = file_name(4)
NAMES = sorted([SEALED_NAME, CRASHED_NAME, TABLE_NAME, LAST_NAME])


@attrs.frozen
class Aged:
    """File 1 was retired, 2 is sealed, 3 was ended by a crash, 4 is the last.

    The third has a table file.
    """

    disk: MemoryDisk
    end: JournalEnd
    """As noted in metadata."""

    def places(self, name: str) -> Iterator[int]:
        """Offsets of all significant bytes."""
        content_bytes = len(self.disk.content(name))
        if file_id_of(name) is None:
            yield from range(content_bytes)
            return
        for start in HEADER_COPY_OFFSETS:
            yield from range(start, start + FILE_HEADER_BYTES)
        yield from range(DATA_OFFSET, content_bytes)

    def with_content(self, name: str, content: bytes) -> MemoryDisk:
        disk = self._found()
        disk.overwrite(name, content)
        return disk

    def with_flip(self, name: str, offset: int, bit: int) -> MemoryDisk:
        content = bytearray(self.disk.content(name))
        content[offset] ^= 1 << bit
        return self.with_content(name, bytes(content))

    async def without(self, *names: str) -> MemoryDisk:
        disk = self._found()
        for name in names:
            await disk.remove(name)
        return disk

    def _found(self) -> MemoryDisk:
        """The disk for the next process, which has only one task."""
        disk = self.disk.crash(keep_unsynced=True)
        disk.is_instant = True
        return disk


async def an_aged_disk(*, clean_stop: bool, is_marked: bool = True) -> Aged:
    """A node ran over three files and was killed; then it ran again and wrote a fourth."""
    disk = MemoryDisk()
    async with running(disk, file_bytes_max=4600, clean_stop=False) as node:
        await _fill_three_files(node)
        await node.journal.retire(1)
        await trio.sleep(1)
    disk = disk.crash(keep_unsynced=True)
    async with running(disk, clean_stop=clean_stop) as node:
        node.add(8, 1, BODIES[8, 1], lac=0)
        await node.journal.wait_synced()
        if is_marked:
            await trio.sleep(1)
    assert await disk.list() == NAMES
    return Aged(disk, node.journal.end)


async def _fill_three_files(node: Running) -> None:
    """File 1 has all promises, file 2 a copy of its entry."""
    for ledger in (7, 8, FENCED, DELETED):
        node.open_ledger(ledger)
    node.fence(FENCED, 2)
    node.add(7, 0, BODIES[7, 0])
    await node.journal.wait_synced()
    node.journal.append_nowait(delete_record(DELETED))
    node.ledgers.delete(DELETED)
    for ledger, entry in [(7, 0), (8, 0), (7, 1)]:
        node.add(ledger, entry, BODIES[ledger, entry], lac=entry - 1)
        await node.journal.wait_synced()
    assert node.journal.file_id == 2
    node.add(7, 2, BODIES[7, 2], lac=1)
    await node.journal.wait_synced()
    assert node.journal.file_id == 3


async def check_nothing_is_lost_silently(node: Running) -> list[bytes | Answer]:
    """Entries are present or known to be damaged; fences hold; deletions stand.

    Returns the answers for the entries, as `answers_of` does.
    """
    answers = await answers_of(node)
    for answer, body in zip(answers, BODIES.values(), strict=True):
        assert answer in (body, Answer.CORRUPT, Answer.UNKNOWN)
    assert await node.read(*NEVER_ADDED) in (Answer.ABSENT, Answer.UNKNOWN)
    assert AcknowledgeAdd(1) not in node.ledgers.replica_of(FENCED).on(
        _an_add_of_a_writer(FENCED), node.entries.held
    )
    assert DELETED in node.ledgers.deleted or node.ledgers.is_any_in_doubt
    return answers


def _an_add_of_a_writer(ledger: LedgerId) -> Add:
    return Add(
        ordinal=1,
        ledger=ledger,
        entry=EntryId(0),
        epoch=Epoch(1),
        lac=NO_ENTRY,
        is_recovery=False,
        wants_received=False,
        instance=IDENTITY.instance,
        body=b"",
        body_crc=0,
    )


async def answers_of(node: Running) -> list[bytes | Answer]:
    return [await node.read(*key) for key in BODIES]
