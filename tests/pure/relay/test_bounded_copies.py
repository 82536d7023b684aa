"""Sinks write more to a stream than its bound on loss lets be ahead of the mirrors."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.staging.row_copier import HELD_S_MAX
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import wait_equal
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET
from tests.pure.whole.test_sinks import Driver

BOUND_BYTES = 1 << 20
ROWS = [(b"key %d" % number, random.Random(number).randbytes(20_000)) for number in range(120)]


async def create(log: geolog.Log, *, partitions: int) -> None:
    await log.create_stream(
        STREAM,
        mode="regional",
        home=HOME,
        relay_to=[TARGET],
        partitions=partitions,
        rpo_max_bytes=BOUND_BYTES,
    )


async def rows_in(log: geolog.Log) -> list[tuple[bytes | None, bytes]]:
    async with log.open_reader(STREAM) as reader:
        return [(record.key, record.value) async for record in reader]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_batch_of_several_times_the_bound_is_copied_as_mirrors_follow(
    autojump_clock: MockClock, partitions: int
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, partitions=partitions)
        driver = Driver(log)
        await driver.commit(0, await driver.stage(ROWS, stream=STREAM))
        found = await rows_in(log)
        if partitions == 1:
            await wait_equal(log)

    assert sorted(found) == sorted(ROWS)
    if partitions == 1:
        assert found == ROWS


@pytest.mark.long
async def test_a_copy_that_does_not_move_fails_and_the_next_start_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_groups(cluster),
    ):
        await create(log, partitions=1)
        first, again = Driver(log, "first"), Driver(log, "again")
        await first.commit(0, await first.stage(ROWS[:1], stream=STREAM))
        await wait_equal(log)
        await log.pause_relay(STREAM)
        await trio.sleep(3)
        staged = await first.stage(ROWS[1:], batch=1, stream=STREAM)
        began_s = trio.current_time()
        with pytest.raises(geolog.OverCapacityError, match=TARGET):
            await first.commit(1, staged)
        waited_s = trio.current_time() - began_s
        await log.resume_relay(STREAM)
        await again.commit(1, await again.stage(ROWS[1:], batch=1, stream=STREAM))
        found = await rows_in(log)

    assert HELD_S_MAX <= waited_s < HELD_S_MAX + 30
    assert found == ROWS
