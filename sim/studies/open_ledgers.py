"""Measures the memory that open ledgers take at a storage node.

`python -P -m sim.studies.open_ledgers [N]` starts one real node, opens N ledgers there (default
10,000), adds an entry to each, and prints the resident memory of the node's process.
"""

import random
import sys
from pathlib import Path

import trio

from geolog.protocol.ids import EntryId, LedgerId
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.ledger_load import LedgerLoad, random_entry
from sim.studies.one_node import open_connection, open_one_node

_NEEDED_BYTES = 1 << 30
_ENTRY_BYTES = 1024


async def measure_open_ledgers(count: int) -> list[Figure]:
    """Measure the resident memory of a node before and after."""
    rng = random.Random(0)
    async with open_one_node(None, needed_bytes=_NEEDED_BYTES) as cluster:
        (node,) = cluster.named("storage")
        assert node.pid is not None
        before_bytes = resident_bytes(node.pid)
        encoded = random_entry(_ENTRY_BYTES, rng)
        async with open_connection(node) as connection:
            filling = LedgerLoad(connection)
            for ledger in range(1, count + 1):
                await filling.open(LedgerId(ledger))
                await filling.add(LedgerId(ledger), EntryId(0), encoded)
            await filling.wait_synced()
            after_bytes = resident_bytes(node.pid)
    return [
        figure("memory of an idle node", before_bytes / 1e6, "MB"),
        figure(f"memory with {count:,} open ledgers", after_bytes / 1e6, "MB"),
        figure("memory of one open ledger", (after_bytes - before_bytes) / count, "bytes"),
    ]


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, according to the kernel."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmRSS line")


if __name__ == "__main__":
    ledgers_count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    found = trio.run(measure_open_ledgers, ledgers_count)
    for one in found:
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit}\n")
