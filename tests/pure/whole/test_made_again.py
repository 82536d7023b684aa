"""A stream made again under a deleted one's name is a new stream: no reader continues in it.

Not even where the list of the new one goes on just where the old one's ended.
"""

from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import World, numbered, open_world

NAME = "shop/again"


async def make(world: World, *, segments: int) -> None:
    """Make a stream with ten records in each segment."""
    await world.log.create_stream(NAME, survive="1 region")
    for _ in range(segments):
        async with world.log.open_writer(NAME) as writer:
            for value in numbered(10):
                await writer.append(value)


async def test_a_follower_does_not_continue_in_a_new_stream_of_the_same_name(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world, segments=1)
        async with world.log.open_reader(NAME, start=geolog.EARLIEST, follow=True) as reader:
            seen = [(await anext(reader)).value for _ in range(10)]
            await world.log.delete_stream(NAME)
            await make(world, segments=2)

            with pytest.raises(geolog.NoSuchStreamError):
                await anext(reader)

        assert seen == numbered(10)


async def test_a_bounded_read_does_not_continue_in_a_new_stream_of_the_same_name(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await make(world, segments=2)
        async with world.log.open_reader(NAME, start=geolog.EARLIEST) as reader:
            last = await anext(reader)
            await world.log.delete_stream(NAME)
            deleted_us = last.timestamp_us + 100_000_000
            await trio.sleep(100)
            await make(world, segments=2)

            # It may still return records read ahead.
            with suppress(geolog.NoSuchStreamError):
                async for record in reader:
                    last = record

        assert last.timestamp_us < deleted_us
