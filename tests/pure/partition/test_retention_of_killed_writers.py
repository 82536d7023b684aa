"""Segments closed by recovery count with their bytes, which no writer recorded."""

import random
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from geolog.catalog.segment_records import SegmentRecords
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.stream_state import SegmentRecord
from tests.pure.whole.clusters import World, open_world, partition_of

SHORT = "shop/short"
VALUE_BYTES = 20_000


async def segments_of(world: World) -> list[SegmentRecord]:
    access = world.log.access
    records = SegmentRecords(access.metadata, ClusterPaths(access.cluster))
    return [
        one.record for one in await records.all(await partition_of(world.log, stream=SHORT))
    ]


@pytest.mark.parametrize("writer_id", [None, "till"])
async def test_retention_by_size_works_when_all_writers_are_killed(
    writer_id: str | None, autojump_clock: MockClock
) -> None:
    rng = random.Random(1)
    async with open_world() as world, AsyncExitStack() as fenced:
        await world.log.create_stream(SHORT, survive="1 region", retention_bytes=200_000)
        for _ in range(20):
            writer = await fenced.enter_async_context(
                world.log.open_writer(SHORT, writer_id=writer_id)
            )
            for _ in range(2):
                await writer.append(rng.randbytes(VALUE_BYTES))
        await trio.sleep(120)
        async with world.log.open_reader(SHORT) as reader:
            found = [record.sequence async for record in reader]
        listed = await segments_of(world)

    assert found == list(range(found[0], 40))
    assert 200_000 <= VALUE_BYTES * len(found) <= 300_000
    for one, other in pairwise(listed):
        assert other.size_bytes_before == one.size_bytes_through
        assert one.size_bytes is not None
        assert 0 <= one.size_bytes - 2 * VALUE_BYTES <= 2_000
