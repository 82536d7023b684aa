"""A mirror is begun again while the home of its stream moves: no record is lost by that.

One of two operators stops before one of its steps in metadata, the other does all of its own
meanwhile, and then the first goes on: for every step.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import geolog
from geolog.metadata.seam import Operation
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    mirror_of,
    open_mirror,
    record_of,
    relay,
    rows_of,
)

Do = Callable[[], Awaitable[object]]

STEPS_MAX = 40
"""More steps in metadata than any of the operators takes."""

BEFORE = [b"%d" % number for number in range(6)]


@contextmanager
def interrupted(log: geolog.Log, before: int, do: Do) -> Iterator[list[int]]:
    """Do something else before one step in metadata of a client; counts the steps."""
    metadata, multi = log.access.metadata, MemoryMetadata.multi
    steps: list[int] = []

    async def step(self: MemoryMetadata, operations: list[Operation]) -> list[int | str | None]:
        if self is metadata:
            steps.append(len(operations))
            if len(steps) == before:
                await do()
        return await multi(self, operations)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MemoryMetadata, "multi", step)
        yield steps


async def append(log: geolog.Log, *values: bytes) -> None:
    async with log.open_writer(STREAM) as writer:
        for value in values:
            await writer.append(value)


async def read(log: geolog.Log) -> list[bytes]:
    async with log.open_reader(STREAM) as reader:
        return [one.value async for one in reader]


async def tried(do: Do) -> geolog.GeologError | None:
    try:
        await do()
    except geolog.GeologError as error:
        return error
    return None


async def resync(log: geolog.Log) -> None:
    await log.resync_relay(STREAM, target=TARGET, accept_gap=True)


async def switch_over(log: geolog.Log) -> None:
    await log.switch_over(STREAM, to=TARGET)
    await append(log, b"more")


async def fail_over(log: geolog.Log) -> None:
    await log.failover(STREAM, to=TARGET)
    await append(log, b"more")


async def while_both_live(first: Do, east: geolog.Log, west: geolog.Log) -> list[bytes]:
    """The records at home, once the first operator is done, and has appended one."""
    await tried(first)
    record = await record_of(west)
    assert record.moving_to == ""
    home = east if record.home == HOME else west
    await append(home, b"last")
    return await read(home)


@pytest.mark.parametrize("first", [resync, switch_over])
async def test_a_switch_over_and_a_resync_lose_nothing_whichever_stops_in_the_middle(
    first: Callable[[geolog.Log], Awaitable[None]], autojump_clock: MockClock
) -> None:
    second = switch_over if first is resync else resync
    outcomes: set[bool] = set()
    steps: list[int] = []
    for before in range(1, STEPS_MAX):
        async with (
            open_in_process_cluster(REGIONS) as cluster,
            open_groups(cluster),
            cluster.open_client(HOME) as east,
            cluster.open_client(TARGET) as west,
            cluster.open_client(TARGET) as other,
        ):
            await create(east)
            await append(east, *BEFORE)
            with interrupted(west, before, partial(tried, partial(second, other))) as steps:
                found = await while_both_live(partial(first, west), east, other)
        outcomes.add(b"more" in found)
        assert [one for one in found if one != b"more"] == [*BEFORE, b"last"]
        if len(steps) < before:
            break

    assert len(steps) < before
    assert True in outcomes


async def lost(cluster: InProcessCluster) -> None:
    """A stream of six records, of which the target has four, and whose home is lost."""
    async with cluster.open_client(HOME) as east, cluster.open_client(TARGET) as west:
        await create(east)
        await append(east, *BEFORE)
        await relay(west, count=4)
    await cluster.kill_region(HOME)


@pytest.mark.parametrize("first", [resync, fail_over])
async def test_a_mirror_whose_home_is_lost_is_not_thrown_away_in_the_middle_of_a_failover(
    first: Callable[[geolog.Log], Awaitable[None]], autojump_clock: MockClock
) -> None:
    second = fail_over if first is resync else resync
    steps: list[int] = []
    for before in range(1, STEPS_MAX):
        async with open_in_process_cluster(REGIONS) as cluster:
            await lost(cluster)
            async with (
                cluster.open_client(TARGET) as west,
                cluster.open_client(TARGET) as other,
            ):
                with interrupted(west, before, partial(tried, partial(second, other))) as steps:
                    await tried(partial(first, west))
                record = await record_of(other)
                if record.home == HOME:
                    await fail_over(other)
                found = await read(other)
        assert found == [*BEFORE[:4], b"more"]
        if len(steps) < before:
            break

    assert len(steps) < before


async def test_a_mirror_is_not_begun_again_while_its_home_cannot_send(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        await lost(cluster)
        async with cluster.open_client(TARGET) as west:
            with pytest.raises(geolog.UnavailableError, match="cannot be read, so nothing"):
                await resync(west)
            rows = await rows_of(west, await mirror_of(west))

    assert len(rows) == 1


async def test_a_mirror_is_not_begun_again_while_its_home_moves_nor_once_it_is_the_home(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        await append(east, *BEFORE)
        moves, record = east.access.partitions.home_moves, await record_of(east)
        owners = east.partition_opener.upkeep.takeover.owners
        await owners.be_present()
        await moves.begin(record, TARGET, mover=owners.presence, move_id="m")
        moving = await tried(partial(resync, west))
        await moves.give_up(record, "m")
        await west.switch_over(STREAM, to=TARGET)
        opener = west.partition_opener
        at_home = await tried(
            partial(opener.resync_mirrors, record, TARGET, [0], accept_gap=True)
        )
        found = await read(west)

    assert "is moving from us-east to eu-west" in str(moving)
    assert "has its home in eu-west by now" in str(at_home)
    assert found == BEFORE


async def test_a_resync_that_ends_in_the_middle_is_finished_by_the_next_relay(
    autojump_clock: MockClock,
) -> None:
    """It ends between the step that notes that all rows go, and the last of them."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        for value in BEFORE:  # Each owner has a row of its own.
            await append(east, value)
            await relay(west)
        mirror, trims = await mirror_of(west), west.access.partitions.trims
        rows = await rows_of(west, mirror)
        noted = await trims.read_latest(mirror)
        for before in range(1, STEPS_MAX):
            if noted.dropping_through:
                break
            with trio.CancelScope() as ending:

                async def end(scope: trio.CancelScope = ending) -> None:
                    scope.cancel(reason="interrupted")
                    await trio.lowlevel.checkpoint()

                with interrupted(west, before, end):
                    await resync(west)
            noted = await trims.read_latest(mirror)
        left = await rows_of(west, mirror)
        plan = await west.plan_switch_over(STREAM, to=TARGET)
        async with open_mirror(west) as opened:
            watermark = opened.watermark
        done = await trims.read_latest(mirror)
        await relay(west)
        verified = await west.verify_stream(STREAM)

    assert len(rows) == len(BEFORE)
    assert noted.dropping_through >= rows[-1].row_number
    assert left
    assert "is being begun again" in str(plan.why_not)
    assert (watermark, done.dropping_through) == (None, 0)
    assert verified.is_good
