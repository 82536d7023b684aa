"""Sequential metadata round trips to open a stream, which dominate over a distance.

"far": a nearby server answers reads; only requests to its leader count (writes and syncs).
"all": no server is near, and every request counts.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from trio.testing import MockClock

from geolog.client.log import Log
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.clusters import REGIONS, STREAM, ended_by
from tests.pure.whole.distant_metadata import DistantClient, open_distant_client
from topology.errors import OutcomeUnknownError

near_and_far = pytest.mark.parametrize("is_read_nearby", [True, False], ids=["far", "all"])


@asynccontextmanager
async def open_site(
    *, is_read_nearby: bool
) -> AsyncIterator[tuple[InProcessCluster, Log, DistantClient]]:
    """A cluster with a stream, a client near metadata, and one far away."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east", host="near") as near,
        open_distant_client(cluster, is_read_nearby=is_read_nearby) as far,
    ):
        await near.create_stream("shop/first", survive="1 region")
        async with near.open_writer("shop/first"):
            pass
        yield cluster, near, far


@near_and_far
async def test_creating_a_stream_and_opening_its_first_writer(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, _, far):
        count = far.count()
        await far.log.create_stream(STREAM, survive="1 region")
        assert count.trips == (1 if is_read_nearby else 4)

        count = far.count()
        async with far.log.open_writer(STREAM) as writer:
            # Catch up with the owner's record, become the owner, activate the first ledger,
            # which is made meanwhile.
            assert count.trips == (3 if is_read_nearby else 6)
            await writer.append(b"first")


@near_and_far
async def test_opening_a_writer_of_a_released_stream(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, near, far):
        await near.create_stream(STREAM, survive="1 region")
        async with near.open_writer(STREAM) as writer:
            await writer.append(b"before")

        count = far.count()
        async with far.log.open_writer(STREAM) as writer:
            assert count.trips == (3 if is_read_nearby else 7)
            assert (await writer.append(b"after")).sequence == 1


@near_and_far
@pytest.mark.parametrize("partitions", [1, 8])
async def test_opening_a_named_writer_of_a_released_stream(
    autojump_clock: MockClock, *, partitions: int, is_read_nearby: bool
) -> None:
    """One read more than without a name: how many partitions there are after the fences."""
    async with open_site(is_read_nearby=is_read_nearby) as (_, near, far):
        await near.create_stream(STREAM, survive="1 region", partitions=partitions)
        async with near.open_writer(STREAM):
            pass

        trips = []
        for writer_id in (None, "till-7"):
            count = far.count()
            async with far.log.open_writer(STREAM, writer_id=writer_id):
                trips.append(count.trips)
        assert trips[1] - trips[0] == 1


@near_and_far
async def test_taking_a_stream_from_its_writer(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, near, far):
        await near.create_stream(STREAM, survive="1 region")
        with ended_by(OutcomeUnknownError):
            async with near.open_writer(STREAM) as deposed:
                await deposed.append(b"before")
                count = far.count()
                async with far.log.open_writer(STREAM) as writer:
                    # Also the ledger's epoch, its end, and the segment's end.
                    assert count.trips == (6 if is_read_nearby else 11)
                    assert (await writer.append(b"after")).sequence == 1
                await deposed.append(b"never")


@near_and_far
async def test_reading_a_stream_that_has_a_writer(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, near, far):
        await near.create_stream(STREAM, survive="1 region")
        async with near.open_writer(STREAM) as writer:
            await writer.append(b"before")
            count = far.count()
            async with far.log.open_reader(STREAM) as reader:
                async for _ in reader:
                    break
                assert count.trips == (2 if is_read_nearby else 13)
