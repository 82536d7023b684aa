"""The demo's second stream: `regional`, mirrored in all other regions.

Its home's coordinator is killed while the stream is written; then every mirror is read in its
region and compared with the records that were acknowledged.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import attrs
import trio

from geolog.background import open_background
from geolog.client.log import Log
from geolog.metadata.relays import RelayGroups
from geolog.protocol.relay_report import RelayedStreamReport
from sim.processes.cluster.local import LocalCluster
from sim.processes.demo.report import RelayedReport
from sim.processes.demo.screen import Screen

STREAM = "demo/scans"

_COUNT = 1_000
_PACE_S = 0.004
_KILL_AT = 0.5
"""Share of the records after which the coordinator is killed."""

_LOOK_S = 0.1


@attrs.define(eq=False)
class _Watch:
    """Reads the status again and again."""

    log: Log
    found: list[RelayedStreamReport] = attrs.field(factory=list)
    lag_s_max: float = 0.0
    moved: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        while True:
            self.found = await self.log.relay_status(STREAM)
            lags_s = [one.lag_s for one in self.found if one.lag_s is not None]
            self.lag_s_max = max([self.lag_s_max, *lags_s])
            moved, self.moved = self.moved, trio.Event()
            moved.set()
            await trio.sleep(_LOOK_S)

    async def wait_until(
        self, holds: Callable[[list[RelayedStreamReport]], bool]
    ) -> list[RelayedStreamReport]:
        while not holds(self.found):
            await self.moved.wait()
        return self.found


async def tell_relayed(
    cluster: LocalCluster,
    screen: Screen,
    home: str,
    connect: Callable[[str], AbstractAsyncContextManager[Log]],
) -> RelayedReport:
    """Run the act; the caller bounds its time."""
    targets = [one for one in cluster.plan.regions if one != home]
    nodes_count = sum(one.region == home for one in cluster.plan.of_kind("storage"))
    copies = min(3, nodes_count)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(connect(home))
        await log.create_stream(
            STREAM,
            mode="regional",
            home=home,
            relay_to=targets,
            ensemble_size=copies,
            write_quorum=copies,
            ack_quorum=copies // 2 + 1,
            min_regions=1,
        )
        groups = RelayGroups(log.access.metadata, cluster.plan.cluster)
        watch = _Watch(log)
        begun, killing, written = trio.Event(), trio.Event(), trio.Event()
        acknowledged: list[bytes] = []
        async with open_background() as nursery:
            nursery.start_soon(watch.run)
            nursery.start_soon(_write, log, acknowledged, begun, killing, written)
            await watch.wait_until(lambda found: bool(found) and _has_all(found, 1))
            watch.lag_s_max = 0.0
            begun.set()
            await killing.wait()
            before = await groups.look(home)
            assert before.view is not None
            victim, epoch = before.view.relay_id, before.view.epoch
            killed_at_s = trio.current_time()
            await cluster.kill(victim)
            screen.happened("bad", "SIGKILL", f"relay {victim}, while it relayed {STREAM}")
            if len(before.members) < 2:
                await cluster.start(victim)
            count = len(acknowledged)
            await watch.wait_until(
                lambda found: _is_of_later(found, epoch) and _has_all(found, count + 1)
            )
            still_s = trio.current_time() - killed_at_s
            await written.wait()
            found = await watch.wait_until(lambda found: _has_all(found, len(acknowledged)))
        await cluster.start(victim)
        compared = [await _compare(connect(one), home, acknowledged) for one in targets]
    report = RelayedReport(
        home=home,
        targets=tuple(targets),
        killed=victim,
        coordinator=found[0].coordinator or "",
        acknowledged_count=len(acknowledged),
        lost_count=sum(lost for lost, _, _ in compared),
        repeated_count=sum(repeated for _, repeated, _ in compared),
        replayed_count=sum(one.replayed_count or 0 for one in found),
        lag_s_max=watch.lag_s_max,
        lag_s=max(one.lag_s or 0.0 for one in found),
        still_s=still_s,
        problems=tuple(one for _, _, problems in compared for one in problems),
    )
    _tell(screen, report)
    return report


def _tell(screen: Screen, report: RelayedReport) -> None:
    mark = "bad" if report.problems else "good"
    count, targets = report.acknowledged_count, " and ".join(report.targets)
    screen.happened(mark, "relayed", f"{count:,} scans of {report.home} to {targets};")
    screen.happened(
        mark,
        "",
        f"{report.lost_count} lost, {report.repeated_count} repeated,"
        f" {report.replayed_count} replayed; still for {report.still_s:.1f} s; lag now"
        f" {report.lag_s:.1f} s",
    )


async def _write(
    log: Log,
    acknowledged: list[bytes],
    begun: trio.Event,
    killing: trio.Event,
    written: trio.Event,
) -> None:
    """Append a scan, then the others at their pace, and note those that are acknowledged."""
    kill_at = round(_COUNT * _KILL_AT)
    async with log.open_writer(STREAM, writer_id="scanner", linger_s=0.0) as writer:
        await writer.append(b"scan 0")
        acknowledged.append(b"scan 0")
        await begun.wait()
        begin_s = trio.current_time()
        for number in range(1, _COUNT):
            await trio.sleep_until(begin_s + number * _PACE_S)
            value = b"scan %d" % number
            await writer.append(value)
            acknowledged.append(value)
            if number == kill_at:
                killing.set()
    written.set()


def _is_of_later(found: list[RelayedStreamReport], relay_epoch: int) -> bool:
    return bool(found) and all((one.relay_epoch or 0) > relay_epoch for one in found)


def _has_all(found: list[RelayedStreamReport], count: int) -> bool:
    return all((one.durable_records or 0) >= count for one in found)


async def _compare(
    opening: AbstractAsyncContextManager[Log], home: str, acknowledged: list[bytes]
) -> tuple[int, int, list[str]]:
    """Read a mirror in its region: the records lost, those repeated, and problems."""
    values: list[bytes] = []
    async with opening as log, log.open_reader(STREAM) as reader:
        async for record in reader:
            values.append(record.value)
            if record.origin != home:
                return (
                    0,
                    0,
                    [f"{log.region} read {record.origin}, not its mirror"],
                )
    found = Counter(values)
    lost_count = sum(one not in found for one in acknowledged)
    repeated_count = sum(count - 1 for count in found.values())
    problems = []
    if values != acknowledged:
        problems.append(
            f"the mirror in {log.region} has {len(values):,} scans, which are not the"
            f" {len(acknowledged):,} acknowledged ones: {lost_count} lost, {repeated_count}"
            " repeated"
        )
    return lost_count, repeated_count, problems
