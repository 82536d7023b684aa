"""Two sessions of a named writer open a stream at once, while its partitions grow."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.connect import open_log
from geolog.client.writing.partitioner import partition_of_key
from geolog.protocol.stream_state import PartitionName
from sim.fakes.forwarded_metadata import ForwardedMetadata
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.clusters import World, open_world, partition_of

MANY = "shop/many"
TILL = "till-7"
T = TypeVar("T")


@attrs.define(eq=False)
class HeldMetadata(ForwardedMetadata[MemoryMetadata]):
    """A session whose requests to one partition wait."""

    held: str
    go_on: trio.Event = attrs.field(factory=trio.Event)

    async def _forward(self, request: str, send: Callable[[], Awaitable[T]]) -> T:
        if self.held in request:
            await self.go_on.wait()
        return await send()


@asynccontextmanager
async def open_held_client(
    world: World, name: PartitionName
) -> AsyncIterator[tuple[geolog.Log, trio.Event]]:
    """A client that reaches this partition late, and the event that lets it go on."""
    cluster = world.cluster
    async with cluster.store.open_session() as session:
        metadata = HeldMetadata(session, world.log.access.paths.owner(name))
        async with open_log(
            metadata=metadata,
            transport=cluster.network.transport("late"),
            cluster="default",
            region="us-east",
            who="late",
            rng=random.Random(0),
            now_us=cluster.now_us,
        ) as log:
            yield log, metadata.go_on


def a_key(*, of_two: int, of_three: int) -> bytes:
    """A key that belongs to these partitions, of two and of three."""
    return next(
        key
        for key in (b"key %d" % number for number in range(1000))
        if (partition_of_key(key, 2), partition_of_key(key, 3)) == (of_two, of_three)
    )


async def test_a_session_overtaken_while_opening_keeps_the_division_of_records(
    autojump_clock: MockClock,
) -> None:
    """One knows two partitions, the other three: a record could go to two of them."""
    key = a_key(of_two=0, of_three=2)
    async with open_world() as world, trio.open_nursery() as nursery:
        await world.log.create_stream(MANY, survive="1 region", partitions=2)
        second = await partition_of(world.log, 1, stream=MANY)
        appended = trio.Event()

        async def append_late(log: geolog.Log) -> None:
            with suppress(geolog.FencedError):
                async with log.open_writer(MANY, writer_id=TILL) as writer:
                    await writer.append(b"once", key=key, seq=5)
            appended.set()

        async with open_held_client(world, second) as (late, go_on):
            nursery.start_soon(append_late, late)
            await trio.sleep(1.0)  # It owns the first partition and waits for the second.
            with suppress(geolog.FencedError):
                async with world.log.open_writer(MANY, writer_id=TILL) as writer:
                    assert len(writer.lanes) == 2
                    await writer.append(b"once", key=key, seq=5)
                    await world.log.update_stream(MANY, partitions=3)
                    go_on.set()
                    await appended.wait()
        async with world.log.open_reader(MANY) as reader:
            found = [record.value async for record in reader]

    assert found == [b"once"]


@pytest.mark.parametrize("seed", range(2))
async def test_competing_sessions_append_each_record_once(
    seed: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(seed)
    keys = {seq: b"key %d" % rng.randrange(9) for seq in range(12)}

    async def append_all(log: geolog.Log) -> None:
        """Append until all records are answered; reopen the stream after losing it."""
        while True:
            await trio.sleep(rng.uniform(0, 2))
            with suppress(geolog.FencedError, geolog.OutcomeUnknownError):
                async with log.open_writer(MANY, writer_id=TILL) as writer:
                    for seq, key in keys.items():
                        await writer.append(b"%d" % seq, key=key, seq=seq)
                    return

    async with open_world() as world, AsyncExitStack() as clients:
        await world.log.create_stream(MANY, survive="1 region")
        logs = [
            await clients.enter_async_context(world.cluster.open_client(region, host=region))
            for region in ("us-east", "eu-west", "ap-northeast")
        ]
        world.cluster.store.round_trip_s = lambda: rng.uniform(0, 0.2)
        async with trio.open_nursery() as nursery:
            for log in logs:
                nursery.start_soon(append_all, log)
            for partitions in (2, 3, 5):
                await trio.sleep(rng.uniform(0, 2))
                await world.log.update_stream(MANY, partitions=partitions)
        async with world.log.open_reader(MANY) as reader:
            found = sorted([int(record.value) async for record in reader])

    assert found == list(keys)


async def test_sessions_that_reopen_at_once_all_succeed(
    autojump_clock: MockClock,
) -> None:
    """Taking over eight partitions takes longer than noticing that others did."""
    async with open_world() as world, AsyncExitStack() as clients:
        await world.log.create_stream(MANY, survive="1 region", partitions=8)
        logs = [
            await clients.enter_async_context(world.cluster.open_client("us-east", host=host))
            for host in ("one", "other")
        ]
        world.cluster.store.round_trip_s = lambda: 0.1

        async def append_once(log: geolog.Log) -> None:
            while True:
                with suppress(geolog.FencedError, geolog.OutcomeUnknownError):
                    async with log.open_writer(MANY) as writer:
                        await writer.append(b"x")
                        return

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for log in logs:
                    nursery.start_soon(append_once, log)
