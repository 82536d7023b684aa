"""Everything that is written to a stream carries the stream's home epoch."""

import pytest
from trio.testing import MockClock

import geolog
from geolog.admin.ledger_entries import EntryDetails, details_of, ledger_end, read_entries
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, StreamName
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    move_home,
    numbered,
    open_world,
    partition_of,
    records_of,
    values_of,
)


async def entries_of(world: World, ledger: LedgerId) -> list[EntryDetails]:
    taken: list[FetchedEntry] = []
    record = (await world.log.access.ledgers.read(ledger)).record
    end = await ledger_end(world.log.access, record)
    await read_entries(world.log.access, record, EntryId(0), end, taken.append)
    return [details_of(one) for one in taken]


async def test_a_new_stream_has_the_first_home_epoch(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        catalog = StreamCatalog(world.log.access.metadata, world.log.access.paths)

        assert (await catalog.read(StreamName.parse(STREAM))).home_epoch == FIRST_HOME_EPOCH


async def test_receipts_records_segments_and_entries_carry_the_home_epoch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await move_home(world, 7)
        receipts = []
        for _ in range(2):  # The second owner begins with a snapshot, which is a control entry.
            async with world.log.open_writer(STREAM) as writer:
                receipts += await append_each(writer, numbered(2))
        records = await records_of(world.log)
        listed = await world.log.access.partitions.segments.all(await partition_of(world.log))
        segments = [one.record for one in listed]
        entries = [one for each in segments for one in await entries_of(world, each.ledger)]

    assert [receipt.position.home_epoch for receipt in receipts] == [7] * 4
    assert {record.position.home_epoch for record in records} == {7}
    assert [segment.home_epoch for segment in segments] == [7, 7]
    assert {entry.home_epoch for entry in entries} == {7}
    assert {entry.kind for entry in entries} == {"data", "control"}


async def test_a_position_is_read_from_if_the_stream_has_had_its_home_epoch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await move_home(world, 7)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))

        there = geolog.AtSequence(1, home_epoch=7)
        earlier = geolog.AtSequence(1, home_epoch=1)  # No fork is before it.
        for start in (there, geolog.AtSequence(1), earlier):
            assert await values_of(world.log, start=start) == numbered(2, start=1)
        with pytest.raises(geolog.InvalidArgumentError, match="its homes have 1 to 7"):
            await values_of(world.log, start=geolog.AtSequence(1, home_epoch=8))


async def test_a_stream_that_exists_is_the_same_whatever_its_home_epoch(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        record = await move_home(world, 7)
        await world.log.create_stream(
            STREAM, survive="1 region", segment_bytes=record.segment_bytes, if_not_exists=True
        )
