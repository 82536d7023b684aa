"""A stream in five regions, whose home moves by plan, is lost, is lost again and comes back.

Owners, mirrors and nodes are the real ones; network, disks and metadata are in memory.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from trio.testing import MockClock

import geolog
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import append, numbered, relay, values

MARS, MOON, PLUTO = "mars", "moon", "pluto"
REGIONS = (HOME, TARGET, MARS, MOON, PLUTO)


@asynccontextmanager
async def open_site() -> AsyncIterator[tuple[InProcessCluster, dict[str, geolog.Log]]]:
    """Five regions, a client in each, and a stream at home in the first."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_in_process_cluster(dict.fromkeys(REGIONS, 3))
        )
        logs = {
            region: await stack.enter_async_context(cluster.open_client(region))
            for region in REGIONS
        }
        await logs[HOME].create_stream(
            STREAM, mode="regional", home=HOME, relay_to=list(REGIONS[1:])
        )
        yield cluster, logs


async def kept_in(log: geolog.Log) -> dict[str, tuple[int, int]]:
    return {
        one.name: (one.from_sequence, one.to_sequence)
        for one in await log.list_divergences(STREAM)
    }


async def test_five_regions_agree_after_each_move_and_each_loss(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as (cluster, logs):
        await append(logs[HOME], range(5))
        for region in REGIONS[1:]:
            await relay(logs[region])
        await logs[MARS].switch_over(STREAM, to=TARGET)
        await append(logs[TARGET], range(5, 10))

        # The new home is lost: mars has most of it, moon less, pluto nothing, and it is away.
        await relay(logs[HOME], 2)
        await relay(logs[MARS], 4)
        await relay(logs[MOON], 1)
        for region in (TARGET, PLUTO):
            await cluster.kill_region(region)
        first = await logs[MOON].failover(STREAM, to=MOON)
        await append(logs[MOON], range(20, 24))
        await relay(logs[MARS])
        await relay(logs[HOME], 1)

        # That home is lost, too, and the first one takes over, which ends before it began.
        for region in (MOON, MARS):
            await cluster.kill_region(region)
        second = await logs[HOME].failover(STREAM, to=HOME)
        await append(logs[HOME], range(30, 33))

        for region in (TARGET, PLUTO, MOON, MARS):
            await cluster.restart_region(region)
            await relay(logs[region])
        found = {region: await values(logs[region]) for region in REGIONS}
        kept = await kept_in(logs[PLUTO])

        # And by plan to the region that missed the most.
        await logs[MARS].switch_over(STREAM, to=PLUTO)
        await append(logs[PLUTO], range(40, 42))
        for region in REGIONS[:-1]:
            await relay(logs[region])
        after = {region: await values(logs[region]) for region in REGIONS}

    assert (first.fetched, first.is_nothing_lost) == (((0, MARS),), False)
    assert second.home_epoch == 4
    forks = first.ranges[0].from_sequence, second.ranges[0].from_sequence
    home = found[HOME]
    assert all(one == home for one in found.values())
    assert forks[1] < forks[0]
    assert home[: forks[1]] == numbered(*range(forks[1]))
    assert home[-3:] == numbered(30, 31, 32)
    assert kept == {
        f"{TARGET}~4#0": (forks[1], 10),
        f"{MOON}~4#0": (forks[1], forks[0] + 4),
        f"{MARS}~4#0": (forks[1], forks[0] + 4),
    }
    assert all(one == [*home, *numbered(40, 41)] for one in after.values())
