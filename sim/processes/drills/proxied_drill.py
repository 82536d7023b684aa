"""A stream under load through proxies, and the faults that it meets: a drill's common part."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.background import open_background
from geolog.client.log import Log
from geolog.metadata.proxies import owner_name
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.failover_watch import FailoverWatch, OutageParts, find_partition
from sim.processes.drills.fault_span import FaultSpan
from sim.processes.drills.proxied_load import ANSWER_S_MAX, ProxiedLoad
from sim.processes.drills.timeline import Timeline
from topology.errors import UnavailableError

WRITERS_COUNT = 8

_LOOK_EVERY_S = 0.02
_SEGMENT_BYTES = 8 << 20


@attrs.define(eq=False)
class ProxiedDrill:
    """One drill while it runs. `open_proxied_drill` makes it."""

    stream: str
    cluster: DrilledCluster
    timeline: Timeline
    load: ProxiedLoad
    log: Log
    watch: FailoverWatch
    spans: list[FaultSpan] = attrs.field(factory=list)
    rounds: list[dict[str, float]] = attrs.field(factory=list)

    async def owner(self) -> str:
        """The proxy that owns the stream."""
        proxies = {
            owner_name(name, proxy.region): name for name, proxy in self.cluster.proxies.items()
        }
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                owner = await self.watch.owner()
                if owner in proxies:
                    return proxies[owner]
                await trio.sleep(_LOOK_EVERY_S)
        raise UnavailableError(f"no proxy owns {self.stream}")

    async def meet(
        self, fault: str, cause: Callable[[], Awaitable[None]], *, lasts_s: float = 0.0
    ) -> FaultSpan:
        """Cause a fault, and wait until every writer goes on and the fault has lasted."""
        begin_s = trio.current_time()
        self.timeline.note_fault(begin_s, fault)
        await cause()
        await self.load.wait_answers(trio.current_time())
        await trio.sleep_until(begin_s + lasts_s)
        span = FaultSpan(begin_s, trio.current_time())
        self.spans.append(span)
        return span

    async def lose(
        self,
        owner: str,
        fault: str,
        cause: Callable[[], Awaitable[None]],
        *,
        lasts_s: float = 0.0,
    ) -> OutageParts:
        """As `meet`, of a fault that ends the owner; returns the parts of the outage."""
        write_s = await self.watch.write_s()
        before = await self.watch.writes()
        name = owner_name(owner, self.cluster.proxies[owner].region)
        async with self.watch.watch_loss(owner, name) as detection:
            span = await self.meet(fault, cause, lasts_s=lasts_s)
            await detection.is_seen.wait()
        outage_s = max(self.outages_s(span))
        return OutageParts(
            outage_s=outage_s,
            # The drill's own watch may tell of it later than the new owner has answered.
            detection_s=min(detection.at_s - span.begin_s, outage_s),
            writes_count=(await self.watch.writes()).since(before),
            write_s=write_s,
        )

    def outages_s(self, span: FaultSpan) -> list[float]:
        """The outage of each writer."""
        return [span.outage_s(writer) for writer in self.load.writers]


CreateStream = Callable[[Log, str], Awaitable[None]]


async def create_global(log: Log, stream: str) -> None:
    """Create a stream that survives the loss of a region without moving."""
    await log.create_stream(stream, survive="1 region", segment_bytes=_SEGMENT_BYTES)


@asynccontextmanager
async def open_proxied_drill(
    cluster: DrilledCluster,
    stream: str,
    timeline: Timeline,
    *,
    is_named: bool = True,
    reopens: bool = False,
    writers_count: int = WRITERS_COUNT,
    create: CreateStream = create_global,
) -> AsyncIterator[ProxiedDrill]:
    """Create the stream, and keep it under load until `load.end` or the end of the block.

    reopens: whether writers open again after any error; else it ends them.
    """
    timeline.lane_kind = "region"
    async with connect_in(cluster, cluster.regions[0], via="direct") as log:
        stream = await free_name(log, stream)
        await create(log, stream)
        load = ProxiedLoad(
            cluster,
            stream,
            timeline,
            writers_count=writers_count,
            is_named=is_named,
            reopens=reopens,
        )
        watch = await find_partition(log.access, stream)
        async with open_background() as nursery:
            nursery.start_soon(load.run)
            await load.wait_answers(trio.current_time())
            yield ProxiedDrill(stream, cluster, timeline, load, log, watch)


async def free_name(log: Log, stream: str) -> str:
    """This name, or with a number if an earlier drill has left it in the cluster."""
    taken = await log.list_streams(stream.partition("/")[0])
    names = [stream, *(f"{stream}-{number}" for number in range(2, len(taken) + 2))]
    return next(name for name in names if name not in taken)
