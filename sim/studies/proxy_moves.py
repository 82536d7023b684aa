"""Counts the partitions that move when a write proxy joins or leaves, among eight real ones.

`python -P -m sim.studies.proxy_moves [PARTITIONS]` (default: 96) starts eight proxies in one
region, with three nodes and a ZooKeeper server, and appends to all partitions of a stream
through them. One proxy leaves, joins again, and two more leave together. After each change it
waits until no partition moves any more. A partition must move only if its owner has left, or
had more than its share; then the moves are within the bound. If several leave one after the
other, an owner may have too many for a moment, and a few move twice.
"""

import math
import sys
from collections import Counter

import attrs
import trio

from geolog.background import open_background
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.client.writing.writer import Writer
from geolog.protocol.owner_balance import SLACK
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.own_cluster import open_own_servers
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ClusterShape

REGION = "us-east"
STREAM = "study/moves"
PROXIES_COUNT = 8

_NEEDED_BYTES = 2 << 30
_PAUSE_S = 0.2
"""Pause between two appends to a partition: each proxy moves those that are in use."""

_LOOK_S = 0.5
_STILL_S = 8.0
"""A change is over when nothing has moved for this long: several balance pauses."""

_SHAPE = ClusterShape(
    regions=(REGION,),
    nodes_per_region=3,
    proxies_per_region=PROXIES_COUNT,
    zookeeper_count=1,
    proxy_options=("--balance-pause", "2s"),
)

Owners = dict[int, str]
"""The owner of each partition."""


@attrs.frozen(kw_only=True)
class Change:
    """What moved after one change."""

    what: str
    moves_count: int
    moves_max: int
    held: list[int]
    """Partitions of each proxy that is up, afterwards."""
    held_max: int


async def measure_moves(partitions_count: int = 96) -> list[Change]:
    """Change the proxies under load, and count the moves of each change."""
    async with open_own_servers(None, needed_bytes=_NEEDED_BYTES, shape=_SHAPE) as cluster:
        plan = cluster.plan
        async with connect(
            zookeeper=plan.zookeeper, cluster=plan.cluster, region=REGION
        ) as log:
            await log.create_stream(
                STREAM,
                partitions=partitions_count,
                ensemble_size=3,
                write_quorum=3,
                ack_quorum=2,
                min_regions=1,
            )
            async with (
                log.open_writer(STREAM, writer_id="study") as writer,
                open_background() as nursery,
            ):
                for number in range(partitions_count):
                    nursery.start_soon(_append_on, writer, b"key %d" % number)
                await _still(log)
                return [
                    await _leave(cluster, log, 1),
                    await _join(cluster, log, 1),
                    await _leave(cluster, log, 2, 3),
                    await _join(cluster, log, 2, 3),
                ]


async def _append_on(writer: Writer, key: bytes) -> None:
    """Append for ever: an unknown outcome or a refusal would end the study."""
    while True:
        await writer.append(b"in use", key=key)
        await trio.sleep(_PAUSE_S)


async def _leave(cluster: LocalCluster, log: Log, *numbers: int) -> Change:
    names = [_name(number) for number in numbers]
    before = await _owners(log)
    for name in names:
        await cluster.stop(name)
    after = await _still(log)
    orphans_count = sum(1 for owner in before.values() if owner in names)
    return _change(f"{len(names)} left", before, after, at_least=orphans_count)


async def _join(cluster: LocalCluster, log: Log, *numbers: int) -> Change:
    before = await _owners(log)
    for number in numbers:
        await cluster.start(_name(number))
    return _change(f"{len(numbers)} joined", before, await _still(log), at_least=0)


def _change(what: str, before: Owners, after: Owners, *, at_least: int) -> Change:
    counts = Counter(after.values())
    held_max = math.ceil(SLACK * len(after) / len(counts))
    surplus = sum(max(0, count - held_max) for count in Counter(before.values()).values())
    return Change(
        what=what,
        moves_count=sum(1 for number, owner in after.items() if before[number] != owner),
        moves_max=max(at_least, surplus),
        held=sorted(counts.values()),
        held_max=held_max,
    )


async def _still(log: Log) -> Owners:
    """The owners once no partition moves any more."""
    owners, since_s = await _owners(log), trio.current_time()
    while trio.current_time() < since_s + _STILL_S:
        await trio.sleep(_LOOK_S)
        found = await _owners(log)
        if found != owners:
            owners, since_s = found, trio.current_time()
    return owners


async def _owners(log: Log) -> Owners:
    described = await log.describe_stream(STREAM)
    return {
        one.partition: (one.owner or "").split()[1]
        for one in described.partition_list
        if one.owner
    }


def _name(number: int) -> str:
    return f"{REGION}-proxy-{number}"


def figures_of(change: Change) -> list[Figure]:
    """The moves of a change, and the most that a proxy holds then, each with its bound."""
    return [
        figure(
            f"moves after {change.what}",
            change.moves_count,
            "partitions",
            goal=f"<= {change.moves_max}",
        ),
        figure(
            f"most that one of {len(change.held)} proxies holds",
            change.held[-1],
            "partitions",
            goal=f"<= {change.held_max}",
        ),
    ]


if __name__ == "__main__":
    for change in trio.run(measure_moves, int((sys.argv[1:] or ["96"])[0])):
        for one in figures_of(change):
            sys.stdout.write(f"{one.name}: {one.value:g} {one.unit} (goal: {one.goal})\n")
        sys.stdout.write(f"  each holds {change.held}\n")
