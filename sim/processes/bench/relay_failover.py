"""Counts what a mirror is given when a relay ends, in the form in which JGroups was measured.

Two senders append at home, each to a stream of its own and at a steady rate; a reader in the
other region follows each mirror. In the middle of a run the coordinator of one end is killed,
or leaves in good order; then it is started again. There is no emulated WAN: what is left is the
time that the takeover itself needs.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.writing.pipeline import Pipeline
from geolog.metadata.relays import RelayGroups
from sim.processes.bench.own_cluster import open_own_servers
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ClusterShape
from sim.processes.drills.mirrored_load import LOOK_AGAIN_S, MirrorReader
from sim.processes.drills.timeline import Timeline

HOME, TARGET = "us-east", "eu-west"
SENDERS_COUNT = 2

_RECORD_BYTES = 100
_TURN_S = 0.01
_FAULT_AT = 0.4
"""Share of a run after which the relay ends."""

_PLAYED_S_MAX = 60.0
_NEEDED_BYTES = 200 << 20


@attrs.frozen(kw_only=True)
class FailoverLoad:
    """The senders' rate, and how often each relay ends."""

    runs_count: int
    """Runs of each of the four cases."""
    rate_per_s: float = 500.0
    """Records a second of each sender."""
    duration_s: float = 6.0


@attrs.frozen(kw_only=True)
class Failover:
    """One run, over all senders."""

    end: str
    """Whose coordinator ended: `home` or `target`."""
    fault: str
    """`killed` or `left`."""
    sent: int
    lost: int
    """Records that the mirror's reader was never given."""
    duplicated: int
    reordered: int
    silent_ms: float
    """Longest time without a record in a mirror."""
    resumed_after_ms: float
    """From the end of the relay to the first record that was sent after it, in each mirror."""


@attrs.define(eq=False)
class _Sender:
    """One sender, and the reader of its mirror."""

    stream: str
    reader: MirrorReader
    sent_s: list[float] = attrs.field(factory=list)

    async def send(self, log: Log, load: FailoverLoad) -> None:
        """Append numbers at the rate, until the run is over."""
        async with log.open_writer(self.stream) as writer:
            pipeline = Pipeline(writer)
            async with open_background() as nursery:
                nursery.start_soon(self._push, pipeline, load)
                while await pipeline.next_answers():
                    pass

    async def _push(self, pipeline: Pipeline, load: FailoverLoad) -> None:
        begin_s, before = trio.current_time(), len(self.sent_s)
        while (passed_s := trio.current_time() - begin_s) < load.duration_s:
            while len(self.sent_s) - before < passed_s * load.rate_per_s:
                value = b"%0*d" % (_RECORD_BYTES, len(self.sent_s))
                self.sent_s.append(trio.current_time())
                await pipeline.push(value)
            await trio.sleep(_TURN_S)
        pipeline.close()

    async def wait_all(self) -> None:
        """Wait until the mirror has given the last record."""
        if self.sent_s:
            await self.reader.wait_for(b"%d" % (len(self.sent_s) - 1))


async def measure_failovers(
    load: FailoverLoad,
    *,
    data_dir: Path | None,
    tell: Callable[[str], None],
    timeline: Timeline,
) -> list[Failover]:
    """Start a cluster of two regions with two relays each, and end them in turns."""
    shape = ClusterShape(
        regions=(HOME, TARGET),
        nodes_per_region=1,
        relays_per_region=2,
        zookeeper_count=1,
        storage_options=(),
    )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            open_own_servers(data_dir, needed_bytes=_NEEDED_BYTES, shape=shape)
        )
        plan = cluster.plan
        home, target = [
            await stack.enter_async_context(
                connect(
                    zookeeper=plan.zookeeper,
                    cluster=plan.cluster,
                    region=region,
                    gateway=plan.gateway,
                    via="direct",
                )
            )
            for region in (HOME, TARGET)
        ]
        senders = [
            _Sender(f"bench/sender-{number}", MirrorReader(TARGET))
            for number in range(1, SENDERS_COUNT + 1)
        ]
        nursery = await stack.enter_async_context(open_background())
        for one in senders:
            await _make(home, one.stream)
            nursery.start_soon(one.reader.follow, target, one.stream)
            nursery.start_soon(_show, one, timeline)
        groups = RelayGroups(home.access.metadata, plan.cluster)
        await _send_one(home, senders)
        found = []
        for _ in range(load.runs_count):
            for region, end in ((HOME, "home"), (TARGET, "target")):
                for fault in ("killed", "left"):
                    tell(f"relay of the {end}: {fault}")
                    run = _Run(cluster, groups, home, senders, load, timeline)
                    found.append(await run.run(region, end, fault))
        nursery.cancel_scope.cancel(reason="all runs are over")
    return found


