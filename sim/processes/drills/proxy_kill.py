"""Kills the proxy that owns a stream, many times, while named writers append through proxies.

The writers are clients of all regions. After each kill, another proxy takes the stream over
once the ZooKeeper session of the killed one is over, and the writers go on by themselves. The
drill checks that each acknowledged record is read back at its position, equal and once, and in
the order in which its writer sent it. It measures how long each writer had no answer.
"""

import random
import statistics
from collections.abc import Callable

import attrs
import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from sim.processes.cluster.local import LocalCluster
from sim.processes.drills.verdict import Verdict, audit_stream
from sim.processes.drills.writer_process import Acknowledged
from topology.errors import GeologError, UnavailableError

STREAM = "drill/proxy-kill"
WRITERS_COUNT = 8
SESSION_TIMEOUT_S = 6.0
"""Of the proxies: until it is over, nobody knows that a killed proxy is gone."""

_ANSWER_S_MAX = 90.0
_PACE_S = 0.005
"""Pause of a writer between two records: all of them are read back at the end."""


@attrs.frozen(kw_only=True)
class ProxyKillOptions:
    """Number of kills, their timing, and the seed."""

    times: int = 20
    seed: int = 0
    up_s_max: float = 1.0
    """Maximum time that all proxies are up before the next kill."""


@attrs.define(eq=False)
class _Writer:
    """One named writer: what it sent, and the answers."""

    number: int
    region: str
    appended: list[bytes] = attrs.field(factory=list)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)
    answered_s: float = 0.0
    """When the last answer came."""
    ended: str = ""
    """The error that ended it early."""
    changed: trio.Event = attrs.field(factory=trio.Event)


async def proxy_kill(
    cluster: LocalCluster, options: ProxyKillOptions, tell: Callable[[str], None]
) -> Verdict:
    """Run the drill on a running cluster with at least two proxies."""
    return await _ProxyKill(cluster, options, tell).run()


class _ProxyKill:
    """State of one drill."""

    def __init__(
        self, cluster: LocalCluster, options: ProxyKillOptions, tell: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._tell = tell
        self._rng = random.Random(options.seed)
        regions = cluster.plan.regions
        self._writers = [
            _Writer(number, regions[number % len(regions)]) for number in range(WRITERS_COUNT)
        ]
        self._outages_s: list[float] = []
        self._rounds: list[dict[str, float]] = []

    async def run(self) -> Verdict:
        """Run the load with all kills, then audit the stream."""
        plan = self._cluster.plan
        async with connect(zookeeper=plan.zookeeper, cluster=plan.cluster, via="direct") as log:
            await log.create_stream(STREAM, survive="1 region", segment_bytes=8 << 20)
            async with trio.open_nursery() as nursery:
                for writer in self._writers:
                    nursery.start_soon(self._write, writer)
                await self._wait_answers(trio.current_time())
                for number in range(1, self._options.times + 1):
                    await self._round(log, number)
                nursery.cancel_scope.cancel(reason="enough")
            return await self._verdict(log)

    async def _round(self, log: Log, number: int) -> None:
        """Kill the owner, wait until every writer goes on, and start the proxy again."""
        await trio.sleep(self._rng.uniform(0.1, self._options.up_s_max))
        victim = await self._owner(log)
        killed_s = trio.current_time()
        await self._cluster.kill(victim)
        outages_s = [each - killed_s for each in await self._wait_answers(killed_s)]
        await self._cluster.start(victim)
        self._outages_s += outages_s
        self._rounds.append(
            {"outage_s_median": statistics.median(outages_s), "outage_s_max": max(outages_s)}
        )
        self._tell(
            f"{number} of {self._options.times}: killed {victim}, every writer went on after"
            f" {max(outages_s):.1f} s"
        )

    async def _owner(self, log: Log) -> str:
        """The name of the proxy that owns the stream."""
        with trio.move_on_after(_ANSWER_S_MAX):
            while True:
                (partition,) = (await log.describe_stream(STREAM)).partition_list
                names = (partition.owner or "").split() if partition.owner_is_alive else []
                for server in self._cluster.plan.of_kind("proxy"):
                    if server.name in names:
                        return server.name
                await trio.sleep(_PACE_S)
        raise UnavailableError(f"no proxy owns {STREAM}")

    async def _wait_answers(self, since_s: float) -> list[float]:
        """When each writer got its first answer after this time."""
        answers_s = []
        with trio.move_on_after(_ANSWER_S_MAX):
            for writer in self._writers:
                while writer.answered_s <= since_s and not writer.ended:
                    await writer.changed.wait()
                answers_s.append(max(writer.answered_s, since_s))
            return answers_s
        raise UnavailableError(f"a writer had no answer for {_ANSWER_S_MAX:.0f} s after a kill")

    async def _write(self, writer: _Writer) -> None:
        """Append one record after the other; note an error that ends this as a problem."""
        plan = self._cluster.plan
        try:
            async with (
                connect(
                    zookeeper=plan.zookeeper,
                    cluster=plan.cluster,
                    region=writer.region,
                    gateway=plan.gateway,
                    via="proxy",
                ) as log,
                log.open_writer(STREAM, writer_id=f"writer-{writer.number}") as opened,
            ):
                while True:
                    value = b"%d/%d" % (writer.number, len(writer.appended))
                    writer.appended.append(value)
                    receipt = await opened.append(value)
                    writer.acknowledged.append(
                        Acknowledged(value, receipt.dlsn, receipt.sequence)
                    )
                    writer.answered_s = trio.current_time()
                    changed, writer.changed = writer.changed, trio.Event()
                    changed.set()
                    await trio.sleep(_PACE_S)
        except GeologError as error:
            writer.ended = str(error)
            writer.changed.set()

    async def _verdict(self, log: Log) -> Verdict:
        acknowledged = [one for writer in self._writers for one in writer.acknowledged]
        appended = {value for writer in self._writers for value in writer.appended}
        audit = await audit_stream(log, STREAM, acknowledged, appended)
        problems = audit.problems
        problems += [
            f"writer {one.number} ended early: {one.ended}"
            for one in self._writers
            if one.ended
        ]
        swapped = await self._swapped(log)
        if swapped:
            problems.append(f"{swapped} records are before an earlier one of their writer")
        outages_s = sorted(self._outages_s)
        p99_s = outages_s[min(len(outages_s) - 1, int(0.99 * len(outages_s)))]
        return Verdict(
            drill="proxy-kill",
            passed=not problems,
            problems=problems,
            counts={
                "kills": self._options.times,
                "writers": len(self._writers),
                **attrs.asdict(audit),
                "swapped": swapped,
            },
            figures={
                "outage_s_median": statistics.median(outages_s),
                "outage_s_p99": p99_s,
                "outage_s_max": outages_s[-1],
                "session_timeout_s": SESSION_TIMEOUT_S,
                "outage_behind_session_s_p99": p99_s - SESSION_TIMEOUT_S,
            },
            rounds=self._rounds,
            seed=self._options.seed,
        )

    async def _swapped(self, log: Log) -> int:
        """Records that stand before one that their writer had sent earlier."""
        last = [-1] * len(self._writers)
        swapped = 0
        async with log.open_reader(STREAM) as reader:
            async for record in reader:
                writer, number = map(int, record.value.split(b"/"))
                swapped += number < last[writer]
                last[writer] = max(last[writer], number)
        return swapped
