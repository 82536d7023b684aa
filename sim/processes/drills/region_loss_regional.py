"""Kills a whole region, some times, while each region is the home of a stream under load.

SIGKILL ends everything in the region: storage nodes, proxies, relays, and the ZooKeeper server.
`geolog relay failover --home REGION` fails over all streams that are at home there; those of
other homes go on meanwhile. Then the region is started again. The verdict is that of the drill
`failover`, for each of the three streams.
"""

import random
from collections.abc import Callable
from contextlib import AsyncExitStack

import attrs
import trio

from geolog.client.log import Log
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.failover import (
    FailoverOptions,
    HomeLosses,
    fail_over,
    judge_losses,
)
from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.proxied_drill import CreateStream, open_proxied_drill
from sim.processes.drills.proxied_verdict import region_figures
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict

_WRITERS_COUNT = 3
"""Of each stream: one in each region."""


@attrs.frozen(kw_only=True)
class RegionalLossOptions:
    """Number of losses, their timing, and the seed."""

    times: int = 3
    seed: int = 0
    up_s_max: float = 2.0
    """Maximum time that everything is up before the next loss."""
    lost_s_max: float = 2.0
    """Maximum time from the loss until the failover begins."""


async def region_loss_regional(
    cluster: DrilledCluster,
    options: RegionalLossOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with proxies, and two relays, in each region."""
    rng = random.Random(options.seed)
    async with AsyncExitStack() as stack:
        logs = {
            region: await stack.enter_async_context(connect_in(cluster, region, via="direct"))
            for region in cluster.regions
        }
        streams: list[HomeLosses] = []
        for home in cluster.regions:
            drill = await stack.enter_async_context(
                open_proxied_drill(
                    cluster,
                    f"drill/regional-{home}",
                    timeline,
                    create=_creates(home, cluster.regions),
                    reopens=True,
                    writers_count=_WRITERS_COUNT,
                )
            )
            streams.append(HomeLosses(drill, rng, FailoverOptions(), logs))
        for number in range(1, options.times + 1):
            for one in streams:
                await one.stream.wait_whole()
            await trio.sleep(rng.uniform(0.1, options.up_s_max))
            told = await _lose(cluster, streams, rng, options)
            tell(f"{number} of {options.times}: {told}")
        for one in streams:
            await one.stream.wait_whole()
            await one.drill.load.wait_answers(trio.current_time())
            one.drill.load.end()
        return await _verdict(streams, options)


def _creates(home: str, regions: tuple[str, ...]) -> CreateStream:
    async def create(log: Log, stream: str) -> None:
        await log.create_stream(
            stream,
            mode="regional",
            home=home,
            relay_to=[one for one in regions if one != home],
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=2,
            min_regions=1,
        )

    return create


async def _lose(
    cluster: DrilledCluster,
    streams: list[HomeLosses],
    rng: random.Random,
    options: RegionalLossOptions,
) -> str:
    """Lose a region that is a home, fail its streams over, and start it again."""
    homes = {one.drill.stream: (await one.stream.record()).home for one in streams}
    region = rng.choice(sorted({home for home in homes.values() if home is not None}))
    lost = [one for one in streams if homes[one.drill.stream] == region]
    others = [one for one in cluster.regions if one != region]
    for one in streams:
        one.stream.log = one.logs[rng.choice(others)]
    begin_s = trio.current_time()
    for one in lost:
        record = await one.stream.record()
        one.lost_at_s[record.home_epoch] = begin_s
    streams[0].drill.timeline.note_fault(begin_s, f"killed {region}")
    await cluster.kill(region)
    try:
        await trio.sleep(rng.uniform(0.0, options.lost_s_max))
        asked_s = trio.current_time()
        problems = streams[0].problems
        reports = await fail_over(cluster, rng.choice(others), ["--home", region], problems)
        moved_s = trio.current_time()
        if len(reports) != len(lost):
            problems.append(
                f"{region} was the home of {len(lost)} streams; {len(reports)} were failed over"
            )
        for one in streams:
            await one.wait_goes_on(region, moved_s)
        goes_on_s = trio.current_time()
    finally:
        with trio.CancelScope(shield=True):
            await cluster.start(region)
    for one in streams:
        one.drill.spans.append(FaultSpan(begin_s, trio.current_time()))
    for one in lost:
        one.drill.rounds.append({"failover_s": moved_s - asked_s, "rto_s": goes_on_s - begin_s})
    return (
        f"killed {region}, the home of {len(lost)} of {len(streams)} streams; failed over in"
        f" {moved_s - asked_s:.1f} s; writers elsewhere went on {goes_on_s - begin_s:.1f} s"
        " after the loss"
    )


async def _verdict(streams: list[HomeLosses], options: RegionalLossOptions) -> Verdict:
    counts: dict[str, int] = {"losses": options.times}
    figures: dict[str, float] = {}
    for one in streams:
        counted, measured = await judge_losses(one)
        for name, count in counted.items():
            counts[name] = counts.get(name, 0) + count
        for name, figure in measured.items():
            figures[name] = max(figures.get(name, 0.0), figure)
    problems = [f"{one.drill.stream}: {text}" for one in streams for text in one.problems]
    drill = streams[0].drill
    return Verdict(
        drill="region-loss-regional",
        passed=not problems,
        problems=problems,
        counts=counts,
        figures=figures,
        rounds=[each for one in streams for each in one.drill.rounds],
        seed=options.seed,
        regions=[region_figures(drill, region) for region in drill.cluster.regions],
    )
