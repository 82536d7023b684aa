"""Measures the cost of idle writers to their process.

`python -P -m sim.studies.idle_writers [N]` starts three real nodes, opens a writer for each of
N streams (default 1,000) in this process, appends once to each, lets them idle, and prints the
memory and processor time that they take.
"""

import os
import sys

import trio

from geolog.client.connect import connect
from geolog.client.log import Log
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.own_cluster import open_own_cluster
from sim.studies.open_ledgers import resident_bytes

_NEEDED_BYTES = 1 << 30
_OPENING_AT_ONCE = 16
_REST_S = 10.0


async def measure_idle_writers(count: int) -> list[Figure]:
    """Measure memory and processor time of this process with and without `count` writers."""
    async with (
        open_own_cluster(None, needed_bytes=_NEEDED_BYTES) as plan,
        connect(zookeeper=plan.zookeeper, cluster=plan.cluster, region=plan.regions[0]) as log,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(_rest, log, "idle/first")
        before_bytes = resident_bytes(os.getpid())
        await _open_all(log, nursery, count)
        after_bytes, started_s = resident_bytes(os.getpid()), _processor_s()
        await trio.sleep(_REST_S)
        share = (_processor_s() - started_s) / _REST_S
        nursery.cancel_scope.cancel(reason="all is measured")
    return [
        figure("memory without idle writers", before_bytes / 1e6, "MB"),
        figure(f"memory with {count:,} idle writers", after_bytes / 1e6, "MB"),
        figure("memory of one idle writer", (after_bytes - before_bytes) / count, "bytes"),
        figure("processor time of all of them", 100 * share, "% of a core"),
    ]


async def _open_all(log: Log, nursery: trio.Nursery, count: int) -> None:
    """Open `count` writers, a few at a time."""
    limit = trio.CapacityLimiter(_OPENING_AT_ONCE)

    async def open_one(number: int) -> None:
        async with limit:
            await nursery.start(_rest, log, f"idle/{number}")

    async with trio.open_nursery() as opening:
        for number in range(count):
            opening.start_soon(open_one, number)


async def _rest(
    log: Log, stream: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Append once, then idle."""
    await log.create_stream(
        stream, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
    )
    async with log.open_writer(stream) as writer:
        await writer.append(b"one")
        task_status.started()
        await trio.sleep_forever()


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    writers_count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    for one in trio.run(measure_idle_writers, writers_count):
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit}\n")
