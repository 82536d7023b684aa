"""Measures the floor: processes that only write and sync on the same disk.

Run `python -P -m sim.processes.bench.floor DIRECTORY WRITE_BYTES SECONDS` once per storage
node. It appends incompressible bytes to files as a journal does, syncs each write, and prints
one JSON line. The throughput floor of a cluster is the sum over one process per node, divided
by the number of copies of an entry. The latency floor is the median of 4 KiB writes by one
process.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import attrs
import trio

FILE_BYTES = 64 << 20
"""File size at which the next file begins, as in a journal."""

LATENCY_WRITE_BYTES = 4096


@attrs.frozen
class Floor:
    """The combined result of all processes."""

    write_bytes: int
    processes_count: int
    bytes_per_s: float
    sync_p50_s: float
    """Median time of one write with its sync; the largest median of several processes."""


async def measure_floor(
    directory: Path, *, write_bytes: int, processes_count: int, duration_s: float
) -> Floor:
    """Run these processes at once and add up their results."""
    answers: list[dict[str, float]] = []

    async def run(number: int) -> None:
        place = directory / f"floor-{number}"
        place.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, "-P", "-m", "sim.processes.bench.floor"]
        done = await trio.run_process(
            [*argv, str(place), str(write_bytes), str(duration_s)], capture_stdout=True
        )
        answers.append(json.loads(done.stdout))

    async with trio.open_nursery() as nursery:
        for number in range(processes_count):
            nursery.start_soon(run, number)
    return Floor(
        write_bytes=write_bytes,
        processes_count=processes_count,
        bytes_per_s=sum(answer["bytes_per_s"] for answer in answers),
        sync_p50_s=max(answer["sync_p50_s"] for answer in answers),
    )


def _write_and_sync(directory: Path, write_bytes: int, duration_s: float) -> dict[str, float]:
    now_s = time.perf_counter  # noqa: TID251 - This process does nothing but measure time.
    payload = random.Random(0).randbytes(write_bytes)
    times_s: list[float] = []
    started_s = now_s()
    number = 0
    while now_s() - started_s < duration_s:
        path = directory / str(number)
        times_s += _fill_file(path, payload, started_s + duration_s)
        path.unlink()
        number += 1
    took_s = now_s() - started_s
    return {
        "bytes_per_s": len(times_s) * write_bytes / took_s,
        "sync_p50_s": sorted(times_s)[len(times_s) // 2],
    }


def _fill_file(path: Path, payload: bytes, until_s: float) -> list[float]:
    now_s = time.perf_counter  # noqa: TID251 - This process does nothing but measure time.
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    times_s = []
    try:
        offset = 0
        while offset < FILE_BYTES and (before_s := now_s()) < until_s:
            os.pwrite(file, payload, offset)
            os.fdatasync(file)
            times_s.append(now_s() - before_s)
            offset += len(payload)
    finally:
        os.close(file)
    return times_s


if __name__ == "__main__":
    answer = _write_and_sync(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(json.dumps(answer) + "\n")
