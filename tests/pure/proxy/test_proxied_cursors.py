"""Cursors of programs that know write proxies but no ZooKeeper."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.proxy.proxies import open_proxy
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.proxy.test_proxied_log import open_without_zookeeper
from tests.pure.whole.clusters import STREAM, World, append_each, ended_by, numbered, open_world


async def append(world: World, count: int) -> None:
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(count))


def check(record: geolog.Record) -> None:
    """Fail at the third record."""
    if record.sequence == 2:
        raise ValueError(record)


async def committed(world: World, name: str = STREAM) -> list[int | None]:
    told = await world.log.describe_cursor(name, "bills")
    assert told.readers == []
    return [one.sequence for one in told.partition_list]


async def test_the_next_reader_goes_on_where_the_last_one_left_the_cursor(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await append(world, 400)
        async with log.open_reader(STREAM, cursor="bills") as reader:
            first = [(await anext(reader)).sequence for _ in range(5)]
        after_first = await committed(world)
        async with log.open_reader(STREAM, cursor="bills") as reader:
            rest = [one.sequence async for one in reader]
        after_rest = await committed(world)

    assert first == list(range(5))
    assert after_first == [5]
    assert rest == list(range(5, 400))
    assert after_rest == [400]


async def test_a_failed_block_does_not_commit_the_record_in_hand(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await append(world, 5)
        with ended_by(ValueError):
            async with log.open_reader(STREAM, cursor="bills") as reader:
                async for record in reader:
                    check(record)

        assert await committed(world) == [2]


async def test_commit_returns_once_the_position_is_stored(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await append(world, 5)
        async with log.open_reader(
            STREAM, cursor="bills", follow=True, auto_commit=False
        ) as reader:
            for _ in range(3):
                await anext(reader)
            await reader.commit()
            told = await world.log.describe_cursor(STREAM, "bills")
            await anext(reader)

        assert told.partition_list[0].sequence == 3
        assert await committed(world) == [3], "the fourth was not committed"


async def test_a_cursor_that_another_has_is_refused_and_can_be_taken(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await append(world, 5)
        async with log.open_reader(STREAM, cursor="bills", follow=True) as first:
            await anext(first)
            with pytest.raises(geolog.CursorHeldError, match=r"is held by .*take"):
                async with log.open_reader(STREAM, cursor="bills") as second:
                    await anext(second)
            async with log.open_reader(STREAM, cursor="bills", take=True) as third:
                again = [one.sequence async for one in third]
            with ended_by(geolog.CursorLostError):
                async for _ in first:
                    pass

        assert again[-1] == 4
        assert await committed(world) == [5]


async def test_a_proxy_whose_session_with_metadata_ends_is_passed_over(
    autojump_clock: MockClock,
) -> None:
    """The session is the proxy's own: another proxy may have one."""
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", on_session=sessions.append),
        open_proxy(world.cluster, "proxy-2", "us-east"),
        open_without_zookeeper(world, "proxy-1", "proxy-2") as log,
        trio.open_nursery() as nursery,
    ):
        await append(world, 5)
        for _ in range(4):  # The proxies are asked in any order.
            sessions[0].cut_off()
            nursery.start_soon(_expire_later, sessions[0])
            async with log.open_reader(STREAM) as reader:
                assert len([one async for one in reader]) == 5
            await trio.sleep(5)


async def _expire_later(session: MemoryMetadata) -> None:
    await trio.sleep(1)
    session.expire()


async def test_a_read_goes_on_at_another_proxy_with_no_record_left_out(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        proxies = [
            await nursery.start(RunningProxy(world.cluster, name, "us-east").run)
            for name in ("proxy-1", "proxy-2")
        ]
        await append(world, 40)
        async with (
            open_without_zookeeper(world, "proxy-1", "proxy-2") as log,
            log.open_reader(STREAM, cursor="bills", follow=True) as reader,
        ):
            read = [(await anext(reader)).sequence for _ in range(10)]
            await trio.sleep(3)  # The first nine are committed.
            told = await world.log.describe_cursor(STREAM, "bills")
            (holder,) = told.readers
            await proxies[0 if "proxy-1" in holder.who else 1].kill()
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(10, start=40))
            while read[-1] < 49:
                read.append((await anext(reader)).sequence)
        at_the_end = await committed(world)
        nursery.cancel_scope.cancel()

    assert sorted(set(read)) == list(range(50))
    assert len(read) - 50 <= 31, "only what was not committed came again"
    assert at_the_end == [50]


async def test_shared_readers_divide_the_partitions(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await world.log.create_stream("shop/clicks", partitions=4)
        async with world.log.open_writer("shop/clicks") as writer:
            for value in numbered(80):
                await writer.append(value, key=value)
        read: list[bytes] = []

        async def take(reader: geolog.Reader) -> None:
            async for record in reader:
                read.append(record.value)
                await trio.sleep(0.05)

        async with (
            log.open_reader("shop/clicks", cursor="bills", shared=True) as one,
            log.open_reader("shop/clicks", cursor="bills", shared=True) as two,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(take, one)
            nursery.start_soon(take, two)
        sequences = await committed(world, "shop/clicks")
        ends = await world.log.describe_cursor("shop/clicks", "bills")

    assert set(read) == set(numbered(80))
    assert sequences == [one.end_sequence for one in ends.partition_list]


async def test_what_is_for_a_cursor_alone_is_refused_without_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match="give cursor='NAME' as well"):
            async with log.open_reader(STREAM, take=True):
                pass
