"""Promises of cursors, in a whole cluster: resume, lease, commits, lag, seek."""

import itertools
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.cursors import CursorHeldError, CursorLostError, NoSuchCursorError
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    ended_by,
    numbered,
    open_world,
    records_of,
)


async def fill(world: World, count: int, start: int = 0) -> None:
    async with world.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(count, start))


async def positions_of(log: geolog.Log) -> list[int | None]:
    described = await log.describe_cursor(STREAM, "bills")
    return [one.sequence for one in described.partition_list]


async def sequence_of(log: geolog.Log, cursor: str = "bills", partition: int = 0) -> int | None:
    return (await log.describe_cursor(STREAM, cursor)).partition_list[partition].sequence


async def test_a_reader_resumes_where_the_last_one_ended(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 10)

        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            first = [(await anext(reader)).sequence for _ in range(4)]
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            second = [record.sequence async for record in reader]
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            third = [record.sequence async for record in reader]

        assert (first, second, third) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9], [])
        assert await sequence_of(world.log) == 10


class Counting:
    """A hedge policy that counts how often it is asked."""

    name = "counting"
    terms = geolog.HedgeTerms()

    def __init__(self) -> None:
        self.asked_count = 0

    def pause_s(self, moment: geolog.HedgeMoment) -> float:
        self.asked_count += 1
        return 1.0


async def test_a_reader_with_a_cursor_has_the_hedge_policy_that_it_was_given(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 10)
        policy = Counting()
        async with world.log.open_reader(STREAM, cursor="bills", hedge="off") as reader:
            first = [(await anext(reader)).sequence for _ in range(4)]
        async with world.log.open_reader(STREAM, cursor="bills", hedge=policy) as reader:
            rest = [record.sequence async for record in reader]

        assert first + rest == list(range(10))
        assert policy.asked_count > 0
        assert await sequence_of(world.log) == 10


async def test_a_record_in_hand_when_a_block_fails_is_delivered_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 5)

        with ended_by(ZeroDivisionError):
            async with world.log.open_reader(STREAM, cursor="bills") as reader:
                taken = [(await anext(reader)).sequence for _ in range(3)]
                assert 1 // (taken.index(2) - 2)  # Raises.
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            again = await anext(reader)

        assert again.sequence == 2


async def test_a_following_reader_commits_within_about_a_second(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 3)
        async with (
            world.log.open_reader(STREAM, cursor="bills", follow=True) as reader,
            trio.open_nursery() as nursery,
        ):

            async def take_all() -> None:
                async for _ in reader:
                    pass

            nursery.start_soon(take_all)
            await trio.sleep(1.5)
            stored = await sequence_of(world.log)
            nursery.cancel_scope.cancel()

        assert stored == 3


async def test_commits_of_one_partition_are_a_second_apart(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 4)
        moments = []
        async with world.log.open_reader(STREAM, cursor="bills", auto_commit=False) as reader:
            for _ in range(4):
                await anext(reader)
                await reader.commit()
                moments.append(trio.current_time())

        gaps = [late - early for early, late in itertools.pairwise(moments)]
        assert all(0.99 <= gap <= 1.5 for gap in gaps), gaps


async def test_explicit_commits_alone_move_the_cursor_without_auto_commit(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 5)

        async with world.log.open_reader(STREAM, cursor="bills", auto_commit=False) as reader:
            await anext(reader)
            await anext(reader)
            reader.commit_nowait()
            await anext(reader)

        assert await sequence_of(world.log) == 2


async def test_a_block_that_ends_during_a_commit_stores_what_was_taken_since(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 5)
        world.cluster.store.round_trip_s = lambda: 0.1
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            await anext(reader)
            await trio.sleep(2)  # The look after joining is over.
            reader.commit_nowait()
            await trio.sleep(0.07)  # The commit is stored, and its answer under way.
            await anext(reader)

        assert await sequence_of(world.log) == 2


