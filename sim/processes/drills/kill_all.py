"""Kills all processes at once under load and restarts them in random order, many times.

The drill checks that each acknowledged record is read back at its position, equal and once, and
that a restart of the processes is all it takes.
"""

import random
import signal
from collections.abc import Callable

import attrs
import trio

from geolog.client.connect import connect
from sim.processes.cluster.local import LocalCluster
from sim.processes.drills.verdict import Verdict, audit_stream
from sim.processes.drills.writer_process import Acknowledged, WriterProcess
from topology.errors import UnavailableError

STREAM = "drill/kill-all"

RECOVERY_S_MAX = 60.0
"""Time limit from the restart of the last process to the next acknowledged append."""


@attrs.frozen(kw_only=True)
class KillAllOptions:
    """Number of rounds, their timing, and the seed."""

    times: int = 10
    seed: int = 0
    load_s_max: float = 2.0
    """The kill happens at a random moment within this time of steady load."""


async def kill_all(
    cluster: LocalCluster, options: KillAllOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a running cluster."""
    return await _KillAll(cluster, options, tell).run()


class _KillAll:
    """State of one drill: the appended and the acknowledged records, and the rounds."""

    def __init__(
        self, cluster: LocalCluster, options: KillAllOptions, tell: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._tell = tell
        self._rng = random.Random(options.seed)
        self._appended: set[bytes] = set()
        self._acknowledged: list[Acknowledged] = []
        self._rounds: list[dict[str, float]] = []

    async def run(self) -> Verdict:
        """Run all rounds, one more load to show that appends go on, and the audit."""
        plan = self._cluster.plan
        async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log:
            await log.create_stream(STREAM, survive="1 region", segment_bytes=1 << 20)
        for number in range(1, self._options.times + 1):
            await self._round(number)
        await self._load(None)
        async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log:
            audit = await audit_stream(log, STREAM, self._acknowledged, self._appended)
            verified = await log.verify_stream(STREAM)
        problems = audit.problems + ([] if verified.is_good else verified.reasons)
        return Verdict(
            drill="kill-all",
            passed=not problems,
            problems=problems,
            counts=attrs.asdict(audit) | {"kills": self._options.times * len(plan.servers)},
            figures={"recovery_s_max": max(each["recovery_s"] for each in self._rounds)},
            rounds=self._rounds,
            seed=self._options.seed,
        )

    async def _round(self, number: int) -> None:
        first_s = await self._load(self._rng.uniform(0.05, self._options.load_s_max))
        restarted_s = trio.current_time()
        await self._start_in_random_order()
        took_s = trio.current_time() - restarted_s
        acknowledged = len(self._acknowledged)
        self._rounds.append(
            {"acknowledged": acknowledged, "first_answer_s": first_s, "recovery_s": took_s}
        )
        self._tell(
            f"{number} of {self._options.times}: killed all with {acknowledged:,} records "
            f"acknowledged; all answered again after {took_s:.1f} s"
        )

    async def _load(self, kill_after_s: float | None) -> float:
        """Append until the kill, or for a while; return the time to the first answer."""
        writer = WriterProcess(self._cluster.plan, STREAM, self._make_value)
        started_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            with trio.move_on_after(RECOVERY_S_MAX):
                await writer.wait_acknowledged(1)
            first_s = trio.current_time() - started_s
            if not writer.acknowledged:
                raise UnavailableError(
                    f"no append was answered within {first_s:.0f} s: {writer.stderr.decode()}"
                )
            if kill_after_s is None:
                await writer.wait_acknowledged(1000)
            else:
                await trio.sleep(kill_after_s)
            writer.send_signal(signal.SIGKILL)
            if kill_after_s is not None:
                await self._cluster.kill("all")
            await writer.wait_ended()
        self._acknowledged += writer.acknowledged
        return first_s

    async def _start_in_random_order(self) -> None:
        order = self._cluster.named("all")
        self._rng.shuffle(order)
        async with trio.open_nursery() as nursery:
            for server in order:
                nursery.start_soon(self._cluster.start_servers, [server])
                await trio.sleep(self._rng.uniform(0, 0.2))

    def _make_value(self) -> bytes:
        value = b"%d-%s" % (len(self._appended), self._rng.randbytes(40).hex().encode())
        self._appended.add(value)
        return value
