"""Measures what followed streams cost a process while nothing is appended to them.

`python -P -m sim.studies.followed_streams [STREAMS]` (default: 2000) runs three nodes, the
writers and the readers in this process, over in-memory seams. It makes STREAMS streams with an
open writer and one record each, then follows each with a reader of its own. It prints the share
of a core that the process takes before and after, and its memory.
"""

import os
import sys
import time

import trio

from geolog.client.log import Log
from sim.in_process import open_in_process_cluster
from sim.processes.bench.figures import Figure, figure
from sim.studies.open_ledgers import resident_bytes

_SETTLING_S = 3.0
_WATCHED_S = 8.0
_FIRST = b"the only record"


async def measure_followed_streams(count: int) -> list[Figure]:
    """The process before and after it follows the streams, while all of them are idle."""
    names = [f"idle/stream-{number}" for number in range(count)]
    async with (
        open_in_process_cluster({"one": 3}) as cluster,
        cluster.open_client("one", host="writing") as writing,
        cluster.open_client("one", host="reading") as reading,
        trio.open_nursery() as nursery,
    ):
        for name in names:
            await nursery.start(_write_first, writing, name)
        before_share = await _share_of_core()
        before_bytes, began_s = resident_bytes(os.getpid()), time.process_time()
        for name in names:
            await nursery.start(_follow, reading, name)
        opened_s = time.process_time() - began_s
        after_share = await _share_of_core()
        after_bytes = resident_bytes(os.getpid())
        nursery.cancel_scope.cancel(reason="measured")
    what = f"{count:,} followed streams"
    return [
        figure("share of a core without readers", 100 * before_share, "%"),
        figure(f"share of a core with {what}", 100 * after_share, "%"),
        figure("memory of a followed stream", (after_bytes - before_bytes) / count / 1e3, "kB"),
        figure("processor time to open a reader", 1e3 * opened_s / count, "ms"),
    ]


async def _write_first(log: Log, name: str, *, task_status: trio.TaskStatus[None]) -> None:
    await log.create_stream(name, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=1)
    async with log.open_writer(name) as writer:
        await writer.append(_FIRST)
        task_status.started()
        await trio.sleep_forever()


async def _follow(log: Log, name: str, *, task_status: trio.TaskStatus[None]) -> None:
    async with log.open_reader(name, follow=True) as reader:
        assert (await anext(reader)).value == _FIRST
        task_status.started()
        await anext(reader)


async def _share_of_core() -> float:
    await trio.sleep(_SETTLING_S)
    before_s, began_s = time.process_time(), trio.current_time()
    await trio.sleep(_WATCHED_S)
    return (time.process_time() - before_s) / (trio.current_time() - began_s)


if __name__ == "__main__":
    for one in trio.run(measure_followed_streams, int((sys.argv[1:] or ["2000"])[0])):
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit}\n")