async def test_a_reader_that_is_given_up_while_it_joins_leaves_no_lease(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west", host="b") as other:
        await fill(world, 1)
        async with world.log.open_reader(STREAM, cursor="bills"):
            pass
        world.cluster.store.round_trip_s = lambda: 0.1

        for moment in range(20):
            with trio.move_on_after(0.07 * moment):
                async with world.log.open_reader(STREAM, cursor="bills"):
                    pass

            assert not (await other.describe_cursor(STREAM, "bills")).readers


async def test_a_held_cursor_is_refused_with_who_and_since_when(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west", host="b") as other:
        await fill(world, 1)
        async with world.log.open_reader(STREAM, cursor="bills"):
            with pytest.raises(CursorHeldError, match=r"held by .* since .*take=True") as held:
                async with other.open_reader(STREAM, cursor="bills"):
                    pass
        async with other.open_reader(STREAM, cursor="bills") as reader:
            record = await anext(reader)

        assert (held.value.code, record.sequence) == (409, 0)


async def test_a_cursor_that_was_taken_refuses_the_earlier_readers_commits(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west", host="b") as other:
        await fill(world, 5)
        with ended_by(CursorLostError) as lost:
            async with world.log.open_reader(STREAM, cursor="bills", follow=True) as reader:
                await anext(reader)
                async with other.open_reader(STREAM, cursor="bills", take=True) as taken:
                    seen = [record.sequence async for record in taken]
                await reader.commit()

        assert seen == [0, 1, 2, 3, 4]
        assert lost.error is not None
        assert lost.error.code == 412
        words = r"was taken by b since 20\d\d-.*: .*take it back with take=True \(--take\)"
        assert re.search(words, str(lost.error)), lost.error
        assert await sequence_of(world.log) == 5


async def test_a_reader_that_was_cut_off_past_its_lease_commits_nothing_more(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="b", on_session=sessions.append) as other,
    ):
        await fill(world, 6)
        with ended_by(CursorLostError):
            async with other.open_reader(STREAM, cursor="bills", follow=True) as reader:
                await anext(reader)
                sessions[0].cut_off()
                await trio.sleep(2 * sessions[0].session_timeout_s)
                async with world.log.open_reader(STREAM, cursor="bills") as heir:
                    for _ in range(3):
                        await anext(heir)
                await anext(reader)  # It delivers again what it has read ahead,
                sessions[0].restore()
                await reader.commit()  # but commits nothing.

        assert await sequence_of(world.log) == 3


async def test_a_reader_keeps_its_cursor_over_a_lost_session_if_nobody_took_it(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="b", on_session=sessions.append) as other,
    ):
        await fill(world, 6)
        async with other.open_reader(STREAM, cursor="bills", follow=True) as reader:
            seen = [(await anext(reader)).sequence for _ in range(2)]
            sessions[0].cut_off()
            await trio.sleep(2 * sessions[0].session_timeout_s)
            sessions[0].restore()
            seen += [(await anext(reader)).sequence for _ in range(4)]
            await reader.commit()

        assert seen == [0, 1, 2, 3, 4, 5]
        assert await sequence_of(world.log) == 6


async def test_a_trimmed_position_gives_a_gap(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 5)
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            await anext(reader)
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(3))

        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            items = [item async for item in reader.items()]

        gap = items[0]
        assert isinstance(gap, geolog.Gap)
        assert (gap.from_sequence, gap.to_sequence, len(items)) == (1, 3, 3)
        assert await sequence_of(world.log) == 5


async def test_a_new_cursor_at_the_latest_remembers_where_that_was(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 3)
        async with world.log.open_reader(STREAM, cursor="bills", start=geolog.LATEST) as reader:
            assert [record async for record in reader] == []
        await fill(world, 2, start=3)

        async with world.log.open_reader(STREAM, cursor="bills", start=geolog.LATEST) as reader:
            seen = [record.sequence async for record in reader]

        assert seen == [3, 4]


