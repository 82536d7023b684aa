"""Kills a whole region, some times, while named writers of all regions append through proxies.

SIGKILL ends everything in the region whose proxy owns the stream: storage nodes, proxies, and
the ZooKeeper server. Applications live on, and those of the lost region use proxies of others.
The region stays away for longer than a session, and is then started again. The next one is lost
when the cluster is healthy: no stream promises to survive the loss of two.
"""

import random
from collections.abc import Callable
from functools import partial

import attrs
import trio

from sim.processes.cluster.health import make_healthy
from sim.processes.drills.drilled_cluster import DrilledCluster
from sim.processes.drills.proxied_drill import ProxiedDrill, open_proxied_drill
from sim.processes.drills.proxied_verdict import judge
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict


@attrs.frozen(kw_only=True)
class RegionLossOptions:
    """Number of losses, their timing, and the seed."""

    times: int = 3
    seed: int = 0
    up_s_max: float = 2.0
    """Maximum time that everything is up before the next loss."""
    lost_s: float = 8.0
    """Minimum time that a region is away."""


async def region_loss(
    cluster: DrilledCluster,
    options: RegionLossOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster of at least three regions with proxies."""
    rng = random.Random(options.seed)
    async with open_proxied_drill(cluster, "drill/region-loss", timeline) as drill:
        for number in range(1, options.times + 1):
            await trio.sleep(rng.uniform(0.1, options.up_s_max))
            tell(f"{number} of {options.times}: {await _lose(drill, options.lost_s)}")
        drill.load.end()
        judged = await judge(drill)
        verified = await drill.log.verify_stream(drill.stream)
    problems = judged.problems + ([] if verified.is_good else verified.reasons)
    return Verdict(
        drill="region-loss",
        passed=not problems,
        problems=problems,
        counts={"losses": options.times, **judged.counts},
        figures=judged.figures,
        rounds=drill.rounds,
        seed=options.seed,
        regions=judged.regions,
    )


async def _lose(drill: ProxiedDrill, lost_s: float) -> str:
    """Lose a region, start it again, and repair."""
    owner = await drill.owner()
    region = drill.cluster.proxies[owner].region
    parts = await drill.lose(
        owner, f"killed {region}", partial(drill.cluster.kill, region), lasts_s=lost_s
    )
    started_s = trio.current_time()
    drill.timeline.note_fault(started_s, f"started {region}")
    await drill.cluster.start(region)
    await make_healthy(drill.log)
    healthy_s = trio.current_time() - started_s
    drill.rounds.append({**parts.figures(), "healthy_s": healthy_s})
    return (
        f"killed {region}; every writer went on after {parts}; healthy {healthy_s:.1f} s after"
        " its start"
    )
