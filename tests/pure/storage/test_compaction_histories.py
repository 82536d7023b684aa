"""Adds, fences, removals, compactions, starts; and power loss before any call of the disk."""

from collections.abc import Callable
from random import Random

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import Answer
from regions.storage.protocol.compaction import CompactionPolicy
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import Running, restarted
from tests.pure.storage.test_compaction import Compacting, compacting

POLICY = CompactionPolicy(live_share_max=0.6, small_bytes=3000)
LEDGERS = range(1, 5)


@attrs.define
class Model:
    """Confirmed and begun operations."""

    entries: dict[tuple[int, int], bytes] = attrs.field(factory=dict)
    begun: set[tuple[int, int]] = attrs.field(factory=set)
    fenced: set[int] = attrs.field(factory=set)
    opened: set[int] = attrs.field(factory=set)
    deleted: set[int] = attrs.field(factory=set)
    deleting: set[int] = attrs.field(factory=set)
    let_go: set[int] = attrs.field(factory=set)
    letting_go: set[int] = attrs.field(factory=set)
    bodies: dict[tuple[int, int], bytes] = attrs.field(factory=dict)
    """Everything ever confirmed: entries let go may be found, and may be brought back."""

    def copy(self) -> "Model":
        return Model(*(each.copy() for each in attrs.astuple(self, recurse=False)))

    async def check(self, node: Running) -> None:
        assert not node.ledgers.is_any_in_doubt
        for ledger in LEDGERS:
            await self._check_ledger(node, ledger)

    async def _check_ledger(self, node: Running, ledger: int) -> None:
        is_deleted = LedgerId(ledger) in node.ledgers.deleted
        if is_deleted:
            assert ledger in self.deleting
            assert await node.read(ledger, 0) is Answer.UNKNOWN
            return
        assert ledger not in self.deleted
        assert ledger not in self.fenced or node.ledgers.replica_of(LedgerId(ledger)).is_fenced
        for entry in range(40):
            found = await node.read(ledger, entry)
            if (ledger, entry) in self.entries:
                assert found == self.entries[ledger, entry], (ledger, entry)
            elif ledger in self.letting_go:
                is_left = found == self.bodies.get((ledger, entry))
                is_sure = ledger in self.let_go or (ledger, entry) in self.bodies
                assert is_left or found is Answer.UNKNOWN or not is_sure, (ledger, entry)
            elif (ledger, entry) not in self.begun:
                assert found is Answer.ABSENT, (ledger, entry)


class WatchedDisk(MemoryDisk):
    """Calls back before any change: the moment at which power may be lost."""

    before: Callable[[], None] = staticmethod(lambda: None)

    async def rename(self, name: str, to: str) -> None:
        self.before()
        await super().rename(name, to)

    async def remove(self, name: str) -> None:
        self.before()
        await super().remove(name)

    async def sync_directory(self) -> None:
        self.before()
        await super().sync_directory()

    def count_write(self, name: str, growth_bytes: int) -> None:
        self.before()
        super().count_write(name, growth_bytes)

    def count_sync(self, name: str) -> None:
        self.before()
        super().count_sync(name)


async def add(it: Compacting, model: Model, ledger: int, size_bytes: int) -> None:
    if ledger in model.deleting or ledger in model.fenced:
        return
    if ledger not in model.opened:
        model.opened.add(ledger)
        it.node.open_ledger(ledger)
    entry = sum(1 for each, _ in model.entries if each == ledger)
    body = b"%d/%d " % (ledger, entry) + bytes(size_bytes)
    model.begun.add((ledger, entry))
    it.node.add(ledger, entry, body)
    await it.node.journal.wait_synced()
    model.entries[ledger, entry] = model.bodies[ledger, entry] = body


async def fence(it: Compacting, model: Model, ledger: int) -> None:
    if ledger in model.deleting or ledger not in model.opened:
        return
    it.node.fence(ledger, 2)
    await it.node.journal.wait_synced()
    model.fenced.add(ledger)


async def let_go(it: Compacting, model: Model, ledger: int) -> None:
    if ledger in model.deleting or ledger not in model.opened:
        return
    model.letting_go.add(ledger)
    model.entries = {key: body for key, body in model.entries.items() if key[0] != ledger}
    it.let_go(ledger, 3)
    await it.node.journal.wait_synced()
    model.let_go.add(ledger)
    model.fenced.add(ledger)


