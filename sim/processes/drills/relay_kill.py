"""Ends coordinators of relay groups, many times, while records are appended at home.

A `regional` stream is mirrored in every other region; a reader follows each mirror. A fault
ends the coordinator of the home or of a target: it is killed, leaves in good order, or is
stopped until another member coordinates. The drill measures how long each mirror stood still,
and in the end compares every mirror with the acknowledged records, and with the home byte for
byte.
"""

import random
import statistics
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import attrs
import trio

from geolog.background import both, open_background
from geolog.client.log import Log
from geolog.metadata.relays import RelayGroups
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S, HomeWriter, MirrorReader
from sim.processes.drills.proxied_drill import free_name
from sim.processes.drills.proxied_verdict import percentile
from sim.processes.drills.proxy_kill import ProxyFault
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict, audit_stream
from topology.errors import UnavailableError

_STREAM = "drill/relay-kill"
_ANSWER_S_MAX = 90.0


@attrs.frozen(kw_only=True)
class RelayKillOptions:
    """Number of faults, their kind and timing, and the seed."""

    times: int = 20
    fault: ProxyFault = "kill"
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all members are up before the next fault."""


async def relay_kill(
    cluster: DrilledCluster,
    options: RelayKillOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster with two relays or more in each region."""
    rng = random.Random(options.seed)
    home, *targets = cluster.regions
    load, followers = HomeWriter(), [MirrorReader(region) for region in targets]
    rounds: list[dict[str, float]] = []
    async with AsyncExitStack() as stack:
        logs = {
            region: await stack.enter_async_context(connect_in(cluster, region, via="direct"))
            for region in cluster.regions
        }
        log = logs[home]
        stream = await free_name(log, _STREAM)
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
        groups = RelayGroups(log.access.metadata, cluster.cluster)
        async with open_background() as nursery:
            for one in followers:
                nursery.start_soon(one.follow, logs[one.region], stream)
            writing = trio.CancelScope()
            nursery.start_soon(partial(_write, writing, load, log, stream, timeline))
            run = _Rounds(cluster, groups, load, followers, timeline, log, stream)
            for number in range(1, options.times + 1):
                await run.wait_whole()
                await trio.sleep(rng.uniform(0.1, options.up_s_max))
                region = rng.choice(cluster.regions)
                told = await run.fault(region, options.fault)
                rounds.append(told)
                tell(
                    f"{number} of {options.times}, {region}: detection"
                    f" {told['detection_s']:.2f} s, question {told['question_s']:.2f} s,"
                    f" replay of {told['replayed']:.0f} entries,"
                    f" {told['replayed_bytes']:.0f} bytes, {told['replay_s']:.2f} s;"
                    f" mirrors stood still for {told['pause_s_max']:.2f} s"
                )
            writing.cancel(reason="enough")
            with trio.fail_after(_ANSWER_S_MAX):
                for one in followers:
                    await one.wait_for(load.acknowledged[-1].value)
        problems, counts = await _judge(logs, stream, load, followers)
    pauses_s = [each["pause_s_max"] for each in rounds]
    return Verdict(
        drill="relay-kill",
        passed=not problems,
        problems=problems,
        counts={"faults": options.times, "targets": len(targets), **counts},
        figures={
            "detection_s_median": statistics.median(one["detection_s"] for one in rounds),
            "question_s_median": statistics.median(one["question_s"] for one in rounds),
            "replay_s_median": statistics.median(one["replay_s"] for one in rounds),
            "replayed_max": max(one["replayed"] for one in rounds),
            "replayed_bytes_max": max(one["replayed_bytes"] for one in rounds),
            "pause_s_median": statistics.median(pauses_s),
            "pause_s_p99": percentile(pauses_s, 0.99),
            "pause_s_max": max(pauses_s),
        },
        rounds=rounds,
        seed=options.seed,
    )


async def _write(
    scope: trio.CancelScope, load: HomeWriter, log: Log, stream: str, timeline: Timeline
) -> None:
    with scope:
        await load.write(log, stream, timeline)


