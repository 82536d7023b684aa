"""The home of a stream moves by plan, in one process: nothing is lost, and nothing is twice.

Owners, proxies, relays, mirrors and nodes are the real ones; network, disks and metadata are in
memory.
"""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog import Record
from geolog.catalog.partition_owners import no_checks
from geolog.partition.home_move import HomeMove
from geolog.protocol.home_record import HomeState
from geolog.protocol.ids import Sequence
from sim.in_process import open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy
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
)


async def read_all(log: geolog.Log, count: int) -> list[Record]:
    """The first `count` records, by a reader that waits for them."""
    found: list[Record] = []
    with trio.fail_after(60):
        async with log.open_reader(STREAM, follow=True) as reader:
            async for record in reader:
                found.append(record)
                if len(found) == count:
                    break
    return found


async def test_a_home_moves_and_comes_back_with_every_record_once(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        open_proxy(cluster, "east", HOME),
        open_proxy(cluster, "west", TARGET),
        cluster.open_client(HOME, host="writer", via="proxy") as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        async with east.open_writer(STREAM, writer_id="w") as writer:
            for number in range(5):
                await writer.append(b"%d" % number, seq=number)
            moved = await west.switch_over(STREAM, to=TARGET)
            for number in range(4, 10):
                await writer.append(b"%d" % number, seq=number)
            back = await west.switch_over(STREAM, to=HOME)
            for number in range(9, 15):
                await writer.append(b"%d" % number, seq=number)
        found = {region.region: await read_all(region, 15) for region in (east, west)}

    assert (moved.home, moved.home_epoch) == (TARGET, 2)
    assert (back.home, back.home_epoch) == (HOME, 3)
    for records in found.values():
        assert [one.value for one in records] == [b"%d" % number for number in range(15)]
        assert [one.sequence for one in records] == list(range(15))
        assert [one.epoch for one in records] == [1] * 5 + [2] * 5 + [3] * 5
        segments = [one.dlsn.segment for one in records]
        assert segments == sorted(segments)


async def test_a_position_and_a_cursor_saved_before_a_move_go_on_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        async with east.open_writer(STREAM) as writer:
            for number in range(4):
                await writer.append(b"%d" % number)
        async with east.open_reader(STREAM, cursor="c") as reader:
            taken = [await anext(reader), await anext(reader)]
        await west.switch_over(STREAM, to=TARGET)
        async with west.open_writer(STREAM) as writer:
            await writer.append(b"4")
        async with west.open_reader(STREAM, cursor="c") as reader:
            taken += [one async for one in reader]
        saved = geolog.AtSequence(3, taken[0].epoch)
        async with west.open_reader(STREAM, start=saved) as reader:
            behind = [one.value async for one in reader]
        with pytest.raises(geolog.InvalidArgumentError, match="no home epoch 3: its homes"):
            async with west.open_reader(STREAM, start=geolog.AtSequence(3, 3)):
                pass

    assert [(one.value, one.epoch) for one in taken] == [
        (b"0", 1),
        (b"1", 1),
        (b"2", 1),
        (b"3", 1),
        (b"4", 2),
    ]
    assert behind == [b"3", b"4"]


async def test_a_move_to_where_it_cannot_go_is_refused_and_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS | {"mars": 3}) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        await log.create_stream("shop/global", min_regions=1)
        before = await record_of(log)
        with pytest.raises(geolog.InvalidArgumentError, match="its targets are eu-west"):
            await log.switch_over(STREAM, to="mars")
        with pytest.raises(geolog.InvalidArgumentError, match="at home in us-east already"):
            await log.switch_over(STREAM, to=HOME)
        with pytest.raises(geolog.InvalidArgumentError, match="it has no home"):
            await log.switch_over("shop/global", to=TARGET)
        await log.pause_relay(STREAM)
        with pytest.raises(geolog.InvalidArgumentError, match="resume it first"):
            await log.switch_over(STREAM, to=TARGET)
        plan = await log.plan_switch_over(STREAM, to=TARGET)
        await log.resume_relay(STREAM)
        await log.seal_stream(STREAM)
        with pytest.raises(geolog.SealedError, match="nothing is appended"):
            await log.switch_over(STREAM, to=TARGET)
        after = await record_of(log)

    assert (after.home, after.home_epoch, after.moving_to) == (before.home, 1, "")
    assert plan.why_not is not None
    assert "resume it first" in plan.why_not