async def test_lag_tells_what_is_left(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for start in range(0, 60, 20):
            await fill(world, 20, start)
        await trio.sleep(5)
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            records = [await anext(reader) for _ in range(15)]
        sizes = sum(len(record.value) for record in await records_of(world.log))

        told = await world.log.describe_cursor(STREAM, "bills")
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            rest = [record async for record in reader]
        after = await world.log.describe_cursor(STREAM, "bills")

        assert told.lag_records == len(rest) == 60 - len(records)
        assert told.lag_bytes > sizes * 45 // 60
        assert told.lag_s >= 5
        assert (after.lag_records, after.lag_bytes, after.lag_s) == (0, 0, 0)


async def test_lag_is_that_of_records_where_a_snapshot_comes_first(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM):  # Leaves an empty segment.
            pass
        async with world.log.open_writer(STREAM) as writer:
            for number in range(2):
                await writer.append(random.Random(number).randbytes(100))
                await trio.sleep(5)
        async with world.log.open_reader(STREAM, cursor="bills"):
            pass

        told = await world.log.describe_cursor(STREAM, "bills")

        assert told.lag_records == 2
        assert 10 <= told.lag_s < 20
        assert 200 <= told.lag_bytes < 400


async def test_seek_moves_a_cursor_and_a_reader_that_has_it(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 6)
        async with world.log.open_reader(STREAM, cursor="bills", follow=True) as reader:
            for _ in range(5):
                await anext(reader)
            with pytest.raises(CursorHeldError, match=r"held by .* since .*force=True"):
                await world.log.seek_cursor(STREAM, "bills", to=geolog.AtSequence(1))
            await world.log.seek_cursor(STREAM, "bills", to=geolog.AtSequence(1), force=True)
            await trio.sleep(1)
            again = (await anext(reader)).sequence
        await world.log.seek_cursor(STREAM, "bills", to=geolog.LATEST)

        assert again == 1
        assert await sequence_of(world.log) == 6


async def test_a_seek_outside_the_stream_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 6)
        async with world.log.open_reader(STREAM, cursor="bills"):
            pass
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(3))

        for sequence, why in ((7, "beyond the end"), (2, "first sequence is 3")):
            with pytest.raises(geolog.InvalidArgumentError, match=why):
                await world.log.seek_cursor(STREAM, "bills", to=geolog.AtSequence(sequence))


