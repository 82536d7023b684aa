"""Kills the proxy that owns a stream, many times, while named writers append through proxies.

The writers are clients of all regions. After each kill, another proxy takes the stream over as
soon as it knows of the loss, and the writers go on by themselves. The drill checks that each
acknowledged record is read back at its position, equal and once, and in the order in which its
writer sent it. It measures how long each writer had no answer, and what that time went into.

The proxy can also drain, as it does at SIGTERM. Its writers are then unnamed: one that lost an
answer would be told that the outcome is unknown.
"""

import random
import statistics
from collections.abc import Callable
from typing import Literal

import attrs
import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.metadata.proxies import owner_name
from sim.processes.drills.drilled_cluster import DrilledCluster
from sim.processes.drills.failover_watch import FailoverWatch, find_partition
from sim.processes.drills.proxied_load import ANSWER_S_MAX, ProxiedLoad
from sim.processes.drills.proxied_verdict import FaultSpan, judge, percentile
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict
from topology.errors import UnavailableError

STREAM = "drill/proxy-kill"
WRITERS_COUNT = 8
SESSION_TIMEOUT_S = 6.0
"""Of the proxies: until it is over, metadata does not show that a killed proxy is gone."""

_LOOK_EVERY_S = 0.02

ProxyFault = Literal["kill", "drain"]


@attrs.frozen(kw_only=True)
class ProxyKillOptions:
    """Number of faults, their kind and timing, and the seed."""

    times: int = 20
    fault: ProxyFault = "kill"
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all proxies are up before the next fault."""


async def proxy_kill(
    site: DrilledCluster,
    options: ProxyKillOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with at least two proxies."""
    return await _ProxyKill(site, options, tell, timeline).run()


class _ProxyKill:
    """State of one drill."""

    def __init__(
        self,
        site: DrilledCluster,
        options: ProxyKillOptions,
        tell: Callable[[str], None],
        timeline: Timeline,
    ) -> None:
        self._site = site
        self._options = options
        self._tell = tell
        self._timeline = timeline
        timeline.lane_kind = "region"
        self._rng = random.Random(options.seed)
        self._load = ProxiedLoad(
            site,
            STREAM,
            timeline,
            writers_count=WRITERS_COUNT,
            is_named=options.fault == "kill",
        )
        self._spans: list[FaultSpan] = []
        self._rounds: list[dict[str, float]] = []

    async def run(self) -> Verdict:
        """Run the load with all faults, then audit the stream."""
        site = self._site
        async with connect(
            zookeeper=site.zookeeper,
            cluster=site.cluster,
            region=site.regions[0],
            gateway=site.gateway,
            via="direct",
        ) as log:
            await log.create_stream(STREAM, survive="1 region", segment_bytes=8 << 20)
            watch = await find_partition(log.access, STREAM)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._load.run)
                await self._load.wait_answers(trio.current_time())
                for number in range(1, self._options.times + 1):
                    await trio.sleep(self._rng.uniform(0.1, self._options.up_s_max))
                    match self._options.fault:
                        case "kill":
                            await self._kill(watch, number)
                        case "drain":
                            await self._drain(watch, number)
                nursery.cancel_scope.cancel(reason="enough")
            return await self._verdict(log)

    async def _kill(self, watch: FailoverWatch, number: int) -> None:
        """Kill the owner, wait until every writer goes on, and start the proxy again."""
        write_s = await watch.write_s()
        victim = await self._owner(watch)
        before = await watch.writes()
        async with watch.watch_loss(victim, self._name(victim)) as detection:
            begin_s = self._note(f"killed {victim}")
            await self._site.kill(victim)
            await self._load.wait_answers(trio.current_time())
            await detection.is_seen.wait()
        span = self._end_span(begin_s)
        writes_count = (await watch.writes()).since(before)
        await self._site.start(victim)
        outages_s = [span.outage_s(writer) for writer in self._load.writers]
        outage_s, detection_s = max(outages_s), detection.at_s - begin_s
        round_trips_s = outage_s - detection_s - writes_count * write_s
        self._rounds.append(
            {
                "outage_s_median": statistics.median(outages_s),
                "outage_s_max": outage_s,
                "detection_s": detection_s,
                "metadata_writes": writes_count,
                "metadata_write_s": write_s,
                "metadata_s": writes_count * write_s,
                "round_trips_s": round_trips_s,
            }
        )
        self._tell(
            f"{number} of {self._options.times}: killed {victim}; every writer went on after"
            f" {outage_s:.2f} s: detection {detection_s:.2f} s, {writes_count} metadata writes"
            f" of {1e3 * write_s:.1f} ms, round trips {round_trips_s:.2f} s"
        )

    async def _drain(self, watch: FailoverWatch, number: int) -> None:
        """End the owner as an operator does, wait for all writers, and start it again."""
        victim = await self._owner(watch)
        begin_s = self._note(f"drained {victim}")
        await self._site.stop(victim)
        await self._load.wait_answers(trio.current_time())
        span = self._end_span(begin_s)
        await self._site.start(victim)
        pauses_s = [span.pause_s(writer) for writer in self._load.writers]
        self._rounds.append(
            {"pause_s_median": statistics.median(pauses_s), "pause_s_max": max(pauses_s)}
        )
        self._tell(
            f"{number} of {self._options.times}: drained {victim}; no writer paused longer than"
            f" {1e3 * max(pauses_s):.0f} ms"
        )

    def _note(self, fault: str) -> float:
        """Note a fault that begins now."""
        now_s = trio.current_time()
        self._timeline.note_fault(now_s, fault)
        return now_s

    def _end_span(self, begin_s: float) -> FaultSpan:
        span = FaultSpan(begin_s, trio.current_time())
        self._spans.append(span)
        return span

    def _name(self, proxy: str) -> str:
        return owner_name(proxy, self._site.proxies[proxy])

    async def _owner(self, watch: FailoverWatch) -> str:
        """The proxy that owns the stream."""
        proxies = {self._name(proxy): proxy for proxy in self._site.proxies}
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                owner = await watch.owner()
                if owner in proxies:
                    return proxies[owner]
                await trio.sleep(_LOOK_EVERY_S)
        raise UnavailableError(f"no proxy owns {STREAM}")

    async def _verdict(self, log: Log) -> Verdict:
        judged = await judge(log, STREAM, self._load, self._spans, self._timeline)
        problems = judged.problems
        unknown_count = judged.counts["unknown"]
        if unknown_count:
            problems.append(f"{unknown_count} appends were told an unknown outcome")
        is_kill = self._options.fault == "kill"
        figures = self._kill_figures() if is_kill else self._drain_figures()
        return Verdict(
            drill="proxy-kill",
            passed=not problems,
            problems=problems,
            counts={"faults": self._options.times, **judged.counts},
            figures=figures | judged.figures,
            rounds=self._rounds,
            seed=self._options.seed,
            regions=judged.regions,
        )

    def _kill_figures(self) -> dict[str, float]:
        outages_s = [
            span.outage_s(writer) for span in self._spans for writer in self._load.writers
        ]
        p99_s = percentile(outages_s, 0.99)
        medians = {
            f"{name}_median": statistics.median(each[name] for each in self._rounds)
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

    def _drain_figures(self) -> dict[str, float]:
        pauses_s = [
            span.pause_s(writer) for span in self._spans for writer in self._load.writers
        ]
        return {
            "pause_s_median": statistics.median(pauses_s),
            "pause_s_p99": percentile(pauses_s, 0.99),
            "pause_s_max": max(pauses_s),
        }
