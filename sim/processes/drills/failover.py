"""Loses the home of a stream under load, and fails it over, many times; the home comes back.

Named writers of all regions append through proxies. The home region is killed, frozen, or cut
off from the others, or nothing happens to it. Then `geolog relay failover` runs, in a process
of its own, and the writers that can go on do. A home that is cut off goes on answering its own
writers: what it answers then is kept aside once it is back.

In the end each acknowledged record must be in the stream, at the position that was answered, or
in what a region keeps aside; and then only in a range that a failover told of. Records that are
kept aside are exported into the stream, and each acknowledged record is then there once.
"""

import json
import math
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Literal

import attrs
import trio

from geolog.client.log import Log
from geolog.client.reading.record import Record
from geolog.protocol.failover_record import FailoverRecord
from geolog.protocol.ids import DLSN
from geolog.protocol.stream_state import StreamRecord
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.moved_stream import MovedStream
from sim.processes.drills.proxied_drill import ProxiedDrill, open_proxied_drill
from sim.processes.drills.proxied_verdict import percentile, region_figures
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict
from sim.processes.drills.writer_process import Acknowledged
from sim.processes.wan.conditions import LinkChange

FAILOVER_FAULTS = ("killed", "frozen", "cut-off", "answers")
"""The state of the home when it is failed over."""

_STREAM = "drill/failover"
_COMMAND_S_MAX = 90.0
_GOES_ON_S_MAX = 60.0
_CUT, _HEALED = LinkChange(is_cut=True), LinkChange(is_cut=False)


_HEARD_LATE_US = 5e6
"""A home tells where its log ends each second; its relay, and the target, hear of it a little
later."""


@attrs.frozen(kw_only=True)
class FailoverOptions:
    """Number of failovers with each fault, their timing, and the seed."""

    times: int = 20
    faults: Sequence[str] = FAILOVER_FAULTS
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all is well before the home is lost."""
    lost_s_max: float = 2.0
    """Maximum time from the loss until the failover begins."""
    away_s_max: float = 2.0
    """Maximum time that the old home stays away after the failover."""
    on_isolation: Literal["continue", "stop"] = "continue"
    """Behaviour of a home that is cut off: with `stop` it may answer nobody once there is
    another."""


async def failover(
    cluster: DrilledCluster,
    options: FailoverOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with proxies, and two relays, in each region."""
    rng = random.Random(options.seed)
    home, *targets = cluster.regions

    async def create(log: Log, stream: str) -> None:
        await log.create_stream(
            stream,
            mode="regional",
            home=home,
            relay_to=targets,
            ensemble_size=2,
            write_quorum=2,
            ack_quorum=2,
            min_regions=1,
            on_isolation=options.on_isolation,
        )

    async with AsyncExitStack() as stack:
        logs = {
            region: await stack.enter_async_context(connect_in(cluster, region, via="direct"))
            for region in cluster.regions
        }
        drill = await stack.enter_async_context(
            open_proxied_drill(cluster, _STREAM, timeline, create=create, reopens=True)
        )
        losses = HomeLosses(drill, rng, options, logs)
        count = options.times * len(options.faults)
        for number in range(count):
            await losses.stream.wait_whole()
            await trio.sleep(rng.uniform(0.1, options.up_s_max))
            fault = options.faults[number % len(options.faults)]
            told = await losses.run(fault)
            drill.rounds.append(told)
            tell(f"{number + 1} of {count}, {fault}: {losses.last_told}")
        await losses.stream.wait_whole()
        await drill.load.wait_answers(trio.current_time())
        drill.load.end()
        counts, figures = await judge_losses(losses)
        regions = [region_figures(drill, region) for region in cluster.regions]
    return Verdict(
        drill="failover",
        passed=not losses.problems,
        problems=losses.problems,
        counts={"failovers": count, **counts},
        figures=figures,
        rounds=drill.rounds,
        seed=options.seed,
        regions=regions,
    )


