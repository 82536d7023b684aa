"""Subscriptions: streams are read by pattern, as they come and go."""

import re
from collections import Counter

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.reading.subscribing import SubscriptionConfig
from tests.pure.whole.clusters import World, open_world

SHOP = "shop/*"


async def make(world: World, name: str, *values: str, partitions: int = 1) -> None:
    await world.log.create_stream(name, survive="1 region", partitions=partitions)
    await append(world, name, *values)


async def append(world: World, name: str, *values: str) -> None:
    async with world.log.open_writer(name) as writer:
        for value in values:
            await writer.append(value.encode())


def told(record: geolog.Record) -> str:
    return f"{record.stream} {record.value.decode()}"


async def read_all(world: World, pattern: str = SHOP, **options: object) -> list[str]:
    async with world.log.open_reader(pattern, **options) as reader:  # type: ignore[arg-type]
        return [told(record) async for record in reader]


async def next_of(reader: geolog.Reader, count: int) -> list[str]:
    """The next records of a reader that follows."""
    with trio.fail_after(60):
        return [told(await anext(reader)) for _ in range(count)]


async def test_a_pattern_reads_all_streams_that_it_matches_to_their_ends(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await append(world, "shop/orders", "one", "two")
        await make(world, "shop/carts", "three")
        await make(world, "mill/orders", "four")
        of_shop = await read_all(world)
        of_orders = await read_all(world, "*/ord*")

    assert sorted(of_shop) == ["shop/carts three", "shop/orders one", "shop/orders two"]
    assert sorted(of_orders) == ["mill/orders four", "shop/orders one", "shop/orders two"]


async def test_a_stream_that_comes_later_is_read_from_its_first_record(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await append(world, "shop/orders", "before")
        async with world.log.open_reader(SHOP, start=geolog.LATEST, follow=True) as reader:
            await make(world, "shop/carts", "first", "second")
            await make(world, "mill/orders", "elsewhere")
            await append(world, "shop/orders", "after")
            found = await next_of(reader, 3)

    assert sorted(found) == ["shop/carts first", "shop/carts second", "shop/orders after"]


async def test_a_pattern_that_matches_nothing_waits_if_it_follows(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_reader("mill/*", follow=True) as reader:
            await make(world, "mill/flour", "at last")
            found = await next_of(reader, 1)
        with pytest.raises(geolog.NoSuchStreamError, match=r"did you mean 'shop/orders'\?"):
            await read_all(world, "shop/ordrs*")

    assert found == ["mill/flour at last"]


async def test_a_stream_that_is_made_again_is_read_from_its_first_record(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world, "shop/carts", "old 1", "old 2")
        async with world.log.open_reader("shop/c*", follow=True) as reader:
            found = await next_of(reader, 2)
            await world.log.delete_stream("shop/carts")
            await make(world, "shop/carts", "new 1")
            found += await next_of(reader, 1)
            await append(world, "shop/carts", "new 2")
            found += await next_of(reader, 1)

    values = ["old 1", "old 2", "new 1", "new 2"]
    assert found == [f"shop/carts {value}" for value in values]


async def test_a_sealed_stream_ends_and_the_others_go_on(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await make(world, "shop/carts", "last")
        await world.log.seal_stream("shop/carts")
        async with world.log.open_reader(SHOP, follow=True) as reader:
            found = await next_of(reader, 1)
            await append(world, "shop/orders", "one")
            found += await next_of(reader, 1)

    assert found == ["shop/carts last", "shop/orders one"]


async def test_partitions_that_are_added_are_read(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.log.open_reader(SHOP, follow=True) as reader:
        await world.log.update_stream("shop/orders", partitions=3)
        await append(world, "shop/orders#2", "here")
        with trio.fail_after(60):
            record = await anext(reader)

    assert (record.partition, record.value) == (2, b"here")


async def test_saved_positions_resume_each_stream_where_it_was_taken_to(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await append(world, "shop/orders", *"abcde")
        await make(world, "shop/carts", *"fgh")
        async with world.log.open_reader(SHOP) as reader:
            first = await next_of(reader, 4)
            positions = await reader.positions()
        await make(world, "shop/later", "i")
        rest = await read_all(world, positions=positions)
        async with world.log.open_reader(SHOP, positions=positions) as reader:
            again = [told(record) async for record in reader]
            at_end = await reader.positions()
        nothing = await read_all(world, positions=at_end)

    assert sorted(first + rest) == sorted(
        [f"shop/orders {one}" for one in "abcde"]
        + [f"shop/carts {one}" for one in "fgh"]
        + ["shop/later i"]
    )
    assert sorted(again) == sorted(rest)
    assert nothing == []


async def test_a_position_of_a_deleted_stream_is_not_used_for_the_one_made_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world, "shop/carts", *"abc")
        async with world.log.open_reader("shop/c*") as reader:
            await next_of(reader, 2)
            positions = await reader.positions()
        await world.log.delete_stream("shop/carts")
        await make(world, "shop/carts", *"def")
        found = await read_all(world, "shop/c*", positions=positions)

    assert list(positions) == ["shop/carts#0"]
    assert found == ["shop/carts d", "shop/carts e", "shop/carts f"]


async def test_positions_of_streams_that_begin_at_their_end_are_known_without_a_record(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await append(world, "shop/orders", "old")
        async with world.log.open_reader(SHOP, start=geolog.LATEST, follow=True) as reader:
            positions = await reader.positions()
        await append(world, "shop/orders", "new")
        assert await read_all(world, positions=positions) == ["shop/orders new"]


async def test_more_streams_than_turns_are_all_read_and_share_the_turns(
    autojump_clock: MockClock,
) -> None:
    config = geolog.LogConfig(
        subscription=SubscriptionConfig(turns_max=2, turn_bytes=2_000, ahead_runs=2)
    )
    streams = [f"shop/s{number}" for number in range(7)]
    async with open_world(config=config) as world:
        for name in streams:
            await make(world, name, *(f"{number:0500}" for number in range(12)))
        async with world.log.open_reader("shop/s*", follow=True) as reader:
            found = await next_of(reader, 7 * 12)
            for name in streams:
                await append(world, name, "late 1", "late 2")
            found += await next_of(reader, 7 * 2)

    values = [f"{number:0500}" for number in range(12)] + ["late 1", "late 2"]
    for name in streams:
        assert [one for one in found if one.startswith(f"{name} ")] == [
            f"{name} {value}" for value in values
        ]
    counts = Counter(one.split()[0] for one in found[:60])
    assert len(counts) == 7, "each stream had a turn before any of them was read to its end"


async def test_what_cannot_hold_for_many_streams_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for pattern, options, why in [
            (SHOP, {"cursor": "billing"}, "a cursor is of one stream"),
            (SHOP, {"start": geolog.AtSequence(3)}, "a position in one partition"),
            (SHOP, {"follow": True, "stop": geolog.LATEST}, "either follow or stop"),
            ("shop/orders", {"positions": {}}, "positions are for patterns"),
            (SHOP, {"positions": {"shop/orders": "3@1:x"}}, "no position of a partition"),
            (SHOP, {"positions": {"mill/x#0": "3@1:x"}}, "does not match"),
            ("shop/*#0", {}, "a pattern names whole streams"),
            ("shop/>", {}, "did you mean 'shop/*'"),
        ]:
            with pytest.raises(geolog.InvalidArgumentError, match=re.escape(why)):
                await read_all(world, pattern, **options)  # type: ignore[arg-type]
