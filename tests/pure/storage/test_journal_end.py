"""The notes of a journal's end in metadata, and their timing."""

from functools import partial

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import InstanceId
from regions.storage.journal import JournalEnd
from regions.storage.journal_end import NO_END, JournalEndNote, JournalEnds
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from tests.pure.storage.journals import running

INSTANCE = InstanceId("ab" * 16)

ends = st.lists(st.builds(JournalEnd, st.integers(0, 3), st.integers(0, 3)), max_size=3)


@given(ends, ends)
def test_ends_of_directories_only_rise(before: list[JournalEnd], now: list[JournalEnd]) -> None:
    risen = JournalEnds(tuple(before)).risen_to(now)

    for directory in range(4):
        known = [each[directory] for each in (before, now) if directory < len(each)]
        assert risen.of(directory) == max(known, default=NO_END)


async def writes_count(metadata: MemoryMetadata) -> int:
    """Number of times the note was written."""
    return (await metadata.get(ClusterPaths("default").journal(INSTANCE))).version


async def test_a_note_is_found_again_directory_by_directory(autojump_clock: MockClock) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        note = JournalEndNote(metadata, "default", INSTANCE)
        assert await note.find() == JournalEnds()

        await note.note([JournalEnd(3, 100), JournalEnd(2, 50)])
        await note.note([JournalEnd(3, 90), JournalEnd(4, 10)])

        found = await JournalEndNote(metadata, "default", INSTANCE).find()
        assert (found.of(0), found.of(1)) == (JournalEnd(3, 100), JournalEnd(4, 10))
        assert found.of(2) == NO_END


async def test_growth_is_noted_now_and_then_and_a_new_file_soon(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        running(MemoryDisk(), file_bytes_max=9000) as node,
        trio.open_nursery() as nursery,
    ):
        note = JournalEndNote(metadata, "default", INSTANCE)
        nursery.start_soon(note.run, [node.journal])
        await trio.sleep(1.5)
        for entry in range(20):
            node.add(7, entry, b"x" * 10)
            await trio.sleep(1)
        assert 1 <= await writes_count(metadata) <= 3
        await trio.sleep(12)
        assert (await note.find()).of(0) == node.journal.end

        count_idle = await writes_count(metadata)
        await trio.sleep(100)
        assert await writes_count(metadata) == count_idle, (
            "nothing was written, so nothing is noted"
        )

        node.add(7, 20, b"x" * 8000)
        await trio.sleep(1.5)
        assert (await note.find()).of(0).file_id == 2
        nursery.cancel_scope.cancel(reason="seen enough")


async def test_appends_go_on_while_metadata_is_away(autojump_clock: MockClock) -> None:
    synced: list[int] = []
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        running(MemoryDisk(), file_bytes_max=6000) as node,
        trio.open_nursery() as nursery,
    ):
        note = JournalEndNote(metadata, "default", INSTANCE)
        nursery.start_soon(note.run, [node.journal])
        await trio.sleep(1.5)
        metadata.cut_off()
        for entry in range(20):
            node.add(7, entry, b"x" * 1000)
            node.journal.when_synced(partial(synced.append, entry))
            await trio.sleep(0.1)
        assert synced == list(range(20))
        metadata.restore()
        await trio.sleep(30)
        assert (await note.find()).of(0) == node.journal.end
        nursery.cancel_scope.cancel(reason="seen enough")