async def test_a_move_whose_mirror_does_not_catch_up_leaves_the_stream_at_home(
    autojump_clock: MockClock,
) -> None:
    """There is no relay: the mirror never gets the records."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"0")
        with pytest.raises(geolog.UnavailableError, match="did not move to eu-west within 5 s"):
            await far.switch_over(STREAM, to=TARGET, timeout_s=5)
        async with log.open_writer(STREAM) as writer:
            receipt = await writer.append(b"1")
        record = await record_of(log)

    assert receipt.sequence == 1
    assert (record.home, record.home_epoch, record.moving_to) == (HOME, 1, "")


async def test_only_one_of_two_movers_at_once_moves_the_home(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        trio.open_nursery() as nursery,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"0")

        async def move_slowly() -> None:
            with pytest.raises(geolog.UnavailableError):
                await log.switch_over(STREAM, to=TARGET, timeout_s=5)

        nursery.start_soon(move_slowly)
        while not (await record_of(far)).moving_to:  # noqa: ASYNC110 - metadata.
            await trio.sleep(0.1)
        with pytest.raises(geolog.UnavailableError, match="is moving from us-east to eu-west"):
            await far.switch_over(STREAM, to=TARGET)
        with pytest.raises(geolog.UnavailableError, match="is moving from us-east to eu-west"):
            await far.update_stream(STREAM, partitions=2)
        with pytest.raises(geolog.UnavailableError, match="is moving from us-east to eu-west"):
            async with log.open_writer(STREAM):
                pass


async def test_the_next_owner_gives_up_a_move_whose_mover_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        moves = log.access.partitions.home_moves
        await moves.begin(
            await record_of(log),
            TARGET,
            mover="/geolog/default/processes/000/gone",
            move_id="m",
        )
        async with log.open_writer(STREAM) as writer:
            receipt = await writer.append(b"0")
        record = await record_of(log)
        home = await log.access.partitions.homes.read_latest(record.name, record.life)

    assert receipt.sequence == 0
    assert (record.home, record.moving_to) == (HOME, "")
    assert home is not None
    assert home.record.state is HomeState.SETTLED


async def test_a_mark_whose_answer_was_lost_is_recognised_and_removed_by_its_mover_alone(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        record, moves = await record_of(log), log.access.partitions.home_moves
        stored = await moves.begin(record, TARGET, mover="/gone", move_id="m")
        again = await moves.begin(record, TARGET, mover="/gone", move_id="m")
        outcomes = [await moves.give_up(record, one) for one in ("other", "m", "m")]
        after = await record_of(log)

    assert again == stored
    assert outcomes == [False, True, False]
    assert (after.home, after.moving_to) == (HOME, "")


@pytest.mark.parametrize("is_failover", [False, True])
async def test_a_mover_takes_nothing_from_a_home_whose_move_another_process_gave_up(
    autojump_clock: MockClock, *, is_failover: bool
) -> None:
    """The mark goes while the mover waits for the owner, which then opens and appends again."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
    ):
        await create(log)
        record, home = await record_of(log), await home_of(log)
        takeover = far.partition_opener.upkeep.takeover
        move = HomeMove(stream=record, to=TARGET, who="mover", takeover=takeover)
        await move.mark(is_failover=is_failover)
        await log.access.partitions.home_moves.give_up(record, move.move_id)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"0")
            before = await log.access.partitions.owners.read(home)
            with pytest.raises(geolog.ConflictError, match="ended by another process before"):
                await move.end_home(0, patience_s=1)
            receipt = await writer.append(b"1")
            after = await log.access.partitions.owners.read(home)

    assert after == before
    assert receipt.sequence == 1


async def test_a_plan_names_the_gap_that_keeps_a_mirror_from_being_a_home(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as log,
    ):
        await create(log)
        mirror, partitions = await mirror_of(log), log.access.partitions
        owner = await partitions.owners.read_latest(mirror)
        await partitions.trims.begin_again(
            mirror,
            owner,
            Sequence(3),
            ended=Sequence(1),
            now_us=1,
            find_checks=no_checks,
        )
        with pytest.raises(geolog.ConflictError, match="lacks records 1 to 2"):
            await log.switch_over(STREAM, to=TARGET)
        plan = await log.plan_switch_over(STREAM, to=TARGET)

    assert plan.why_not is not None
    assert "lacks records 1 to 2" in plan.why_not