async def test_an_unknown_cursor_is_told_with_the_nearest_name(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_reader(STREAM, cursor="bills"):
            pass

        for call in (
            world.log.describe_cursor(STREAM, "bill"),
            world.log.delete_cursor(STREAM, "bill"),
            world.log.seek_cursor(STREAM, "bill", to=geolog.EARLIEST),
        ):
            with pytest.raises(NoSuchCursorError, match="'zzz'; its cursors are bills"):
                await world.log.describe_cursor(STREAM, "zzz")
            with pytest.raises(NoSuchCursorError, match="did you mean 'bills'") as unknown:
                await call
            assert unknown.value.code == 404


async def test_a_deleted_cursor_begins_again(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await fill(world, 2)
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            assert len([record async for record in reader]) == 2
        await world.log.delete_cursor(STREAM, "bills")

        assert await world.log.list_cursors(STREAM) == []
        async with world.log.open_reader(STREAM, cursor="bills") as reader:
            assert len([record async for record in reader]) == 2


async def test_a_delete_that_is_broken_off_leaves_all_positions_or_no_cursor(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.update_stream(STREAM, partitions=3)
        await fill(world, 9)
        world.cluster.store.round_trip_s = lambda: 0.1
        left = set()
        for moment in range(16):
            async with world.log.open_reader(STREAM, cursor="bills") as reader:
                async for _ in reader:
                    pass
            before = await positions_of(world.log)
            with trio.move_on_after(0.07 * moment):
                await world.log.delete_cursor(STREAM, "bills")
            found = await world.log.list_cursors(STREAM)
            if found:
                assert await positions_of(world.log) == before
            left.add(len(found))

        assert left == {0, 1}


@pytest.mark.parametrize("sharing", ["alone", "shared"])
async def test_readers_of_a_deleted_cursor_never_join_one_made_again(
    autojump_clock: MockClock, sharing: str
) -> None:
    is_shared = sharing == "shared"
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="b", on_session=sessions.append) as other,
    ):
        await fill(world, 6)
        with ended_by(NoSuchCursorError) as ended:
            async with other.open_reader(
                STREAM, cursor="bills", follow=True, shared=is_shared
            ) as reader:
                await anext(reader)
                sessions[0].cut_off()
                await world.log.delete_cursor(STREAM, "bills", force=True)
                async with world.log.open_reader(
                    STREAM, cursor="bills", shared=is_shared
                ) as heir:
                    for _ in range(3):
                        await anext(heir)
                    sessions[0].restore()
                    await reader.commit()

        words = r"was deleted, and made again at 20\d\d-.*open another"
        assert re.search(words, str(ended.error)), ended.error
        assert await sequence_of(world.log) == 2  # The heir's block failed with one in hand.


async def test_a_list_leaves_out_a_cursor_that_is_deleted_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.cluster.open_client("eu-west", host="b") as other:
        await fill(world, 2)
        for name in ("bills", "mails"):
            async with world.log.open_reader(STREAM, cursor=name) as reader:
                await anext(reader)
        world.cluster.store.round_trip_s = lambda: 0.1
        for moment in range(12):
            async with other.open_reader(STREAM, cursor="short"):
                pass
            async with trio.open_nursery() as nursery:

                async def delete(after_s: float) -> None:
                    await trio.sleep(after_s)
                    await other.delete_cursor(STREAM, "short")

                nursery.start_soon(delete, 0.07 * moment)
                named = [one.cursor for one in await world.log.list_cursors(STREAM)]
            assert named in (["bills", "mails"], ["bills", "mails", "short"])


async def test_a_recreated_stream_has_no_cursors_of_its_former_life(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await fill(world, 2)
        with ended_by(geolog.GeologError) as ended:
            async with world.log.open_reader(STREAM, cursor="bills", follow=True) as reader:
                await anext(reader)
                await world.log.delete_stream(STREAM)
                await world.log.create_stream(STREAM, survive="1 region")
                await reader.commit()

        assert ended.error is not None
        assert ended.error.code == 404
        assert await world.log.list_cursors(STREAM) == []


SPREAD = "shop/spread"


@asynccontextmanager
async def open_spread(world: World, partitions: int = 3) -> AsyncIterator[None]:
    """A stream of several partitions with 30 records."""
    await world.log.create_stream(SPREAD, survive="1 region", partitions=partitions)
    async with world.log.open_writer(SPREAD) as writer:
        for number in range(30):
            await writer.append(b"record %d" % number, key=b"key %d" % number)
    yield


async def places_of(reader: geolog.Reader, found: list[tuple[int, int]]) -> None:
    async for record in reader:
        found.append((record.partition, record.sequence))
        await trio.sleep(0.05)


async def test_readers_of_a_shared_cursor_divide_the_partitions(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_spread(world),
        world.cluster.open_client("eu-west", host="b") as other,
        world.log.open_reader(SPREAD, cursor="bills", shared=True, follow=True) as first,
        other.open_reader(SPREAD, cursor="bills", shared=True, follow=True) as second,
        trio.open_nursery() as nursery,
    ):
        found: list[tuple[int, int]] = []
        nursery.start_soon(places_of, first, found)
        nursery.start_soon(places_of, second, found)
        await trio.sleep(5)
        shares = sorted([first.partitions, second.partitions], key=len)
        told = await world.log.describe_cursor(SPREAD, "bills")
        nursery.cancel_scope.cancel()

    assert [len(share) for share in shares] == [1, 2]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2]
    assert len(set(found)) == 30
    assert told.is_shared
    assert sorted(len(one.partitions) for one in told.readers) == [1, 2]
    assert told.lag_records == 0


async def test_a_commit_after_partitions_went_to_another_reader_is_no_error(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_spread(world),
        world.cluster.open_client("eu-west", host="b") as other,
        world.log.open_reader(SPREAD, cursor="bills", shared=True, follow=True) as first,
    ):
        taken = {(await anext(first)).partition for _ in range(30)}
        first.commit_nowait()
        async with other.open_reader(SPREAD, cursor="bills", shared=True, follow=True):
            await trio.sleep(5)

            assert len(taken) == 3
            assert len(first.partitions) == 2
            await first.commit()
        told = await world.log.describe_cursor(SPREAD, "bills")

    assert told.lag_records == 0


async def test_a_commit_that_is_lost_is_told_once_and_the_rest_is_stored(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_spread(world, partitions=2),
        world.log.open_reader(
            SPREAD, cursor="bills", shared=True, follow=True, auto_commit=False
        ) as reader,
    ):
        for _ in range(30):
            await anext(reader)
        await world.log.seek_cursor(f"{SPREAD}#1", "bills", to=geolog.EARLIEST, force=True)
        await trio.sleep(1)

        with pytest.raises(CursorLostError, match="partition 1 is another"):
            await reader.commit()
        await reader.commit()
        stored = await sequence_of_all(world.log)
        again = await anext(reader)
        await reader.commit()

        assert stored[0] > 0
        assert stored[1] == 0
        assert (again.partition, again.sequence) == (1, 0)
        assert await sequence_of_all(world.log) == [stored[0], 1]


async def sequence_of_all(log: geolog.Log) -> list[int]:
    told = await log.describe_cursor(SPREAD, "bills")
    return [one.sequence or 0 for one in told.partition_list]


async def test_partitions_of_a_reader_that_dies_go_on_at_another(
    autojump_clock: MockClock,
) -> None:
    sessions: list[MemoryMetadata] = []
    async with (
        open_world() as world,
        open_spread(world),
        world.cluster.open_client("eu-west", host="b", on_session=sessions.append) as other,
        other.open_reader(SPREAD, cursor="bills", shared=True, follow=True) as dying,
        world.log.open_reader(SPREAD, cursor="bills", shared=True, follow=True) as living,
    ):
        await trio.sleep(2)
        held = living.partitions
        sessions[0].cut_off()
        await trio.sleep(2 * sessions[0].session_timeout_s)

        assert len(held) < len(living.partitions) == 3
        assert dying.partitions  # It does not know yet.


async def test_a_reader_beyond_the_partitions_is_a_spare_and_says_so(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        await fill(world, 2)
        async with world.log.open_reader(STREAM, cursor="bills", shared=True, follow=True):
            await trio.sleep(1)
            async with world.log.open_reader(STREAM, cursor="bills", shared=True) as spare:
                assert [record async for record in spare] == []
                assert spare.partitions == []

    assert "2 readers share 1 partition; this reader is a spare" in caplog.text


async def test_a_shared_cursor_refuses_a_reader_that_does_not_share_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_reader(STREAM, cursor="bills", shared=True):
            with pytest.raises(CursorHeldError, match="shared=True"):
                async with world.log.open_reader(STREAM, cursor="bills"):
                    pass
        with pytest.raises(geolog.InvalidArgumentError, match="divides all partitions"):
            async with world.log.open_reader(f"{STREAM}#0", cursor="bills", shared=True):
                pass


@pytest.mark.parametrize("cursor", [None, "bills"])
async def test_readers_of_one_process_divide_the_partitions(
    autojump_clock: MockClock, cursor: str | None
) -> None:
    async with open_world() as world, open_spread(world):
        found: list[list[tuple[int, int]]] = [[], []]
        async with (
            world.log.open_readers(SPREAD, count=2, cursor=cursor) as readers,
            trio.open_nursery() as nursery,
        ):
            for reader, places in zip(readers, found, strict=True):
                nursery.start_soon(places_of, reader, places)

        assert [{place[0] for place in places} for places in found] == [{0, 2}, {1}]
        assert sum(map(len, found)) == 30
        with pytest.raises(geolog.InvalidArgumentError, match="count=1 to count=3"):
            async with world.log.open_readers(SPREAD, count=4, cursor=cursor):
                pass
