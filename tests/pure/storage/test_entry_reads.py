"""Entries spread over files are read with one call per file, as if each were read alone."""

from collections.abc import Sequence

import attrs
import trio
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.messages import Answer
from regions.storage.disk import FilePieces, Piece, UnreadableError
from regions.storage.entries import EntryStore, JournalFile
from regions.storage.protocol.ledgers import Ledgers
from regions.storage.protocol.tables import OpenTable
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import restarted
from tests.system.planted_disks import FileAsItIs

LEDGER = LedgerId(7)
GAP_BYTES = 40_000
"""Too many to read along."""


@attrs.frozen
class PatchyFile(FileAsItIs):
    """A file with some unreadable bytes; it counts the reads."""

    bad: set[int] = attrs.field(factory=set)
    asked: list[Sequence[Piece]] = attrs.field(factory=list)
    soon: list[list[str]] = attrs.field(factory=list)
    """The files that each call named to be read next."""

    async def read(self, offset: int, length: int) -> bytes:
        if any(offset <= place < offset + length for place in self.bad):
            raise UnreadableError(f"cannot read {self.name}: Input/output error")
        return await super().read(offset, length)

    async def read_many(
        self, pieces: Sequence[Piece], *, soon: Sequence[FilePieces] = ()
    ) -> list[bytes]:
        self.asked.append(pieces)
        self.soon.append([file.name for file, _ in soon])
        return await super().read_many(pieces)


@attrs.frozen
class Stored:
    """One entry as stored in a file."""

    is_behind_gap: bool
    is_rotten: bool = False
    is_unreadable: bool = False


async def filled(files: list[list[Stored]]) -> tuple[EntryStore, list[PatchyFile]]:
    """The entries of one ledger, in order over these files."""
    store = EntryStore(Ledgers(InstanceId("0" * 32)), cached_bytes_max=0)
    made: list[PatchyFile] = []
    number = 0
    for file_id, stored in enumerate(files):
        opened = PatchyFile(await MemoryDisk().create(str(file_id)))
        table, offset = OpenTable(), 0
        for one in stored:
            body = body_of(number)
            offset += GAP_BYTES if one.is_behind_gap else 0
            await opened.write(offset, [b"rot" + body[3:] if one.is_rotten else body])
            table.add(LEDGER, number, offset, len(body), crc32c(body))
            if one.is_unreadable:
                opened.bad.add(offset)
            offset += len(body)
            number += 1
        store.add_file(JournalFile(file_id, opened, table))
        made.append(opened)
    return store, made


def body_of(entry: int) -> bytes:
    return f"the body of entry {entry}".encode()


@given(
    st.lists(
        st.lists(
            st.builds(
                Stored,
                is_behind_gap=st.booleans(),
                is_rotten=st.booleans(),
                is_unreadable=st.booleans(),
            ),
            max_size=6,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_each_entry_is_answered_as_if_it_were_alone(files: list[list[Stored]]) -> None:
    async def run() -> None:
        store, _ = await filled(files)
        all_of_them = [one for stored in files for one in stored]

        answers = await store.read(LEDGER, EntryId(0), len(all_of_them) + 1, 1 << 20)

        assert len(answers) == len(all_of_them) + 1
        assert answers[-1].answer is Answer.ABSENT
        for entry, one in enumerate(all_of_them):
            is_bad = one.is_rotten or one.is_unreadable
            assert answers[entry].answer is (Answer.CORRUPT if is_bad else Answer.HAVE)
            assert bytes(answers[entry].body) == (b"" if is_bad else body_of(entry))

    trio.run(run)


async def test_one_call_reads_all_entries_spread_over_a_file() -> None:
    store, files = await filled([[Stored(is_behind_gap=True)] * 50] * 2)

    answers = await store.read(LEDGER, EntryId(0), 100, 1 << 20)

    assert {answer.answer for answer in answers} == {Answer.HAVE}
    assert [len(pieces) for file in files for pieces in file.asked] == [50, 50]


async def test_the_first_call_of_several_names_the_files_that_are_read_next() -> None:
    store, files = await filled([[Stored(is_behind_gap=True)] * 3] * 3)

    await store.read(LEDGER, EntryId(0), 9, 1 << 20)

    assert [file.soon for file in files] == [[["1", "2"]], [["2"]], [[]]]


async def test_the_cache_counts_the_overhead_of_small_entries(
    autojump_clock: MockClock,
) -> None:
    node = await restarted(MemoryDisk(), cached_bytes_max=30_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.journal.run)
        node.open_ledger(LEDGER)
        for entry in range(1000):
            node.add(LEDGER, entry, b"1")
        await node.journal.wait_synced()
        nursery.cancel_scope.cancel()

    cached = [
        entry
        for entry in range(1000)
        if node.entries.read_in_memory(LEDGER, EntryId(entry), 1, 100) is not None
    ]
    assert 0 < len(cached) < 200
    assert cached[-1] == 999
