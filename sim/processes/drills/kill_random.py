"""Kills and restarts random storage nodes while several writers append.

Usually one node is down at a time, sometimes two of the same region, so ack sets and blocking
sets remain. The drill checks that each acknowledged record is read back at its position, equal
and once, and that each stream gets answers again after the last kill. It measures the longest
time without an answer.
"""

import random
from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.client.connect import connect
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ServerPlan
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import Verdict, audit_stream
from sim.processes.drills.writer_process import Acknowledged, WriterProcess
from topology.errors import UnavailableError

STREAMS = ("drill/kill-random-1", "drill/kill-random-2", "drill/kill-random-3")

FIRST_ANSWER_S_MAX = 60.0
_SECOND_KILL_SHARE = 0.25
_LOOK_EVERY_S = 0.02
_RATE_RECORDS_S = 2000
"""Maximum rate per writer: all records are read back at the end."""


@attrs.frozen(kw_only=True)
class KillRandomOptions:
    """Number of kills, their timing, and the seed."""

    kills: int = 50
    seed: int = 0
    down_s_max: float = 3.0
    """Maximum time that a killed node stays down."""
    up_s_max: float = 1.5
    """Maximum time that all nodes are up before the next kill."""


@attrs.define
class DrilledStream:
    """One stream: its successive writers and their answers."""

    name: str
    appended: set[bytes] = attrs.field(factory=set)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)
    writer: WriterProcess | None = None
    writers_ended: list[str] = attrs.field(factory=list)
    """Errors of writers that ended before the drill did."""

    @property
    def answers_count(self) -> int:
        """Records acknowledged so far."""
        running = 0 if self.writer is None else len(self.writer.acknowledged)
        return len(self.acknowledged) + running


async def silent_streams(streams: Sequence[DrilledStream]) -> list[str]:
    """A problem for each stream that gets no more answers for a long time."""
    before = [stream.answers_count for stream in streams]

    def silent() -> list[str]:
        pairs = zip(streams, before, strict=True)
        return [stream.name for stream, count in pairs if stream.answers_count == count]

    with trio.move_on_after(FIRST_ANSWER_S_MAX):
        while True:
            if not silent():
                return []
            await trio.sleep(_LOOK_EVERY_S)
    return [
        f"{name}: no append was answered in {FIRST_ANSWER_S_MAX:.0f} s after the last kill"
        for name in silent()
    ]


async def kill_random(
    cluster: LocalCluster,
    options: KillRandomOptions,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> Verdict:
    """Run the drill on a running cluster. It notes kills and answers in the timeline."""
    return await _KillRandom(cluster, options, tell, timeline).run()


class _KillRandom:
    """State of one drill."""

    def __init__(
        self,
        cluster: LocalCluster,
        options: KillRandomOptions,
        tell: Callable[[str], None],
        timeline: Timeline,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._tell = tell
        self._timeline = timeline
        self._rng = random.Random(options.seed)
        self._streams = [DrilledStream(name) for name in STREAMS]
        self._all_answered = trio.Event()
        self._pause_s_max = 0.0
        self._kills_count = 0

    async def run(self) -> Verdict:
        """Run the load with all kills, then audit every stream."""
        plan = self._cluster.plan
        async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log:
            for stream in self._streams:
                await log.create_stream(stream.name, survive="1 region", segment_bytes=4 << 20)
            async with trio.open_nursery() as nursery:
                for stream in self._streams:
                    nursery.start_soon(self._write, stream)
                nursery.start_soon(self._watch_pauses)
                await self._wait_first_answers()
                while self._kills_count < self._options.kills:
                    await self._round()
                await trio.sleep(1.0)
                silent = await silent_streams(self._streams)
                nursery.cancel_scope.cancel(reason="enough")
            audits, problems = [], silent
            for stream in self._streams:
                audit = await audit_stream(
                    log, stream.name, stream.acknowledged, stream.appended
                )
                verified = await log.verify_stream(stream.name)
                audits.append(audit)
                found = audit.problems + ([] if verified.is_good else verified.reasons)
                found += [f"a writer ended early: {why}" for why in stream.writers_ended]
                problems += [f"{stream.name}: {problem}" for problem in found]
        counts = {"kills": self._kills_count}
        for audit in audits:
            for name, value in attrs.asdict(audit).items():
                counts[name] = counts.get(name, 0) + value
        return Verdict(
            drill="kill-random",
            passed=not problems,
            problems=problems,
            counts=counts,
            figures={"pause_s_max": self._pause_s_max},
            rounds=[],
            seed=self._options.seed,
        )

    async def _round(self) -> None:
        """Kill one node, or two of one region, and restart them after a while."""
        await trio.sleep(self._rng.uniform(0.1, self._options.up_s_max))
        victims = self._drawn_victims()
        for victim in victims:
            self._timeline.note_fault(trio.current_time(), f"killed {victim.name}")
            await self._cluster.kill(victim.name)
            self._kills_count += 1
        names = " and ".join(victim.name for victim in victims)
        await trio.sleep(self._rng.uniform(0.0, self._options.down_s_max))
        for victim in victims:
            await self._cluster.start(victim.name)
        answered = sum(stream.answers_count for stream in self._streams)
        self._tell(
            f"{self._kills_count} of {self._options.kills}: killed and restarted {names}, "
            f"{answered:,} records acknowledged"
        )

    def _drawn_victims(self) -> list[ServerPlan]:
        nodes = list(self._cluster.plan.of_kind("storage"))
        first = self._rng.choice(nodes)
        others = [each for each in nodes if each.region == first.region and each != first]
        is_last = self._kills_count + 1 >= self._options.kills
        if others and not is_last and self._rng.random() < _SECOND_KILL_SHARE:
            return [first, self._rng.choice(others)]
        return [first]

    async def _wait_first_answers(self) -> None:
        with trio.move_on_after(FIRST_ANSWER_S_MAX):
            await self._all_answered.wait()
            return
        raise UnavailableError(
            f"not every writer got an answer within {FIRST_ANSWER_S_MAX:.0f} s"
        )

    async def _watch_pauses(self) -> None:
        """Measure, for each stream, the longest time without an answer."""
        last = {stream.name: (0, trio.current_time()) for stream in self._streams}
        while True:
            now_s = trio.current_time()
            for stream in self._streams:
                count, since_s = last[stream.name]
                if stream.answers_count > count:
                    new_count = stream.answers_count - count
                    self._timeline.add_answers(now_s, stream.name, new_count)
                    last[stream.name] = stream.answers_count, now_s
                if self._all_answered.is_set():
                    self._pause_s_max = max(self._pause_s_max, now_s - since_s)
            if all(count for count, _ in last.values()):
                self._all_answered.set()
            await trio.sleep(_LOOK_EVERY_S)

    async def _write(self, stream: DrilledStream) -> None:
        """Keep a writer running; note one that ends early as a problem and start another."""

        def make_value() -> bytes:
            random_part = self._rng.randbytes(30).hex().encode()
            value = b"%d-%s" % (len(stream.appended), random_part)
            stream.appended.add(value)
            return value

        while True:
            stream.writer = WriterProcess(
                self._cluster.plan, stream.name, make_value, records_s_max=_RATE_RECORDS_S
            )
            try:
                await stream.writer.run()
            finally:
                stream.acknowledged += stream.writer.acknowledged
                writer, stream.writer = stream.writer, None
            stream.writers_ended.append(writer.stderr.decode().strip())