async def _make(log: Log, stream: str) -> None:
    await log.create_stream(
        stream,
        mode="regional",
        home=HOME,
        relay_to=[TARGET],
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        min_regions=1,
    )


async def _show(sender: _Sender, timeline: Timeline) -> None:
    """Note deliveries as they come."""
    shown = 0
    while True:
        await sender.reader.moved.wait()
        count = len(sender.reader.values)
        timeline.add_answers(trio.current_time(), sender.stream, count - shown)
        shown = count


async def _send_one(log: Log, senders: list[_Sender]) -> None:
    """Append a record to each stream, so that mirrors, bridges and readers are up."""
    for one in senders:
        one.sent_s.append(trio.current_time())
        async with log.open_writer(one.stream) as writer:
            await writer.append(b"%0*d" % (_RECORD_BYTES, 0))
    with trio.fail_after(_PLAYED_S_MAX):
        for one in senders:
            await one.wait_all()


@attrs.define(eq=False)
class _Run:
    """One run: the senders send, and a relay ends."""

    cluster: LocalCluster
    groups: RelayGroups
    home: Log
    senders: list[_Sender]
    load: FailoverLoad
    timeline: Timeline

    async def run(self, region: str, end: str, fault: str) -> Failover:
        """Send, end the coordinator of the region, and count what the mirrors gave."""
        await self._wait_whole()
        firsts = [len(one.sent_s) for one in self.senders]
        begun = [len(one.reader.values) for one in self.senders]
        view = (await self.groups.look(region)).view
        assert view is not None, "a whole group has a view"
        ended_s = 0.0

        async def end_relay() -> None:
            nonlocal ended_s
            await trio.sleep(_FAULT_AT * self.load.duration_s)
            ended_s = trio.current_time()
            self.timeline.note_fault(ended_s, f"{end}: {fault}")
            if fault == "killed":
                await self.cluster.kill(view.relay_id)
            else:
                await self.cluster.stop(view.relay_id)

        acts: list[Callable[[], Awaitable[None]]] = [end_relay]
        acts += [partial(one.send, self.home, self.load) for one in self.senders]
        await all_of(acts)
        with trio.fail_after(_PLAYED_S_MAX):
            for one in self.senders:
                await one.wait_all()
        await self.cluster.start(view.relay_id)
        counted = [
            _counted(one, first, start, ended_s)
            for one, first, start in zip(self.senders, firsts, begun, strict=True)
        ]
        return Failover(
            end=end,
            fault=fault,
            sent=sum(one[0] for one in counted),
            lost=sum(one[1] for one in counted),
            duplicated=sum(one[2] for one in counted),
            reordered=sum(one[3] for one in counted),
            silent_ms=round(max(one[4] for one in counted) * 1e3, 1),
            resumed_after_ms=round(max(one[5] for one in counted) * 1e3, 1),
        )

    async def _wait_whole(self) -> None:
        for region in (HOME, TARGET):
            while True:
                found = await self.groups.look(region)
                if found.view is not None and len(found.members) > 1:
                    break
                await trio.sleep(LOOK_AGAIN_S)


def _counted(
    sender: _Sender, first: int, begun: int, ended_s: float
) -> tuple[int, int, int, int, float, float]:
    """Sent, lost, duplicated, reordered, silent for, resumed after: of one run."""
    reader = sender.reader
    given = [int(value) for value in reader.values[begun:]]
    at_s = reader.at_s[begun:]
    sent = range(first, len(sender.sent_s))
    lost = len(set(sent) - set(given))
    duplicated = len(given) - len(set(given))
    reordered = sum(after < before for before, after in pairwise(given))
    silent_s = max(after - before for before, after in pairwise(at_s))
    resumed_s = min(
        at - ended_s
        for number, at in zip(given, at_s, strict=True)
        if sender.sent_s[number] >= ended_s
    )
    return len(sent), lost, duplicated, reordered, silent_s, resumed_s
