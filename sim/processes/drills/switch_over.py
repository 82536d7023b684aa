"""Moves the home of a stream from region to region by plan, many times, under load.

Named writers of all regions append through proxies, and go where the home goes. The command
makes the move, in a process of its own. A fault strikes at a random instant of it: the command
is killed, or all of the old or the new home, a coordinator of relays, or ZooKeeper's leader.
The stream then has one home, the old one or the new one, and the writers go on there. In the
end every region is compared with the acknowledged records, and the mirrors with their home.
"""

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.client.log import Log
from geolog.metadata.relays import RelayGroups
from geolog.protocol.stream_state import StreamRecord
from sim.processes.cluster.zookeeper_leader import leader_of
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.moved_stream import ANSWER_S_MAX, MovedStream, insist
from sim.processes.drills.proxied_drill import ProxiedDrill, open_proxied_drill
from sim.processes.drills.proxied_verdict import judge, percentile
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict, audit_stream

SWITCH_FAULTS = (
    "none",
    "mover",
    "old-home",
    "new-home",
    "home-coordinator",
    "target-coordinator",
    "zookeeper",
)
"""What strikes while the home moves."""

_STREAM = "drill/switch-over"
_LOOK_S = 0.02
_AWAY_S = 1.0
"""How long killed servers are away."""
_INSTANT_S_FIRST = 0.5
"""The instants of faults are drawn from as much time, until a move was measured."""


