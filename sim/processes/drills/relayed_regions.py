"""Three regions or more that all write a stream of their own and mirror the others'.

So each coordinator of a relay group is home and target at once, and each link carries records
both ways.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import permutations

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.stream_settings import SEGMENT_BYTES
from geolog.client.log import Log
from geolog.metadata.relays import RelayGroups, RelayGroupSeen
from geolog.transport.seam import Address
from sim.processes.drills.drilled_cluster import DrilledCluster, connect_in
from sim.processes.drills.mirrored_load import HomeWriter, MirrorReader
from sim.processes.drills.proxied_drill import free_name
from sim.processes.drills.timeline import Timeline
from sim.processes.drills.verdict import audit_stream
from topology.errors import UnavailableError

ANSWER_S_MAX = 90.0
"""All mirrors move again within this time after a fault, or the drill fails."""

_PACE_S = 0.01


@attrs.define(eq=False)
class RegionStream:
    """A stream at its home: its writer, and a reader of each mirror."""

    name: str
    home: str
    writer: HomeWriter
    mirrors: list[MirrorReader]

    async def wait_moved(self) -> None:
        """Wait until every mirror has a record that is acknowledged from now on."""
        value = self.writer.next_value()
        for one in self.mirrors:
            await one.wait_for(value)


@attrs.frozen(eq=False)
class RelayedRegions:
    """The running load, and the cluster below it. Opened by `open_relayed_regions`."""

    cluster: DrilledCluster
    logs: Mapping[str, Log]
    groups: RelayGroups
    streams: Sequence[RegionStream]
    timeline: Timeline
    rng: random.Random
    outage_s: float
    """How long links are cut and regions are away."""
    window_bytes: int
    """The window of the cluster's relays."""
    _writing: Sequence[trio.CancelScope]
    problems: list[str] = attrs.field(factory=list)
    """Found by faults, not by the comparison in the end."""
    measured: dict[str, list[float]] = attrs.field(factory=dict)
    """What faults have measured, by name."""
    cuts: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """How often a link was cut one way: from one region to another."""

    @property
    def regions(self) -> tuple[str, ...]:
        """The names of all regions."""
        return self.cluster.regions

    def any_two(self) -> tuple[str, str]:
        """Two regions, by chance."""
        here, there = self.rng.sample(self.regions, 2)
        return here, there

    def next_way(self) -> tuple[str, str]:
        """A way from a region to another that was cut least often so far, by chance."""
        ways = list(permutations(self.regions, 2))
        least = min(self.cuts.get(way, 0) for way in ways)
        way = self.rng.choice([way for way in ways if self.cuts.get(way, 0) == least])
        self.cuts[way] = least + 1
        return way

    def measure(self, name: str, value: float) -> None:
        """Remember a figure of this name."""
        self.measured.setdefault(name, []).append(value)

    def note(self, text: str) -> None:
        """Put a fault on the timeline."""
        self.timeline.note_fault(trio.current_time(), text)

    async def members(self, region: str) -> tuple[str, list[str]]:
        """A region's coordinator, and its other members in the order of joining."""
        seen = await self._wait_whole(region)
        assert seen.view is not None
        ids = [one.record.relay_id for one in seen.members]
        return seen.view.relay_id, [one for one in ids if one != seen.view.relay_id]

    async def address(self, region: str, relay_id: str) -> Address:
        """Where a member of a region's group takes bridges."""
        seen = await self._wait_whole(region)
        [found] = [
            one.record.address for one in seen.members if one.record.relay_id == relay_id
        ]
        return found

    async def epoch(self, region: str) -> int:
        """The epoch of a region's coordinator; 0 without."""
        found = await self.groups.view(region)
        return 0 if found is None else found[0].epoch

    async def wait_epoch(self, region: str, epoch: int) -> None:
        """Wait until this epoch, or a later one, has begun. UnavailableError."""
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                changed = trio.Event()
                found = await self.groups.view(region, changed=changed)
                if found is not None and found[0].epoch >= epoch:
                    return
                await changed.wait()
        raise UnavailableError(f"nobody took over in {region} within {ANSWER_S_MAX:.0f} s")

    async def wait_moved(self) -> None:
        """Wait until every mirror has a record that is acknowledged from now on."""
        with trio.move_on_after(ANSWER_S_MAX) as scope:
            async with trio.open_nursery() as nursery:
                for one in self.streams:
                    nursery.start_soon(one.wait_moved)
        if scope.cancelled_caught:
            raise UnavailableError(
                f"a mirror stood still for {ANSWER_S_MAX:.0f} s: "
                + ", ".join(
                    f"{each.home} has acknowledged {len(each.writer.acknowledged)},"
                    f" {one.region} has {len(one.values)}"
                    for each in self.streams
                    for one in each.mirrors
                )
            )

    async def wait_whole(self) -> None:
        """Wait until every region has a coordinator and a standby, and every mirror moves."""
        for region in self.regions:
            await self._wait_whole(region)
        await self.wait_moved()

    async def _wait_whole(self, region: str) -> RelayGroupSeen:
        with trio.move_on_after(ANSWER_S_MAX):
            while True:
                changed = trio.Event()
                seen = await self.groups.look(region, changed=changed)
                numbers = [one.number for one in seen.members]
                if seen.view and seen.view.number in numbers and seen.standby:
                    return seen
                await changed.wait()
        raise UnavailableError(
            f"{region} has no relay group of two: start with two relays in each region;"
            " if it did, one has ended: its log says why"
        )

    def pause_s(
        self, begin_s: float, *, without: Sequence[str] = (), link: Sequence[str] = ()
    ) -> float:
        """The longest pause of a mirror from `begin_s` to now.

        without: regions whose streams and mirrors do not count. link: two regions; mirrors of
        one in the other do not count.
        """
        now_s = trio.current_time()
        return max(
            (
                one.pause_s(begin_s, now_s)
                for each in self.streams
                for one in each.mirrors
                if not {each.home, one.region} & set(without)
                and {each.home, one.region} != set(link)
            ),
            default=0.0,
        )

    def pause_of(self, home: str, region: str, begin_s: float) -> float:
        """The longest pause of one home's mirror in a region, from `begin_s` to now."""
        [found] = [
            one.pause_s(begin_s, trio.current_time())
            for each in self.streams
            for one in each.mirrors
            if (each.home, one.region) == (home, region)
        ]
        return found

    async def end(self) -> tuple[list[str], dict[str, int]]:
        """Stop writing, and compare every region's records with the acknowledged ones.

        Problems, and the counts of each region.
        """
        for scope in self._writing:
            scope.cancel(reason="enough")
        problems: list[str] = []
        counts = {"acknowledged": sum(len(one.writer.acknowledged) for one in self.streams)}
        for each in self.streams:
            acknowledged = each.writer.acknowledged
            with trio.move_on_after(ANSWER_S_MAX):
                for one in each.mirrors:
                    await one.wait_for(acknowledged[-1].value)
            for region in self.regions:
                found = await self._judge(each, region)
                problems += [
                    f"{each.name} in {region}: {count} {what.replace('_', ' ')}"
                    for what, count in found.items()
                    if count
                ]
                for what, count in found.items():
                    name = f"{what}_{region}"
                    counts[name] = counts.get(name, 0) + count
            verified = await self.logs[each.home].verify_stream(each.name)
            problems += [] if verified.is_good else verified.reasons
        return problems, counts

    async def _judge(self, each: RegionStream, region: str) -> dict[str, int]:
        """Counts that must be 0: by a new reader, and by the one that followed."""
        writer = each.writer
        audit = await audit_stream(
            self.logs[region], each.name, writer.acknowledged, set(writer.appended)
        )
        followed = next((one for one in each.mirrors if one.region == region), None)
        missed = 0
        if followed is not None:
            missed = len({one.value for one in writer.acknowledged} - set(followed.values))
        return {
            "lost": max(audit.lost, missed),
            "repeated": max(audit.repeated, followed.repeated_count if followed else 0),
            "out_of_order": audit.out_of_turn + (followed.misplaced_count if followed else 0),
            "gaps": len(followed.gaps) if followed else 0,
            "unequal_or_foreign": audit.unequal + audit.foreign,
        }


