"""Compares the cost per record of `geolog.blocking` and `geolog.aio` with the trio surface.

`python -P -m sim.studies.surfaces [RECORDS]` appends and reads records of 100 bytes (default
200,000) through each surface, on an in-memory cluster in the same process. It prints the
processor time per record, then the latency of a single append. The figures include the work of
the cluster; the difference to the trio surface is the cost of crossing threads.
"""

import asyncio  # noqa: TID251 - the surface for asyncio programs is measured too.
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

import geolog
from geolog import aio, blocking
from geolog.aio.log import log_of as aio_log_of
from geolog.blocking.log import log_of as blocking_log_of
from geolog.blocking.opening import Opening
from geolog.client.log import Log as TrioLog
from geolog.portal.residence import Residence
from geolog.portal.trio_thread import shared_thread
from sim.in_process import InProcessCluster, open_in_process_cluster
from sim.processes.bench.figures import Figure, figure

_REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
_RECORD = bytes(100)
_ALONE_COUNT = 500
_ROUNDS_COUNT = 3


@attrs.frozen
class Cost:
    """The result of one surface: the best of a few rounds."""

    append_us: float
    read_us: float
    alone_ms: float


async def _timed(count: int, work: Awaitable[object]) -> float:
    """Processor time of all threads per record, in microseconds."""
    before_s = time.process_time()
    await work
    return (time.process_time() - before_s) / count * 1e6


def _now_s() -> float:
    return time.perf_counter()  # noqa: TID251 - threads and asyncio have no trio clock.


async def _in_tasks(log: TrioLog | aio.Log, stream: str, count: int) -> Cost:
    async def append() -> None:
        async with log.open_writer(stream) as writer:
            pending: list[geolog.Pending | aio.Pending] = []
            while len(pending) < count:
                try:
                    pending.append(writer.append_nowait(_RECORD))
                except trio.WouldBlock:
                    await writer.wait_writable()
            for one in pending:
                await one.wait()

    async def read() -> None:
        async with log.open_reader(stream) as reader:
            assert sum([1 async for _ in reader]) == count

    async def alone() -> list[float]:
        times_s = []
        async with log.open_writer(stream) as writer:
            for _ in range(_ALONE_COUNT):
                before_s = _now_s()
                await writer.append(_RECORD)
                times_s.append(_now_s() - before_s)
        return times_s

    append_us, read_us = await _timed(count, append()), await _timed(count, read())
    return Cost(append_us, read_us, statistics.median(await alone()) * 1e3)


def _in_threads(log: blocking.Log, stream: str, count: int) -> Cost:
    before_s = time.process_time()
    with log.open_writer(stream) as writer:
        pending: list[blocking.Pending] = []
        while len(pending) < count:
            try:
                pending.append(writer.append_nowait(_RECORD))
            except blocking.WouldBlock:
                writer.wait_writable()
        for one in pending:
            one.wait()
    appended_s = time.process_time()
    with log.open_reader(stream) as reader:
        assert sum(1 for _ in reader) == count
    read_s = time.process_time()
    times_s = []
    with log.open_writer(stream) as writer:
        for _ in range(_ALONE_COUNT):
            began_s = _now_s()
            writer.append(_RECORD)
            times_s.append(_now_s() - began_s)
    return Cost(
        (appended_s - before_s) / count * 1e6,
        (read_s - appended_s) / count * 1e6,
        statistics.median(times_s) * 1e3,
    )


def _measure_trio(count: int) -> Cost:
    async def main() -> Cost:
        async with (
            open_in_process_cluster(_REGIONS) as cluster,
            cluster.open_client("us-east") as log,
        ):
            await log.create_stream("bench/trio", survive="1 region")
            return await _in_tasks(log, "bench/trio", count)

    return trio.run(main)


def _cluster_of_the_thread() -> Opening[InProcessCluster, InProcessCluster]:
    thread = shared_thread()
    residence = Residence(thread, partial(open_in_process_cluster, _REGIONS))
    return Opening(lambda: (residence, thread.tasks), lambda _, cluster: cluster)


def _measure_blocking(count: int) -> Cost:
    with (
        _cluster_of_the_thread() as cluster,
        blocking_log_of(lambda: cluster.open_client("us-east")) as log,
    ):
        log.create_stream("bench/blocking", survive="1 region")
        return _in_threads(log, "bench/blocking", count)


def _measure_aio(count: int) -> Cost:
    async def main(cluster: InProcessCluster) -> Cost:
        async with aio_log_of(lambda: cluster.open_client("us-east")) as log:
            await log.create_stream("bench/aio", survive="1 region")
            return await _in_tasks(log, "bench/aio", count)

    with _cluster_of_the_thread() as cluster:
        return asyncio.run(main(cluster))


def _best(measure: Callable[[int], Cost], count: int) -> Cost:
    """The best of a few rounds: other load on the machine only adds time."""
    costs = [measure(count) for _ in range(_ROUNDS_COUNT)]
    return Cost(
        min(cost.append_us for cost in costs),
        min(cost.read_us for cost in costs),
        min(cost.alone_ms for cost in costs),
    )


def measure_surfaces(count: int) -> list[Figure]:
    """Figures of each surface; the floor is the trio surface."""
    floor = _best(_measure_trio, count)
    figures = []
    surfaces = {"geolog.blocking": _measure_blocking, "geolog.aio": _measure_aio}
    found = {name: _best(measure, count) for name, measure in surfaces.items()}
    for name, cost in {geolog.__name__: floor, **found}.items():
        figures += [
            figure(f"{name}, append", cost.append_us, "us", floor=floor.append_us),
            figure(f"{name}, read", cost.read_us, "us", floor=floor.read_us),
            figure(f"{name}, one append alone", cost.alone_ms, "ms", floor=floor.alone_ms),
        ]
    return figures


if __name__ == "__main__":
    for one in measure_surfaces(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000):
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit} ({one.ratio} of trio's)\n")
