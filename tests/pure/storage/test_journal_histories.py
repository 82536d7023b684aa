"""Lives of a journal drawn from a seed: adds, fences, rolls, retired files, and power loss."""

from functools import partial
from random import Random

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from regions.storage.journal_end import NO_END
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.journals import Running, restarted
from tests.pure.thinned import sampled

LEDGER = 7
FILE_BYTES = 256 << 10
AHEAD_BYTES = FILE_BYTES // 4
LIVES_COUNT = 6
LIVES_COUNT_MAX = 100


def body_of(entry: int) -> bytes:
    return bytes([entry % 251]) * (5000 + entry * 7919 % 40_000)


@attrs.define
class Synced:
    """Answered entries and fences, which must be there for ever."""

    entries: set[int] = attrs.field(factory=set)
    fences: set[int] = attrs.field(factory=set)

    def copy(self) -> "Synced":
        return Synced(set(self.entries), set(self.fences))

    async def check(self, node: Running) -> None:
        assert not node.ledgers.is_any_in_doubt
        for entry in self.entries:
            assert await node.read(LEDGER, entry) == body_of(entry), entry
        for ledger in self.fences:
            assert node.ledgers.replica_of(LedgerId(ledger)).is_fenced, ledger


class History:
    """One journal over several lives."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._disk = MemoryDisk()
        self._noted = NO_END
        self._number_next = 0
        self._synced = Synced()
        self.retired_count = 0

    async def live(self) -> None:
        """Start, check all answers, do random work, lose power."""
        self._disk.faults = DiskFaults(sync_s=0.01)
        node = await restarted(
            self._disk, noted=self._noted, file_bytes_max=FILE_BYTES, ahead_bytes=AHEAD_BYTES
        )
        await self._synced.check(node)
        self._note_end(node)
        synced = self._synced.copy()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.journal.run)
            with trio.move_on_after(self._chance.choice([0.015, 0.05, 0.2, 0.5, 1])):
                while True:
                    await self._act(node, synced)
                    await trio.sleep(self._chance.choice([0, 0.001, 0.005, 0.06]))
            kept: list[bool | Random] = [self._chance, self._chance, True, False]
            how = self._chance.choice(kept)
            self._disk = self._disk.crash(keep_unsynced=how)
            self._synced = synced.copy()  # Later syncs do not count.
            nursery.cancel_scope.cancel(reason="power is lost")

    async def _act(self, node: Running, synced: Synced) -> None:
        acts = [self._add, self._add, self._add, self._add, self._fence]
        drawn = self._chance.randrange(len(acts) + 2)
        if drawn < len(acts):
            acts[drawn](node, synced)
        elif drawn == len(acts):
            await self._compact_oldest(node, synced)
        else:
            self._note_end(node)

    def _add(self, node: Running, synced: Synced) -> None:
        entry = self._number()
        node.add(LEDGER, entry, body_of(entry))
        node.journal.when_synced(partial(synced.entries.add, entry))

    def _fence(self, node: Running, synced: Synced) -> None:
        ledger = 100 + self._number()
        node.open_ledger(ledger)
        node.fence(ledger, 2)
        node.journal.when_synced(partial(synced.fences.add, ledger))

    async def _compact_oldest(self, node: Running, synced: Synced) -> None:
        """Copy the live entries of the oldest file and retire it, if a later has a table."""
        rows = list(node.journal.files.rows())
        if len(rows) < 3 or not rows[-1].table_crc:
            return
        oldest = node.entries.files[0]
        assert oldest.file_id == rows[0].file_id
        for entry in sorted(synced.entries):
            if oldest.table.find(LEDGER, entry):
                node.add(LEDGER, entry, body_of(entry))
        await node.journal.wait_synced()
        await node.journal.retire(oldest.file_id)
        self.retired_count += 1

    def _note_end(self, node: Running) -> None:
        self._noted = max(self._noted, node.journal.end)

    def _number(self) -> int:
        self._number_next += 1
        return self._number_next


@pytest.mark.parametrize("seed", sampled(range(30), one_in=3))
async def test_every_answer_outlives_every_history(
    autojump_clock: MockClock, seed: int
) -> None:
    history = History(seed)

    for _ in range(LIVES_COUNT):
        await history.live()


async def test_histories_retire_files(autojump_clock: MockClock) -> None:
    """The number that a life retires depends on trio's random order of tasks."""
    history = History(seed=1)

    for _ in range(LIVES_COUNT_MAX):
        await history.live()
        if history.retired_count > 3:
            return

    pytest.fail(f"{history.retired_count} files retired in {LIVES_COUNT_MAX} lives")
