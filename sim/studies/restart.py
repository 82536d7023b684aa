"""Measures how long a storage node takes to restart after SIGKILL, by journal size.

`python -P -m sim.studies.restart [GIGABYTES …]` fills one real node's journal to each size in
turn (default 1, 2, 5 and 10 GB), kills it while it takes adds, restarts it, and prints the time
until it is ready: for the first start, which must check the file left open by the kill, and for
the next one. The floor is the start of a node with an empty journal.
"""

import math
import random
import sys
from collections.abc import Iterator
from itertools import count

import trio

from geolog.protocol.ids import EntryId, LedgerId
from geolog.transport.seam import ConnectionFailedError
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.ledger_load import LedgerLoad, random_entry
from sim.processes.cluster.local import LocalCluster
from sim.studies.one_node import open_connection, open_one_node
from topology.errors import UnavailableError

_ENTRY_BYTES = 64 << 10
_ENTRIES_PER_LEDGER = 1000
_SPARE_BYTES = 3 << 30


async def measure_restarts(sizes_bytes: list[int], *, entry_bytes: int) -> list[Figure]:
    """Measure the seconds to readiness for each size."""
    figures = []
    needed_bytes = max(sizes_bytes) + _SPARE_BYTES
    async with open_one_node(None, needed_bytes=needed_bytes) as cluster:
        empty_s = await _restart_s(cluster)
        figures.append(figure("start with an empty journal", empty_s, "s"))
        ledgers = (LedgerId(number) for number in count(1))
        filled_bytes = 0
        for size_bytes in sizes_bytes:
            filled_bytes += await _fill(
                cluster, size_bytes - filled_bytes, entry_bytes, ledgers
            )
            for which in ("first", "second"):
                took_s = await _restart_s(cluster)
                figures.append(
                    figure(
                        f"{which} start after SIGKILL with {filled_bytes / 1e9:.1f} GB",
                        took_s,
                        "s",
                        floor=empty_s,
                    )
                )
    return figures


async def _restart_s(cluster: LocalCluster) -> float:
    await cluster.kill("storage")
    started_s = trio.current_time()
    await cluster.start("storage")
    return trio.current_time() - started_s


async def _fill(
    cluster: LocalCluster, wanted_bytes: int, entry_bytes: int, ledgers: Iterator[LedgerId]
) -> int:
    """Add until this much is on disk, then kill the node during further adds."""
    (node,) = cluster.named("storage")
    encoded = random_entry(entry_bytes, random.Random(0))
    async with open_connection(node) as connection:
        filling = LedgerLoad(connection)
        is_killed = False
        try:
            for ledger in ledgers:
                await filling.open(ledger)
                for entry in range(_ENTRIES_PER_LEDGER):
                    await filling.add(ledger, EntryId(entry), encoded)
                    if not is_killed and filling.synced_bytes >= wanted_bytes:
                        is_killed = True
                        node.kill()
        except (UnavailableError, ConnectionFailedError):
            if not is_killed:
                raise
    await node.wait_ended()
    return filling.synced_bytes


async def _main(sizes_bytes: list[int]) -> None:
    for found in await measure_restarts(sizes_bytes, entry_bytes=_ENTRY_BYTES):
        sys.stdout.write(f"{found.name}: {found.value:g} {found.unit}\n")


def _gigabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < math.inf:
        raise SystemExit(f"{text!r} is no number of gigabytes: say 0.5 or 10")
    return size


if __name__ == "__main__":
    gigabytes = [_gigabytes(each) for each in sys.argv[1:]] or [1, 2, 5, 10]
    trio.run(_main, sorted(round(each * 1e9) for each in gigabytes))
