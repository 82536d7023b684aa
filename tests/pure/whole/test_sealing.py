"""Sealed streams keep all their records and take no more."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import (
    STREAM,
    append_each,
    ended_by,
    numbered,
    open_world,
    partition_of,
    values_of,
)
from tests.pure.whole.owner_sites import process_of


async def test_a_sealed_stream_can_be_read_but_not_written(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        described = await world.log.seal_stream(STREAM)

        assert described.is_sealed
        assert await values_of(world.log) == numbered(5)
        with pytest.raises(geolog.SealedError):
            async with world.log.open_writer(STREAM):
                pass


async def test_sealing_fences_the_writer_and_keeps_its_answered_records(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        with ended_by(geolog.GeologError) as ended:
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(5))
                await other.seal_stream(STREAM)
                for _ in range(1000):
                    await writer.append(b"too late")

        assert isinstance(ended.error, geolog.SealedError | geolog.OutcomeUnknownError)
        values = await values_of(other)
        assert values[:5] == numbered(5)
        assert set(values[5:]) <= {b"too late"}
        assert (await other.verify_stream(STREAM)).is_good


async def test_a_fenced_writer_learns_why(
    autojump_clock: MockClock,
) -> None:
    """Sent records are unknown, with the cause; later ones are refused for the same cause."""

    async def fenced(
        end: Callable[[geolog.Log], Awaitable[object]],
    ) -> list[BaseException | None]:
        async with (
            open_world() as world,
            world.cluster.open_client("eu-west", host="other") as other,
        ):
            errors: list[BaseException | None] = []
            with ended_by(geolog.GeologError) as ended:
                async with world.log.open_writer(STREAM) as writer:
                    await append_each(writer, numbered(5))
                    await end(other)
                    with pytest.raises(geolog.OutcomeUnknownError) as unknown:
                        await writer.append(b"too late")
                    errors.append(unknown.value.__cause__)
                    with pytest.raises(geolog.GeologError) as refused:
                        await writer.append(b"later still")
                    errors.append(refused.value)
            return [*errors, ended.error]

    async def take_over(log: geolog.Log) -> None:
        async with log.open_writer(STREAM):
            pass

    for end, kind in (
        (lambda log: log.seal_stream(STREAM), geolog.SealedError),
        (lambda log: log.delete_stream(STREAM), geolog.NoSuchStreamError),
        (take_over, geolog.FencedError),
    ):
        assert [type(one) for one in await fenced(end)] == [kind] * 3


async def test_a_fenced_writer_learns_of_it_without_waiting_for_metadata(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        with ended_by(geolog.FencedError):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(5))
                await other.seal_stream(STREAM)
                world.session.cut_off()
                since_s = trio.current_time()
                with pytest.raises(geolog.OutcomeUnknownError):
                    await writer.append(b"too late")
                assert trio.current_time() - since_s < 5
                world.session.restore()


async def test_sealing_twice_is_an_error(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.log.seal_stream(STREAM)
        with pytest.raises(geolog.SealedError, match="already sealed"):
            await world.log.seal_stream(STREAM)


async def test_a_follower_of_a_sealed_stream_reaches_its_end(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        found: list[bytes] = []

        async def follow() -> None:
            async with world.log.open_reader(STREAM, follow=True) as reader:
                found.extend([record.value async for record in reader])

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follow)
                async with world.log.open_writer(STREAM) as writer:
                    await append_each(writer, numbered(5))
                await trio.sleep(1)
                await world.log.seal_stream(STREAM)

        assert found == numbered(5)


async def test_sealing_a_stream_closes_all_its_partitions(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.log.create_stream("shop/many", survive="1 region", partitions=3)
        async with world.log.open_writer("shop/many") as writer:
            for value in numbered(20):
                writer.append_nowait(value, key=value)
            await writer.flush()
            await world.log.seal_stream("shop/many")
        states = [one.state for one in await world.log.list_segments("shop/many")]
        with pytest.raises(geolog.SealedError):
            await world.log.update_stream("shop/many", partitions=4)

    assert set(states) == {"closed"}


@pytest.mark.parametrize("after_s", [0.02, 0.05, 0.08])
async def test_partitions_added_while_a_stream_is_sealed_are_sealed_or_refused(
    after_s: float, autojump_clock: MockClock
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        world.cluster.store.round_trip_s = lambda: 0.01

        async def grow() -> None:
            await trio.sleep(after_s)
            with suppress(geolog.SealedError):
                await other.update_stream(STREAM, partitions=5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(grow)
            await world.log.seal_stream(STREAM)

        described = await world.log.describe_stream(STREAM)
        assert described.is_sealed
        for number in range(described.partitions):
            name = await partition_of(world.log, number)
            with pytest.raises(geolog.SealedError):
                await process_of(world.session, "anybody").take(name, "anybody")


async def test_a_sealed_stream_can_be_truncated_and_deleted(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(5))
        await world.log.seal_stream(STREAM)
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(3))
        assert await values_of(world.log) == numbered(2, start=3)
        await world.log.delete_stream(STREAM)

        assert await world.log.list_streams() == []