@attrs.define(eq=False)
class _Rounds:
    """The faults of one drill."""

    cluster: DrilledCluster
    groups: RelayGroups
    load: HomeWriter
    followers: list[MirrorReader]
    timeline: Timeline
    log: Log
    stream: str

    async def wait_whole(self) -> None:
        """Wait until every region has a coordinator and a standby, and every mirror moves."""
        with trio.move_on_after(_ANSWER_S_MAX):
            for region in self.cluster.regions:
                while True:
                    changed = trio.Event()
                    seen = await self.groups.look(region, changed=changed)
                    numbers = [one.number for one in seen.members]
                    if seen.view and seen.view.number in numbers and seen.standby:
                        break
                    await changed.wait()
            await self._wait_moved()
            return
        raise UnavailableError("a region has no relay group of two: start with two relays each")

    async def _wait_moved(self) -> None:
        """Wait until every mirror has a record that is acknowledged from now on."""
        value = self.load.next_value()
        for one in self.followers:
            await one.wait_for(value)

    async def fault(self, region: str, fault: ProxyFault) -> dict[str, float]:
        """End the coordinator of a region, and wait until all mirrors move again."""
        seen = await self.groups.look(region)
        assert seen.view is not None
        victim, epoch = seen.view.relay_id, seen.view.epoch
        act = {
            "kill": self.cluster.kill,
            "drain": self.cluster.stop,
            "pause": self.cluster.pause,
        }[fault]
        begin_s = trio.current_time()
        self.timeline.note_fault(begin_s, f"{fault} {victim}")
        try:
            with trio.move_on_after(_ANSWER_S_MAX) as scope:
                # Until the process is gone, it cannot be started again.
                _, detected_s = await both(
                    partial(act, victim), partial(self._wait_taken_over, region, epoch + 1)
                )
            if scope.cancelled_caught:
                raise UnavailableError(
                    f"a mirror stood still for {_ANSWER_S_MAX:.0f} s after the end of {victim}"
                )
            end_s = trio.current_time()
        finally:
            await (self.cluster.resume if fault == "pause" else self.cluster.start)(victim)
        terms = await self._terms(region)
        return {
            "detection_s": detected_s - begin_s,
            **terms,
            "pause_s_max": max(one.pause_s(begin_s, end_s) for one in self.followers),
        }

    async def _terms(self, region: str) -> dict[str, float]:
        """How long question and replay took on the links of this region, and of how much."""
        with trio.move_on_after(_ANSWER_S_MAX):
            while True:
                found = await self.log.relay_status(self.stream)
                its = [one for one in found if region in (one.home, one.target)]
                questions_s = [one.question_s for one in its if one.question_s is not None]
                replays_s = [one.replay_s for one in its if one.replay_s is not None]
                if its and len(questions_s) == len(replays_s) == len(its):
                    break
                await trio.sleep(LOOK_AGAIN_S)
            return {
                "question_s": max(questions_s),
                "replay_s": max(replays_s),
                "replayed": float(sum(one.replayed_count or 0 for one in its)),
                "replayed_bytes": float(sum(one.replayed_bytes or 0 for one in its)),
            }
        raise UnavailableError(f"the links of {region} were not live again: see `relay status`")

    async def _wait_taken_over(self, region: str, epoch: int) -> float:
        """Wait until this epoch has begun, and all mirrors move; when it had begun."""
        while True:
            changed = trio.Event()
            found = await self.groups.view(region, changed=changed)
            if found is not None and found[0].epoch >= epoch:
                break
            await changed.wait()
        begun_s = trio.current_time()
        await self._wait_moved()
        return begun_s


async def _judge(
    logs: dict[str, Log], stream: str, load: HomeWriter, followers: list[MirrorReader]
) -> tuple[list[str], dict[str, int]]:
    """Compare every region's records with those acknowledged; problems, and counts."""
    problems: list[str] = []
    counts = {"acknowledged": len(load.acknowledged), "lost": 0, "repeated": 0}
    for region, log in logs.items():
        audit = await audit_stream(log, stream, load.acknowledged, set(load.appended))
        problems += [f"{region}: {one}" for one in audit.problems]
        counts["lost"] += audit.lost
        counts["repeated"] += audit.repeated
    for one in followers:
        if one.values != sorted(set(one.values), key=int):
            problems.append(f"{one.region}: the reader that followed was given records twice")
        missed = len({each.value for each in load.acknowledged} - set(one.values))
        if missed or one.gaps:
            problems.append(
                f"{one.region}: the reader that followed missed {missed} records, and was given"
                f" {len(one.gaps)} gaps"
            )
    verified = await logs[followers[0].region].verify_stream(stream)
    problems += [] if verified.is_good else verified.reasons
    return problems, counts