async def bring_back(it: Compacting, model: Model, ledger: int) -> None:
    """Bring the first copy that a ledger, once let go, need not have any more."""
    lacking = (each for each in model.bodies if each[0] == ledger and each not in model.entries)
    key = min(lacking, default=None)
    if ledger not in model.let_go or ledger in model.deleting or key is None:
        return
    it.node.add(*key, model.bodies[key], epoch=3)
    await it.node.journal.wait_synced()
    model.entries[key] = model.bodies[key]


async def delete(it: Compacting, model: Model, ledger: int) -> None:
    model.deleting.add(ledger)
    it.delete(ledger)
    await it.node.journal.wait_synced()
    model.deleted.add(ledger)


Step = tuple[str, int, int]
ledgers = st.sampled_from(list(LEDGERS))
step = st.one_of(
    st.tuples(st.just("add"), ledgers, st.integers(1, 1500)),
    st.tuples(st.just("add"), ledgers, st.integers(1, 1500)),
    st.tuples(st.just("add all"), st.just(0), st.integers(1, 1500)),
    st.tuples(st.just("fence"), ledgers, st.just(0)),
    st.tuples(st.just("delete"), ledgers, st.just(0)),
    st.tuples(st.just("let go"), ledgers, st.just(0)),
    st.tuples(st.just("bring back"), ledgers, st.just(0)),
    st.tuples(st.just("compact"), st.just(0), st.just(0)),
)
lives = st.lists(st.tuples(st.booleans(), st.lists(step, max_size=20)), min_size=1, max_size=5)


async def live(it: Compacting, model: Model, steps: list[Step]) -> None:
    for what, ledger, size_bytes in steps:
        match what:
            case "add":
                await add(it, model, ledger, size_bytes)
            case "add all":
                for each in LEDGERS:
                    await add(it, model, each, size_bytes)
            case "fence":
                await fence(it, model, ledger)
            case "delete":
                await delete(it, model, ledger)
            case "let go":
                await let_go(it, model, ledger)
            case "bring back":
                await bring_back(it, model, ledger)
            case _:
                await it.compact_all()
    await model.check(it.node)


@given(lives, st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_any_history_is_what_the_model_says(
    history: list[tuple[bool, list[Step]]], seed: int
) -> None:
    async def run() -> None:
        disk, model, chance = MemoryDisk(), Model(), Random(seed)
        for is_clean, steps in history:
            async with compacting(disk, policy=POLICY, clean_stop=is_clean) as it:
                await live(it, model, steps)
            if not is_clean:
                disk = disk.crash(keep_unsynced=chance)
        await model.check(await restarted(disk))

    trio.run(run, clock=MockClock(autojump_threshold=0))


STEPS: list[Step] = [
    *(("add all", 0, 900) for _ in range(12)),
    ("fence", 1, 0),
    ("delete", 2, 0),
    ("delete", 3, 0),
    ("compact", 0, 0),
    ("let go", 1, 0),
    ("compact", 0, 0),
    ("bring back", 1, 0),
    ("bring back", 1, 0),
    ("add", 1, 500),
    *(("add", 4, 900) for _ in range(8)),
    ("delete", 4, 0),
    ("compact", 0, 0),
]


@pytest.mark.long
async def test_power_loss_at_any_step_of_a_compaction_loses_nothing(
    autojump_clock: MockClock,
) -> None:
    disk, model, chance = WatchedDisk(), Model(), Random(5)
    left: list[tuple[MemoryDisk, Model]] = []

    def lose_power() -> None:
        left.extend(
            (disk.crash(keep_unsynced=keep_unsynced), model.copy())
            for keep_unsynced in (False, True, chance)
        )

    async with compacting(disk, policy=POLICY) as it:
        disk.before = lose_power
        await live(it, model, STEPS)
        assert it.compaction.counts.files_retired >= 3
        assert it.compaction.counts.copied_entries >= 10
    assert len(left) > 100
    for found, promised in left:
        await promised.check(await restarted(found))
        async with compacting(found.crash(), policy=POLICY) as it:
            await it.compact_all()
            await promised.check(it.node)
