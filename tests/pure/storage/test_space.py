"""Read-only before full, and writable only when considerably more is free again."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.protocol.ids import LedgerId
from geolog.protocol.messages import AddRefused, AddsSynced, Answer, LedgerOpened, Reason
from regions.storage.disk import DiskFullError
from regions.storage.protocol.space import SpaceBound
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.journals import restarted, running
from tests.pure.storage.nodes import a_world

RESERVE, COMPACTION = 100, 60
KEPT = RESERVE + COMPACTION


def a_bound(free_bytes: int) -> SpaceBound:
    bound = SpaceBound(reserve_bytes=RESERVE, compaction_bytes=COMPACTION)
    bound.on_look(free_bytes, needed_bytes=0, appended_bytes=0)
    return bound


def test_entries_stop_before_the_room_of_compaction_and_that_before_the_reserve() -> None:
    bound = a_bound(KEPT + 10)
    states = []
    for appended_bytes in (9, 10):
        bound.on_append(appended_bytes)
        states.append(bound.is_read_only)
    assert states == [False, True]
    assert bound.copyable_bytes(10) == COMPACTION
    assert bound.copyable_bytes(10 + COMPACTION) == 0


def test_space_already_taken_counts_as_used() -> None:
    bound = SpaceBound(reserve_bytes=RESERVE, compaction_bytes=COMPACTION)
    bound.on_look(KEPT + 50, needed_bytes=50, appended_bytes=0)
    assert bound.is_read_only


def test_it_becomes_writable_again_but_not_for_a_few_bytes() -> None:
    bound = a_bound(KEPT)
    for free_bytes, is_read_only in ((KEPT + 1, True), (KEPT + 41, False), (KEPT + 1, False)):
        bound.on_look(free_bytes, needed_bytes=0, appended_bytes=0)
        assert bound.is_read_only is is_read_only


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400))))
def test_entries_never_eat_the_reserve(steps: list[tuple[bool, int]]) -> None:
    free_bytes, appended = 1000, 0
    bound = a_bound(free_bytes)
    for is_look, count in steps:
        if is_look:
            bound.on_look(free_bytes, needed_bytes=0, appended_bytes=appended)
            continue
        for _ in range(count):  # Entries of a byte each, accepted like a node does.
            bound.on_append(appended)
            if not bound.is_read_only:
                appended, free_bytes = appended + 1, free_bytes - 1
    assert free_bytes >= KEPT


async def test_a_start_that_finds_the_disk_full_says_what_it_needs_and_leaves_nothing(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    async with running(disk, clean_stop=False) as node:
        node.open_ledger(7)
        node.add(7, 0, b"zero" * 100)
        await node.journal.wait_synced()
    left = disk.crash()
    names = await left.list()
    left.capacity_bytes -= await left.free_bytes()

    with pytest.raises(DiskFullError, match=r"needs 4\d\d\d bytes in .*; 0 are free"):
        await restarted(left)

    assert await left.list() == names
    left.capacity_bytes = 1 << 40
    assert await (await restarted(left)).read(7, 0) == b"zero" * 100


async def test_a_node_that_finds_its_disk_nearly_full_starts_read_only_and_comes_back(
    autojump_clock: MockClock,
) -> None:
    async with a_world() as world:
        async with world.node() as node, world.client(node) as client:
            await client.store(b"zero")
        assert isinstance(world.disk, MemoryDisk)
        used_bytes = world.disk.capacity_bytes - await world.disk.free_bytes()
        world.disk.capacity_bytes = used_bytes + 100_000
        async with world.node() as node, world.client(node) as client:
            assert (await client.read(0, 1)).entries[0].answer is Answer.HAVE
            await client.send(client.add(1, 1, b"one"))
            assert (await client.receive_one(AddRefused)).reason is Reason.READ_ONLY
            world.disk.capacity_bytes = 1 << 40
            await trio.sleep(2)
            await client.send(client.add(2, 1, b"one"))
            assert (await client.receive_one(AddsSynced)).through == 2
            await client.send(client.open(ledger=LedgerId(8)))
            await client.receive_one(LedgerOpened)
