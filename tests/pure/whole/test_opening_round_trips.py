"""How many metadata round trips it takes in a row to open a stream: over distance that is it.

"far": a server nearby answers reads, and what counts is what its leader must answer: writes,
and to catch up with it. "all": no server is near, and every request counts.
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
    """A cluster in which a stream was written before, a client nearby, and one far away."""
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
async def test_a_stream_is_made_and_first_written(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, _, far):
        count = far.count()
        await far.log.create_stream(STREAM, survive="1 region")
        assert count.trips == (1 if is_read_nearby else 4)

        count = far.count()
        async with far.log.open_writer(STREAM) as writer:
            # Catch up with the owner's record, become the owner, activate the first ledger;
            # the ledger is made meanwhile.
            assert count.trips == (3 if is_read_nearby else 6)
            await writer.append(b"first")


@near_and_far
async def test_a_stream_that_was_left_in_order_is_written_again(
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
async def test_a_stream_is_taken_from_its_writer(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with open_site(is_read_nearby=is_read_nearby) as (_, near, far):
        await near.create_stream(STREAM, survive="1 region")
        with ended_by(OutcomeUnknownError):
            async with near.open_writer(STREAM) as deposed:
                await deposed.append(b"before")
                count = far.count()
                async with far.log.open_writer(STREAM) as writer:
                    # Further the ledger's epoch, its end, and the segment's end.
                    assert count.trips == (6 if is_read_nearby else 11)
                    assert (await writer.append(b"after")).sequence == 1
                await deposed.append(b"never")


@near_and_far
async def test_a_stream_that_is_written_is_read(
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
