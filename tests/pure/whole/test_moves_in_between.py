"""A home moves in the middle of something else: a truncation, a seal, a look of another."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.home_record import HomeState
from geolog.protocol.ids import Sequence
from geolog.protocol.stream_state import PartitionName
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    home_of,
    mirror_of,
    record_of,
    relay,
    rows_of,
)


async def append(log: geolog.Log, count: int) -> None:
    async with log.open_writer(STREAM) as writer:
        for number in range(count):
            await writer.append(b"%d" % number)


async def first_of(log: geolog.Log, name: PartitionName) -> int:
    return (await log.access.partitions.trims.read_latest(name)).first_sequence


async def test_what_was_truncated_just_before_a_move_is_gone_at_the_new_home(
    autojump_clock: MockClock,
) -> None:
    """The mirror follows the trim a little later than the move."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 6)
        trims, mirror = west.access.partitions.trims, await mirror_of(west)
        await trims.move(await home_of(west), Sequence(4), now_us=1, home_epoch=1)
        before = await first_of(west, mirror)
        await west.switch_over(STREAM, to=TARGET)
        after = await first_of(west, mirror)
        async with west.open_reader(STREAM) as reader:
            found = [one.sequence async for one in reader]

    assert (before, after) == (0, 4)
    assert found == [4, 5]


async def test_a_truncation_that_knows_the_old_home_cuts_the_log_of_the_new_one(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 3)
        stale, was_home, mirror = (
            await record_of(east),
            await home_of(east),
            await mirror_of(east),
        )
        await west.switch_over(STREAM, to=TARGET)
        await append(west, 2)
        trims = east.access.partitions.trims
        with pytest.raises(geolog.FencedError, match="is eu-west now, in home epoch 2"):
            await trims.move(was_home, Sequence(2), now_us=1, home_epoch=stale.home_epoch)
        begins = await east.partition_opener.upkeep.truncate(was_home, 2)
        firsts = await first_of(east, mirror)

    assert (begins, firsts) == (2, 2)


async def test_a_stream_is_not_sealed_at_a_home_that_is_left_or_being_left(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 1)
        was_home, upkeep = await home_of(east), east.partition_opener.upkeep
        moves, owners = east.access.partitions.home_moves, east.access.partitions.owners
        record = await record_of(east)
        await moves.begin(record, TARGET, mover="/gone", move_id="m")
        with pytest.raises(geolog.FencedError, match="is moving from us-east to eu-west"):
            await upkeep._seal(was_home, 1)  # noqa: SLF001 - as if it had looked before.
        await moves.give_up(record, "m")
        await west.switch_over(STREAM, to=TARGET)
        with pytest.raises(geolog.FencedError, match="is eu-west now"):
            await upkeep._seal(was_home, 1)  # noqa: SLF001
        sealed = await east.seal_stream(STREAM)
        owner_at_old_home = await owners.read_latest(was_home)

    assert sealed.is_sealed
    assert [one.owner for one in sealed.partition_list] == ["sealed"]
    assert not owner_at_old_home.record.is_sealed


async def test_a_stream_whose_seal_was_interrupted_does_not_move(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
    ):
        await create(east)
        await append(east, 1)
        await east.access.partitions.owners.seal(await home_of(east))
        with pytest.raises(geolog.SealedError, match="is sealed"):
            await east.switch_over(STREAM, to=TARGET)
        record = await record_of(east)

    assert (record.home, record.moving_to) == (HOME, "")


async def test_an_owner_that_knows_a_move_looks_again_whether_it_was_given_up(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
    ):
        await create(log)
        name, record = await home_of(log), await record_of(log)
        homes, moves = log.access.partitions.homes, far.access.partitions.home_moves
        await moves.begin(record, TARGET, mover="/gone", move_id="m")
        await homes.look(name)
        with pytest.raises(geolog.FencedError, match="is moving"):
            await homes.checks_to_open(name, 1)
        await moves.give_up(record, "m")
        checks = await homes.checks_to_open(name, 1)
        home = await homes.read_latest(record.name, record.life)

    assert home is not None
    assert home.record.state is HomeState.SETTLED
    assert [one.version for one in checks] == [home.version]


async def test_a_cursor_that_is_set_back_after_a_move_goes_on_through_both_homes(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 3)
        await west.switch_over(STREAM, to=TARGET)
        await append(west, 1)
        async with west.open_reader(STREAM, cursor="c") as reader:
            first = [one.sequence async for one in reader]
        await west.seek_cursor(f"{STREAM}#0", "c", to=geolog.EARLIEST)
        async with west.open_reader(STREAM, cursor="c") as reader:
            taken = [await anext(reader), await anext(reader)]
        async with west.open_reader(STREAM, cursor="c") as reader:
            rest = [one.sequence async for one in reader]
        described = await west.describe_cursor(STREAM, "c")

    assert first == [0, 1, 2, 3]
    assert [one.sequence for one in taken] == [0, 1]
    assert rest == [2, 3]
    assert described.lag_records == 0


async def test_a_reader_from_before_a_move_takes_over_where_a_later_one_was(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 1)
        async with east.open_reader(STREAM, cursor="c", shared=True, follow=True) as early:
            found = [(await anext(early)).sequence]
            await early.commit()
            async with west.open_reader(STREAM, cursor="c", shared=True, follow=True) as late:
                await west.switch_over(STREAM, to=TARGET)
                await append(west, 1)
                with trio.fail_after(60):
                    found.append((await anext(early)).sequence)
                    await early.commit()
                assert late.partitions == []
            await west.seek_cursor(STREAM, "c", to=geolog.AtSequence(1), force=True)
            with trio.fail_after(60):
                found.append((await anext(early)).sequence)

    assert found == [0, 1, 1]


async def test_a_mirror_that_was_trimmed_in_the_middle_of_a_segment_can_be_written_as_home(
    autojump_clock: MockClock,
) -> None:
    """Its rows of that segment stay: the first of them begins with the state of writers."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, 2)
        await append(east, 4)
        await append(east, 1)
        await relay(west, count=5)
        await relay(west)
        mirror, trims = await mirror_of(west), west.access.partitions.trims
        before = [(one.segment, one.first_entry > 0) for one in await rows_of(west, mirror)]
        await trims.move(await home_of(east), Sequence(5), now_us=1, home_epoch=1)
        await trims.move(mirror, Sequence(5), now_us=1, is_mirror=True)
        await trims.drop_trimmed(mirror)
        after = [(one.segment, one.first_entry > 0) for one in await rows_of(west, mirror)]
        async with open_groups(cluster):
            await west.switch_over(STREAM, to=TARGET)
        async with west.open_writer(STREAM) as writer:
            receipt = await writer.append(b"7")

    assert before == [(1, False), (2, False), (2, True), (3, False)]
    assert after == [(2, False), (2, True), (3, False)]
    assert receipt.sequence == 7