@attrs.frozen(kw_only=True)
class SwitchOverOptions:
    """Number of moves with each fault, their timing, and the seed."""

    times: int = 20
    faults: Sequence[str] = ("none",)
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all is well before the next move."""


async def switch_over(
    cluster: DrilledCluster,
    options: SwitchOverOptions,
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
        )

    async with open_proxied_drill(
        cluster, _STREAM, timeline, create=create, reopens=True
    ) as drill:
        moves = _Moves(drill, rng)
        count = options.times * len(options.faults)
        told_count = 0
        for number in range(count):
            await moves.stream.wait_whole()
            await trio.sleep(rng.uniform(0.1, options.up_s_max))
            fault = options.faults[number % len(options.faults)]
            told = await moves.run(fault)
            drill.rounds.append(told)
            tell(f"{number + 1} of {count}, {fault}: {moves.last_told}")
            for error in drill.load.errors[told_count:]:
                tell(f"a writer opened again after an error in {error}")
            told_count = len(drill.load.errors)
        await moves.stream.wait_whole()
        drill.load.end()
        problems, counts, figures = await _judge(moves)
        judged = await judge(drill)
    problems += judged.problems
    return Verdict(
        drill="switch-over",
        passed=not problems,
        problems=problems,
        counts={
            "moves": count,
            "moved": moves.moved_count,
            "reopened": len(drill.load.errors),
            **judged.counts,
            **counts,
        },
        figures=judged.figures | figures,
        rounds=drill.rounds,
        seed=options.seed,
        regions=judged.regions,
    )


@attrs.define(eq=False)
class _Moves:
    """The moves of one drill."""

    drill: ProxiedDrill
    rng: random.Random
    moved_count: int = 0
    last_told: str = ""
    problems: list[str] = attrs.field(factory=list)
    clean: list[dict[str, float]] = attrs.field(factory=list)
    """Figures of moves without a fault."""
    stream: MovedStream = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stream = MovedStream(self.drill.stream, self.drill.log)

    @property
    def cluster(self) -> DrilledCluster:
        return self.drill.cluster

    async def run(self, fault: str) -> dict[str, float]:
        """Move the home somewhere else; strike meanwhile."""
        before = await self.stream.record()
        to = self.rng.choice(before.relay_to)
        begin_s = trio.current_time()
        self.drill.timeline.note_fault(begin_s, f"{before.home}→{to}, {fault}")
        process = await trio.lowlevel.open_process(
            self._command(to), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        output: list[bytes] = []
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_collect, process.stdout, output)
                nursery.start_soon(_collect, process.stderr, [])
                if fault != "none":
                    await self._strike(fault, before, to, process)
                with trio.move_on_after(ANSWER_S_MAX) as patience:
                    await process.wait()
                if patience.cancelled_caught:
                    self.problems.append(f"the command did not end in {ANSWER_S_MAX:.0f} s")
                    process.kill()
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
        await self.drill.load.wait_answers(trio.current_time())
        span = FaultSpan(begin_s, trio.current_time())
        self.drill.spans.append(span)
        return await self._told(fault, before, to, span, b"".join(output))

    def _command(self, to: str) -> list[str]:
        cluster = self.cluster
        gateway = [] if cluster.gateway is None else ["--gateway", cluster.gateway]
        return [
            *(sys.executable, "-P", "-m", "geolog"),
            *("--zookeeper", cluster.zookeeper, "--cluster", cluster.cluster, *gateway),
            *("--region", self.rng.choice(cluster.regions), "--yes", "-o", "json"),
            *("relay", "switch-over", self.drill.stream, "--to", to),
        ]

    async def _told(
        self, fault: str, before: StreamRecord, to: str, span: FaultSpan, output: bytes
    ) -> dict[str, float]:
        after = await self.stream.record()
        has_moved = after.home_epoch == before.home_epoch + 1 and after.home == to
        has_stayed = after.home_epoch == before.home_epoch and after.home == before.home
        if not has_moved and not has_stayed:
            self.problems.append(
                f"{before.home} was to move to {to}, and is {after.home} in home epoch"
                f" {after.home_epoch}, after {before.home_epoch}"
            )
        if fault == "none" and not has_moved:
            self.problems.append(f"a move from {before.home} to {to} without a fault failed")
        self.moved_count += has_moved
        pause_s = max(span.pause_s(writer) for writer in self.drill.load.writers)
        told = {"fault": SWITCH_FAULTS.index(fault), "moved": has_moved, "pause_s": pause_s}
        try:
            [reported] = json.loads(output)
        except ValueError:
            reported = {}
        steps = {
            name: reported.get(name, 0.0) for name in ("closed_s", "drained_s", "flipped_s")
        }
        told |= steps | {"reopened_s": max(0.0, pause_s - sum(steps.values()))}
        if fault == "none" and reported:
            self.clean.append(told)
        self.last_told = (
            f"{before.home} {'moved' if has_moved else 'did not move'} to {to}; no writer"
            f" paused longer than {pause_s:.2f} s"
        )
        return told

    # Faults.

    async def _strike(
        self, fault: str, before: StreamRecord, to: str, process: trio.Process
    ) -> None:
        """Strike at a random instant between the mark and the usual end of a move."""
        assert before.home is not None
        while not (await self.stream.record()).moving_to and process.poll() is None:  # noqa: ASYNC110
            await trio.sleep(_LOOK_S)
        steps_s = [one["closed_s"] + one["drained_s"] + one["flipped_s"] for one in self.clean]
        usual_s = statistics.median(steps_s) if steps_s else _INSTANT_S_FIRST
        await trio.sleep(self.rng.uniform(0.0, usual_s))
        self.drill.timeline.note_fault(trio.current_time(), fault)
        if fault == "mover":
            process.kill()
            return
        victim = await self._victim(fault, before.home, to)
        await self.cluster.kill(victim)
        try:
            await trio.sleep(_AWAY_S)
        finally:
            await self.cluster.start(victim)

    async def _victim(self, fault: str, home: str, to: str) -> str:
        match fault:
            case "old-home":
                return home
            case "new-home":
                return to
            case "home-coordinator":
                return await self._coordinator(home)
            case "target-coordinator":
                return await self._coordinator(to)
            case "zookeeper":
                return await leader_of(self.cluster.zookeeper)
            case other:
                raise AssertionError(other)

    async def _coordinator(self, region: str) -> str:
        groups = RelayGroups(self.drill.log.access.metadata, self.cluster.cluster)
        found = await insist(lambda: groups.view(region))
        assert found is not None, f"{region} has no coordinator"
        return found[0].relay_id


async def _collect(stream: trio.abc.ReceiveStream | None, into: list[bytes]) -> None:
    assert stream is not None
    into += [bytes(chunk) async for chunk in stream]


async def _judge(moves: _Moves) -> tuple[list[str], dict[str, int], dict[str, float]]:
    """Compare every region with the acknowledged records; the figures of moves."""
    drill = moves.drill
    acknowledged = [one for writer in drill.load.writers for one in writer.acknowledged]
    appended = {value for writer in drill.load.writers for value in writer.appended}
    problems, counts = moves.problems, {}
    await moves.stream.wait_equal()
    for region in drill.cluster.regions:
        async with connect_in(drill.cluster, region, via="proxy") as log:
            audit = await audit_stream(log, drill.stream, acknowledged, appended)
        problems += [f"{region}: {one}" for one in audit.problems]
        counts[f"lost_in_{region}"] = audit.lost
    verified = await drill.log.verify_stream(drill.stream)
    problems += [] if verified.is_good else verified.reasons
    counts["mirrors_unequal"] = verified.mirrors_unequal
    pauses_s = [one["pause_s"] for one in moves.clean]
    if not pauses_s:
        return problems, counts, {}
    terms: dict[str, float] = {}
    for name in ("closed_s", "drained_s", "flipped_s", "reopened_s"):
        taken_s = [one[name] for one in moves.clean]
        terms |= {
            f"{name}_median": statistics.median(taken_s),
            f"{name}_p99": percentile(taken_s, 0.99),
        }
    return (
        problems,
        counts,
        {
            "pause_s_median": statistics.median(pauses_s),
            "pause_s_p99": percentile(pauses_s, 0.99),
            "pause_s_max": max(pauses_s),
            **terms,
        },
    )