@asynccontextmanager
async def open_relayed_regions(
    cluster: DrilledCluster,
    stream: str,
    timeline: Timeline,
    *,
    rng: random.Random,
    outage_s: float,
    window_bytes: int,
) -> AsyncIterator[RelayedRegions]:
    """Make a stream in each region, and append to all of them, in the block."""
    timeline.lane_kind = "region"
    async with AsyncExitStack() as stack:
        logs = {
            region: await stack.enter_async_context(connect_in(cluster, region, via="direct"))
            for region in cluster.regions
        }
        streams = []
        for home in cluster.regions:
            targets = [region for region in cluster.regions if region != home]
            name = await create_relayed(logs[home], f"{stream}-of-{home}", home, targets)
            mirrors = [MirrorReader(region) for region in targets]
            streams.append(RegionStream(name, home, HomeWriter(pace_s=_PACE_S), mirrors))
        async with open_background() as nursery:
            writing = [trio.CancelScope() for _ in streams]
            for each, scope in zip(streams, writing, strict=True):
                write = partial(each.writer.write, logs[each.home], each.name, timeline)
                nursery.start_soon(_within, scope, write)
                for one in each.mirrors:
                    nursery.start_soon(one.follow, logs[one.region], each.name)
            yield RelayedRegions(
                cluster,
                logs,
                RelayGroups(logs[cluster.regions[0]].access.metadata, cluster.cluster),
                streams,
                timeline,
                rng,
                outage_s,
                window_bytes,
                writing,
            )


async def _within(scope: trio.CancelScope, write: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await write()


async def create_relayed(
    log: Log,
    stream: str,
    home: str,
    targets: Sequence[str],
    *,
    segment_bytes: int | None = None,
) -> str:
    """Make a stream that these regions mirror; its name, with a number if it is taken."""
    name = await free_name(log, stream)
    await log.create_stream(
        name,
        mode="regional",
        home=home,
        relay_to=targets,
        ensemble_size=2,
        write_quorum=2,
        ack_quorum=2,
        min_regions=1,
        segment_bytes=segment_bytes or SEGMENT_BYTES,
    )
    return name
