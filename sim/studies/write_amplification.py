"""Measures write amplification with ledgers of mixed lifetimes: bytes written per byte added.

`python -P -m sim.studies.write_amplification [MIB]` fills one data directory, in this process
but on a real disk, with entries of ledgers of different lifetimes, deletes each ledger at the
end of its lifetime, and runs compaction in parallel. A node that writes each entry once and
nothing else would have 1.0.
"""

import random
import sys
import tempfile
from pathlib import Path

import trio
from crc32c import crc32c

from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.messages import Add
from geolog.protocol.replica import PersistEntry, PersistOpen
from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from regions.storage.cookies import Cookie
from regions.storage.file_disk import open_file_disk
from regions.storage.journal_end import NO_END
from regions.storage.protocol.records import delete_record, record_of
from regions.storage.store import Store, open_store
from sim.processes.bench.figures import Figure, figure
from topology.location import Location

_ENTRY_BYTES = 4096
_LEDGERS_AT_ONCE = 64
_FILE_BYTES = 8 << 20
_LIFETIMES_BYTES = (1 << 20, 1 << 20, 16 << 20, 16 << 20, 64 << 20)
"""Lifetimes to draw from, in bytes added to the directory; one ledger in ten stays forever."""
_KEPT_SHARE = 0.1
_PAUSE_S = 0.05

_NODE = InstanceId("a" * 32)
_ADDRESS = Address("127.0.0.1", 1)


async def measure_write_amplification(added_bytes: int, directory: Path) -> list[Figure]:
    """Add `added_bytes` of entries to the directory; measure the bytes written and kept."""
    config = StorageConfig(
        location="/here/rack-1",
        listen=_ADDRESS,
        journal_file_bytes=_FILE_BYTES,
        compaction_rate_bytes_per_s=1 << 30,
        compaction_interval_s=_PAUSE_S,
    )
    location = Location.parse(config.location)
    cookie = Cookie(
        instance=_NODE,
        cluster="bench",
        cluster_id="c" * 32,
        node_id="node-1",
        address=_ADDRESS,
        location=location,
        directory=0,
        directories=1,
    )
    rng = random.Random(0)
    async with open_file_disk(directory) as disk:
        store = await open_store(config, disk, cookie, noted=NO_END, random_bytes=rng.randbytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.journal.run)
            await store.look_at_free_space()
            nursery.start_soon(_look_at_space, store)
            filling, is_filled = _MixedFilling(store, rng), trio.Event()
            async with trio.open_nursery() as compacting:
                compacting.start_soon(_compact, store, is_filled)
                await filling.add_all(added_bytes)
                await store.journal.wait_synced()
                is_filled.set()
            nursery.cancel_scope.cancel(reason="measured")
        await store.finish()
    written_bytes = store.journal.statistics().written_bytes
    live_bytes = sum(filling.live_bytes.values())
    return [
        figure("bytes written, each byte added", written_bytes / added_bytes, "", floor=1.0),
        figure("copied by compaction", store.compaction.counts.copied_bytes / 1e6, "MB"),
        figure("disk used, each live byte", _used_bytes(directory) / live_bytes, "", floor=1.0),
    ]


async def _compact(store: Store, is_filled: trio.Event) -> None:
    """Compact as a node does; return when a filled directory has nothing worth compacting."""
    while True:
        was_filled = is_filled.is_set()
        if await store.compaction.compact_next():
            continue
        if was_filled:
            return
        await trio.sleep(_PAUSE_S)


async def _look_at_space(store: Store) -> None:
    while True:
        await trio.sleep(0.1)
        await store.look_at_free_space()


class _MixedFilling:
    """Adds to many ledgers in turn; each is deleted after a random lifetime."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self._added_bytes = 0
        self._ledger_last = 0
        self._ends: dict[LedgerId, float] = {}
        self.live_bytes: dict[LedgerId, int] = {}

    async def add_all(self, added_bytes: int) -> None:
        """Add this many bytes in total."""
        writing = [self._opened() for _ in range(_LEDGERS_AT_ONCE)]
        while self._added_bytes < added_bytes:
            at = self._rng.randrange(_LEDGERS_AT_ONCE)
            self._add(writing[at])
            if self._rng.random() < 1 / 64:  # The ledger rolls; a new one takes its place.
                writing[at] = self._opened()
            self._delete_ended(set(writing))
            await self._store.journal.wait_room()
            await trio.lowlevel.checkpoint()

    def _opened(self) -> LedgerId:
        ledger = self._ledger_last = LedgerId(self._ledger_last + 1)
        replica = self._store.ledgers.replica_of(ledger)
        replica.restore_open(Epoch(1))
        self._store.ledgers.keep(replica, first_file_id=0)
        opened = PersistOpen(ledger, Epoch(1), is_first=False)
        self._store.journal.append_nowait(record_of(opened))
        lifetime_bytes = self._rng.choice(_LIFETIMES_BYTES)
        is_kept = self._rng.random() < _KEPT_SHARE
        self._ends[ledger] = float("inf") if is_kept else self._added_bytes + lifetime_bytes
        self.live_bytes[ledger] = 0
        return ledger

    def _add(self, ledger: LedgerId) -> None:
        body = self._rng.randbytes(_ENTRY_BYTES)
        entry = EntryId(self.live_bytes[ledger] // _ENTRY_BYTES)
        add = Add(
            1,
            ledger,
            entry,
            Epoch(1),
            NO_ENTRY,
            is_recovery=False,
            wants_received=False,
            instance=_NODE,
            body=body,
            body_crc=crc32c(body),
        )
        replica = self._store.ledgers.replica_of(ledger)
        replica.restore_entry(entry, Epoch(1), NO_ENTRY, is_recovery=False)
        self._store.journal.append_nowait(record_of(PersistEntry(add)), body)
        self.live_bytes[ledger] += _ENTRY_BYTES
        self._added_bytes += _ENTRY_BYTES

    def _delete_ended(self, writing: set[LedgerId]) -> None:
        ended = [each for each, end in self._ends.items() if end <= self._added_bytes]
        for ledger in ended:
            if ledger in writing:
                continue
            self._store.journal.append_nowait(delete_record(ledger))
            self._store.ledgers.delete(ledger)
            del self._ends[ledger], self.live_bytes[ledger]


def _used_bytes(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.iterdir())


if __name__ == "__main__":
    added_mib = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    with tempfile.TemporaryDirectory(dir=".") as made:
        figures = trio.run(measure_write_amplification, added_mib << 20, Path(made))
    for one in figures:
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit}\n")
