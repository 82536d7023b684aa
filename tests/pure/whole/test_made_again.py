"""A stream that is deleted and made again under its name is another: none reads on in it.

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
    """A stream with ten records in each of so many segments."""
    await world.log.create_stream(NAME, survive="1 region")
    for _ in range(segments):
        async with world.log.open_writer(NAME) as writer:
            for value in numbered(10):
                await writer.append(value)


async def test_who_follows_a_stream_goes_on_into_none_of_its_name(
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


async def test_who_reads_to_the_end_of_a_stream_reads_on_in_none_of_its_name(
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

            # What it read ahead it may still give.
            with suppress(geolog.NoSuchStreamError):
                async for record in reader:
                    last = record

        assert last.timestamp_us < deleted_us