@attrs.define(eq=False)
class HomeLosses:
    """The losses of one stream's home, and what became of its records."""

    drill: ProxiedDrill
    rng: random.Random
    options: FailoverOptions
    logs: dict[str, Log]
    """One in each region."""
    last_told: str = ""
    problems: list[str] = attrs.field(factory=list)
    lost_at_s: dict[int, float] = attrs.field(factory=dict)
    """When the home of each epoch was lost."""
    moved_at_s: dict[int, float] = attrs.field(factory=dict)
    """When there was another home for certain."""
    stream: MovedStream = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stream = MovedStream(self.drill.stream, self.drill.log)

    @property
    def cluster(self) -> DrilledCluster:
        """The cluster that is drilled."""
        return self.drill.cluster

    async def run(self, fault: str) -> dict[str, float]:
        """Lose the home, fail over, have it back."""
        before = await self.stream.record()
        home = before.home
        assert home is not None
        self.stream.log = self.logs[self.rng.choice(self._others(home))]
        begin_s = self.lost_at_s[before.home_epoch] = trio.current_time()
        self.drill.timeline.note_fault(begin_s, f"{home} {fault}")
        await self._lose(home, fault)
        reported: dict[str, object] = {}
        try:
            await trio.sleep(self.rng.uniform(0.0, self.options.lost_s_max))
            asked_s = trio.current_time()
            reported = await self._fail_over(before)
            moved_s = self.moved_at_s[before.home_epoch] = trio.current_time()
            after = await self.stream.record()
            assert after.home is not None
            if after.home_epoch != before.home_epoch + 1 or after.home == home:
                self.problems.append(
                    f"{home} {fault}: the home is {after.home}, in home epoch"
                    f" {after.home_epoch} after {before.home_epoch}: {reported}"
                )
            await self.wait_goes_on(home, moved_s)
            goes_on_s = trio.current_time()
            await trio.sleep(self.rng.uniform(0.0, self.options.away_s_max))
        finally:
            with trio.CancelScope(shield=True):
                await self._have_back(home, fault)
        self.drill.timeline.note_fault(trio.current_time(), f"{home} is back")
        self.drill.spans.append(FaultSpan(begin_s, trio.current_time()))
        at_risk = reported.get("ranges")
        self.last_told = (
            f"{home}→{after.home} in {moved_s - asked_s:.1f} s; writers elsewhere went on"
            f" {goes_on_s - begin_s:.1f} s after the loss"
        )
        return {
            "fault": FAILOVER_FAULTS.index(fault),
            "failover_s": moved_s - asked_s,
            "rto_s": goes_on_s - begin_s,
            "at_risk_records": _records_at_risk(at_risk),
        }

    async def _lose(self, home: str, fault: str) -> None:
        match fault:
            case "killed":
                await self.cluster.kill(home)
            case "frozen":
                await self.cluster.pause(home)
            case "cut-off":
                for other in self._others(home):
                    await self.cluster.change_link(home, other, _CUT)
            case "answers":
                pass
            case other:
                raise AssertionError(other)

    async def _have_back(self, home: str, fault: str) -> None:
        match fault:
            case "killed":
                await self.cluster.start(home)
            case "frozen":
                await self.cluster.resume(home)
            case "cut-off":
                for other in self._others(home):
                    await self.cluster.change_link(home, other, _HEALED)
            case _:
                pass

    def _others(self, home: str) -> list[str]:
        return [one for one in self.cluster.regions if one != home]

    async def _fail_over(self, before: StreamRecord) -> dict[str, object]:
        """Run the command in a region that is left, and return its report."""
        assert before.home is not None
        region = self.rng.choice(self._others(before.home))
        reports = await fail_over(self.cluster, region, [self.drill.stream], self.problems)
        return reports[0] if reports else {}

    async def wait_goes_on(self, home: str, since_s: float) -> None:
        """Wait until every writer outside of the old home is answered."""
        writers = [one for one in self.drill.load.writers if one.region != home]
        with trio.move_on_after(_GOES_ON_S_MAX):
            for writer in writers:
                while not writer.sent_s or writer.sent_s[-1] <= since_s:
                    await writer.changed.wait()
            return
        self.problems.append(
            f"writers outside of {home} did not go on within {_GOES_ON_S_MAX:.0f} s"
        )


