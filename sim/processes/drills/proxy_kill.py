"""Kills the proxy that owns a stream, many times, while named writers append through proxies.

The writers are clients of all regions. After each kill, another proxy takes the stream over as
soon as it knows of the loss, and the writers go on by themselves. The drill checks that each
acknowledged record is read back at its position, equal and once, and in the order in which its
writer sent it. It measures how long each writer had no answer, and what that time went into.

The proxy can also drain, as it does at SIGTERM. Its writers are then unnamed: one that lost an
answer would be told that the outcome is unknown. Or it is stopped for longer than its session,
and continues when another proxy has its partition: then it must acknowledge nothing more.
"""

import random
import statistics
from collections.abc import Callable
from functools import partial
from typing import Literal

import attrs
import trio

from sim.processes.drills.drilled_cluster import DrilledCluster
from sim.processes.drills.proxied_drill import ProxiedDrill, open_proxied_drill
from sim.processes.drills.proxied_verdict import judge, percentile
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict
from sim.processes.drills.zombie_session import RECORDS_COUNT, open_zombie_session

SESSION_TIMEOUT_S = 6.0
"""Of the proxies: until it is over, metadata does not show that a killed proxy is gone."""

ProxyFault = Literal["kill", "drain", "pause"]

_PAUSED_S = 8.0
"""Longer than a session."""


@attrs.frozen(kw_only=True)
class ProxyKillOptions:
    """Number of faults, their kind and timing, and the seed."""

    times: int = 20
    fault: ProxyFault = "kill"
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all proxies are up before the next fault."""


async def proxy_kill(
    cluster: DrilledCluster,
    options: ProxyKillOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with at least two proxies."""
    rng = random.Random(options.seed)
    is_drain = options.fault == "drain"
    strike = {"kill": _kill, "drain": _drain, "pause": _pause}[options.fault]
    async with open_proxied_drill(
        cluster, "drill/proxy-kill", timeline, is_named=not is_drain
    ) as drill:
        for number in range(1, options.times + 1):
            await trio.sleep(rng.uniform(0.1, options.up_s_max))
            told = await strike(drill, await drill.owner())
            tell(f"{number} of {options.times}: {told}")
        drill.load.end()
        judged = await judge(drill)
    problems = judged.problems
    zombie_count = sum(int(each.get("zombie_acknowledged", 0)) for each in drill.rounds)
    if zombie_count:
        problems.append(f"{zombie_count} appends were acknowledged by a deposed proxy")
    return Verdict(
        drill="proxy-kill",
        passed=not problems,
        problems=problems,
        counts={"faults": options.times, **judged.counts},
        figures=judged.figures | (_drain_figures if is_drain else _outage_figures)(drill),
        rounds=drill.rounds,
        seed=options.seed,
        regions=judged.regions,
    )


async def _kill(drill: ProxiedDrill, victim: str) -> str:
    """Kill the owner, and wait until every writer goes on."""
    try:
        kill = partial(drill.cluster.kill, victim)
        parts = await drill.lose(victim, f"killed {victim}", kill)
    finally:
        await drill.cluster.start(victim)
    drill.rounds.append(parts.figures())
    return f"killed {victim}; every writer went on after {parts}"


async def _drain(drill: ProxiedDrill, victim: str) -> str:
    """End the owner as an operator does, and wait for every writer."""
    try:
        span = await drill.meet(f"drained {victim}", partial(drill.cluster.stop, victim))
    finally:
        await drill.cluster.start(victim)
    pause_s = max(span.pause_s(writer) for writer in drill.load.writers)
    drill.rounds.append({"pause_s_max": pause_s})
    return f"drained {victim}; no writer paused longer than {1e3 * pause_s:.0f} ms"


async def _pause(drill: ProxiedDrill, victim: str) -> str:
    """Stop the owner, wait for every writer, and continue it with appends in its socket."""
    cluster = drill.cluster
    async with open_zombie_session(cluster, victim, drill.stream) as session:
        stop = partial(cluster.pause, victim)
        parts = await drill.lose(victim, f"stopped {victim}", stop, lasts_s=_PAUSED_S)
        await session.send()
        drill.timeline.note_fault(trio.current_time(), f"continued {victim}")
        await cluster.resume(victim)
        acknowledged_count = await session.acknowledged_count()
    drill.rounds.append({**parts.figures(), "zombie_acknowledged": acknowledged_count})
    return (
        f"stopped {victim}; every writer went on after {parts}; continued, it acknowledged"
        f" {acknowledged_count} of {RECORDS_COUNT} appends"
    )


def _outage_figures(drill: ProxiedDrill) -> dict[str, float]:
    outages_s = [outage_s for span in drill.spans for outage_s in drill.outages_s(span)]
    p99_s = percentile(outages_s, 0.99)
    medians = {
        f"{name}_median": statistics.median(each[name] for each in drill.rounds)
        for name in ("detection_s", "metadata_writes", "metadata_write_s", "round_trips_s")
    }
    return {
        "outage_s_median": statistics.median(outages_s),
        "outage_s_p99": p99_s,
        "outage_s_max": max(outages_s),
        **medians,
        "session_timeout_s": SESSION_TIMEOUT_S,
        "outage_behind_session_s_p99": p99_s - SESSION_TIMEOUT_S,
    }


def _drain_figures(drill: ProxiedDrill) -> dict[str, float]:
    pauses_s = [span.pause_s(writer) for span in drill.spans for writer in drill.load.writers]
    return {
        "pause_s_median": statistics.median(pauses_s),
        "pause_s_p99": percentile(pauses_s, 0.99),
        "pause_s_max": max(pauses_s),
        "rto_s": max(pauses_s),
    }
