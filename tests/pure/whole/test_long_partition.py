"""A partition with thousands of segments is used like any other."""

from trio.testing import MockClock

import geolog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.protocol.stream_state import StreamName
from sim.studies.long_partition import LongPartition, RealPlace
from tests.pure.whole.clusters import STREAM, World, open_world, values_of

BEGINS_US = 1_600_000_000_000_000


async def make_long(world: World, segments_count: int) -> list[RealPlace]:
    """Real segments at the start, middle and end; the others exist only in metadata."""
    access = world.log.access
    stream = await StreamCatalog(access.metadata, access.paths).read(StreamName.parse(STREAM))
    made = LongPartition(access, stream, begins_us=BEGINS_US)
    places = [await made.write_real()]
    for _ in range(2):
        await made.make(segments_count // 2 - 1)
        places.append(await made.write_real())
    assert made.segments_count == segments_count + 1
    return places


async def first_at(log: geolog.Log, start: geolog.Bound) -> geolog.Record:
    async with log.open_reader(STREAM, start=start) as reader:
        async for record in reader:
            return record
    raise AssertionError(f"nothing is at {start}")


async def test_it_can_be_read_from_anywhere_appended_to_and_truncated(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        places = await make_long(world, 2400)
        for place in places:
            assert (await first_at(world.log, place.sequence)).value == b"10"
            assert (await first_at(world.log, place.transaction)).value == b"10"
            assert (await first_at(world.log, place.time)).value == b"0"
        assert (await first_at(world.log, geolog.EARLIEST)).sequence == 0

        listed = await world.log.list_segments(STREAM, limit=3)
        assert [one.segment for one in listed] == [2399, 2400, 2401]

        async with world.log.open_writer(STREAM) as writer:
            receipt = await writer.append(b"one more")
        assert receipt.dlsn.segment == 2402
        last = places[-1].sequence.sequence
        await world.log.truncate_stream(STREAM, before=places[-1].sequence)
        assert await values_of(world.log) == [
            *(b"%d" % number for number in range(10, 20)),
            b"one more",
        ]
        described = await world.log.describe_stream(STREAM)
        assert described.partition_list[0].first_sequence == last
        assert described.partition_list[0].segments_count == 2