async def fail_over(
    cluster: DrilledCluster, region: str, what: list[str], problems: list[str]
) -> list[dict[str, object]]:
    """Run `geolog relay failover` in a region, and return the reports of the streams."""
    gateway = [] if cluster.gateway is None else ["--gateway", cluster.gateway]
    command = [
        *(sys.executable, "-P", "-m", "geolog"),
        *("--zookeeper", cluster.zookeeper, "--cluster", cluster.cluster, *gateway),
        *("--region", region, "--yes", "-o", "json"),
        *("relay", "failover", *what),
    ]
    with trio.move_on_after(_COMMAND_S_MAX):
        ended = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
        try:
            reports = json.loads(ended.stdout)
        except ValueError:
            problems.append(f"the failover failed: {ended.stderr.decode()[-500:]}")
            return []
        assert isinstance(reports, list)
        return reports
    problems.append(f"the failover took more than {_COMMAND_S_MAX:.0f} s")
    return []


def _records_at_risk(ranges: object) -> float:
    """Of a report's ranges: the records known to be at risk, in all."""
    assert ranges is None or isinstance(ranges, list)
    return float(
        sum(
            0 if one["is_nothing_lost"] else max(0, one["to_sequence"] - one["from_sequence"])
            for one in ranges or []
            if one["to_sequence"] is not None
        )
    )


# What became of the records.


@attrs.define
class _Found:
    """All records of one log or of what is kept aside."""

    values: Counter[bytes] = attrs.field(factory=Counter)
    by_dlsn: dict[DLSN, bytes] = attrs.field(factory=dict)

    def add(self, record: Record) -> None:
        self.values[record.value] += 1
        self.by_dlsn[record.dlsn] = record.value


async def judge_losses(
    losses: HomeLosses,
) -> tuple[dict[str, int], dict[str, float]]:
    """Compare the stream, and what is kept aside, with the acknowledged records."""
    drill, problems = losses.drill, losses.problems
    log, name, writers = losses.stream.log, drill.stream, drill.load.writers
    await losses.stream.wait_equal()
    acknowledged = [one for writer in writers for one in writer.acknowledged]
    in_stream = _Found()
    async with log.open_reader(name) as reader:
        async for record in reader:
            in_stream.add(record)
    for region in drill.cluster.regions:
        async with connect_in(drill.cluster, region, via="proxy") as near:
            there = _Found()
            async with near.open_reader(name) as reader:
                async for record in reader:
                    there.add(record)
        if there.by_dlsn != in_stream.by_dlsn:
            problems.append(f"{region} has not the records that the home has")
    aside = _Found()
    kept = await log.list_divergences(name)
    for one in kept:
        async with log.open_divergence(name, one.name) as reader:
            async for record in reader:
                aside.add(record)
    left_behind = [one for one in acknowledged if in_stream.by_dlsn.get(one.dlsn) != one.value]
    gone = [one for one in left_behind if aside.by_dlsn.get(one.dlsn) != one.value]
    told = await log.list_failovers(name)
    outside = _outside(left_behind, told)
    since_us = log.access.now_us() - trio.current_time() * 1e6
    answered_us = {
        one.value: since_us + at_s * 1e6
        for writer in writers
        for one, at_s in zip(writer.acknowledged, writer.answered_s, strict=True)
    }
    above = above_ranges(left_behind, answered_us, told)
    repeated = sum(count - 1 for count in in_stream.values.values())
    swapped = drill.load.swapped_count(list(in_stream.by_dlsn.values()))
    for count, what in (
        (len(gone), "acknowledged records are neither in the stream nor kept aside"),
        (len(outside), "records were left behind outside of every range that was told"),
        (len(above), "records were left behind above a range that was told after their answer"),
        (repeated, "records are in the stream more than once"),
        (swapped, "records are before an earlier one of their writer"),
    ):
        if count:
            problems.append(f"{count} {what}")
    verified = await log.verify_stream(name)
    problems += [] if verified.is_good else verified.reasons
    home = (await losses.stream.record()).home
    assert home is not None
    await _export(losses.logs[home], name, acknowledged, problems)
    late = [
        one
        for writer in writers
        for one, at_s in zip(writer.acknowledged, writer.answered_s, strict=True)
        if at_s > losses.moved_at_s.get(one.home_epoch, math.inf)
    ]
    if late and losses.options.on_isolation == "stop":
        problems.append(f"{len(late)} records were answered by a home that had been replaced")
    rtos_s = [one["rto_s"] for one in drill.rounds] or [0.0]
    failovers_s = [one["failover_s"] for one in drill.rounds] or [0.0]
    return (
        {
            "acknowledged": len(acknowledged),
            "in_stream": len(in_stream.by_dlsn),
            "left_behind": len(left_behind),
            "answered_by_two_homes": len(late),
            "gone": len(gone),
            "outside_of_ranges": len(outside),
            "above_ranges": len(above),
            "repeated": repeated,
            "swapped": swapped,
            "divergences": len(kept),
            "mirrors_unequal": verified.mirrors_unequal,
        },
        {
            "rpo_s_max": _rpo_s(losses, left_behind),
            "rto_s_median": statistics.median(rtos_s),
            "rto_s_max": max(rtos_s),
            "failover_s_p99": percentile(failovers_s, 0.99),
        },
    )


def _outside(
    left_behind: Sequence[Acknowledged], failovers: Sequence[FailoverRecord]
) -> list[Acknowledged]:
    """Those before the place where each later home begins, as the failovers told it."""
    return [
        one
        for one in left_behind
        if not any(
            each.home_epoch > one.home_epoch and part.from_sequence <= one.sequence
            for each in failovers
            for part in each.ranges
        )
    ]


def above_ranges(
    left_behind: Sequence[Acknowledged],
    answered_us: Mapping[bytes, float],
    failovers: Sequence[FailoverRecord],
) -> list[Acknowledged]:
    """Those that lie above a range, though a target heard of the home after their answer.

    answered_us: when each value was answered, by the clock of this machine, which is that of
    all regions. A stream of a drill has one partition.
    """
    return [
        one
        for one in left_behind
        if any(
            each.home_epoch == one.home_epoch + 1
            and part.heard_us is not None
            and part.to_sequence is not None
            and answered_us[one.value] < part.heard_us - _HEARD_LATE_US
            and part.to_sequence <= one.sequence
            for each in failovers
            for part in each.ranges
        )
    ]


async def _export(
    log: Log, name: str, acknowledged: Sequence[Acknowledged], problems: list[str]
) -> None:
    """Export all that is kept aside, discard it, and look for every record in the stream."""
    for one in await log.list_divergences(name):
        await log.export_divergence(name, one.name, into=name)
        await log.discard_divergence(name, one.name)
    found: Counter[bytes] = Counter()
    async with log.open_reader(name) as reader:
        async for record in reader:
            found[record.value] += 1
    lacking = sum(found[one.value] == 0 for one in acknowledged)
    twice = sum(count > 1 for count in found.values())
    if lacking:
        problems.append(f"{lacking} acknowledged records are not there after the export")
    if twice:
        problems.append(f"{twice} records are there more than once after the export")


def _rpo_s(losses: HomeLosses, left_behind: Sequence[Acknowledged]) -> float:
    """Age of the oldest record that was left behind, when its home was lost.

    Records that a home answered after it was lost, because it was cut off, do not count.
    """
    lost = {one.dlsn for one in left_behind}
    ages_s = [
        losses.lost_at_s[one.home_epoch] - at_s
        for writer in losses.drill.load.writers
        for one, at_s in zip(writer.acknowledged, writer.answered_s, strict=True)
        if one.dlsn in lost and one.home_epoch in losses.lost_at_s
    ]
    return max(0.0, *ages_s) if ages_s else 0.0
