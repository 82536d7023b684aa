"""Ledgers that damage puts in doubt, those it cannot have touched, and the end of doubt."""

from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.messages import (
    AddRefused,
    AddsSynced,
    Answer,
    DoubtSettled,
    LedgerOpened,
    ReadAnswer,
    Reason,
    Refused,
    SettleDoubt,
)
from regions.storage.node import StorageNode
from regions.storage.protocol.records import file_name
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.nodes import BareClient, World, a_world

OLD, OLD_UNKNOWN, NEW = LedgerId(7), LedgerId(8), LedgerId(20)
COUNTER = b"20"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


async def a_damaged_disk(world: World, *, counter: bytes | None = COUNTER) -> None:
    """Ledger 7 was in a file that is lost."""
    async with world.store.open_session() as metadata:
        paths = ClusterPaths("default")
        await metadata.ensure_path(paths.root)
        if counter is not None:
            await metadata.create(paths.ledger_next, counter)
    for ledger in (OLD, LedgerId(9)):
        async with world.node() as node, world.client(node) as client:
            await client.store(b"zero", ledger=ledger)
    await world.disk.remove(file_name(1))


async def answer_of(client: BareClient, ledger: LedgerId) -> Answer:
    await client.send(client.reading(0, 1, ledger=ledger))
    return (await client.receive_one(ReadAnswer)).entries[0].answer


async def settle(client: BareClient, node: StorageNode, below: int) -> None:
    start_number = node.service.start_number
    await client.send(SettleDoubt(9, LedgerId(below), start_number, node.instance))


async def test_ledgers_made_after_the_damage_are_taken_at_once(
    autojump_clock: MockClock, world: World
) -> None:
    await a_damaged_disk(world)
    async with world.node() as node, world.client(node) as client:
        assert await answer_of(client, OLD) is Answer.UNKNOWN
        assert await answer_of(client, OLD_UNKNOWN) is Answer.UNKNOWN
        assert await answer_of(client, NEW) is Answer.ABSENT
        await client.store(b"zero", b"one", ledger=NEW)
        assert '"doubt_below": 20' in node.status()


async def test_a_ledger_that_may_have_been_fenced_takes_only_recovery_adds(
    autojump_clock: MockClock,
    world: World,
) -> None:
    await a_damaged_disk(world)
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(ledger=OLD))
        assert (await client.receive_one(Refused)).reason is Reason.READ_ONLY
        await client.send(client.fence(2))
        await client.receive()
        await client.send(client.add(1, 0, b"zero", epoch=2))
        assert (await client.receive_one(AddRefused)).reason is Reason.FENCED
        await client.send(client.add(2, 0, b"zero", epoch=2, recovery=True))
        assert (await client.receive_one(AddsSynced)).through == 2
        assert await answer_of(client, OLD) is Answer.HAVE


async def test_without_a_counter_every_ledger_of_a_node_that_holds_one_stays_in_doubt(
    autojump_clock: MockClock, world: World
) -> None:
    await a_damaged_disk(world, counter=None)
    async with world.node() as node, world.client(node) as client:
        assert await answer_of(client, LedgerId(1 << 40)) is Answer.UNKNOWN


async def test_damage_before_the_first_ledger_of_a_cluster_puts_none_in_doubt(
    autojump_clock: MockClock, world: World
) -> None:
    for _ in range(2):
        async with world.node():
            pass
    await world.disk.remove(file_name(1))
    async with world.node() as node, world.client(node) as client:
        assert '"doubt_below": 1' in node.status()
        assert await answer_of(client, LedgerId(1)) is Answer.ABSENT
        await client.store(b"zero", ledger=LedgerId(1))


async def test_settled_doubt_is_over_for_good(autojump_clock: MockClock, world: World) -> None:
    await a_damaged_disk(world)
    async with world.node() as node, world.client(node) as client:
        await settle(client, node, 20)
        await client.receive_one(DoubtSettled)
        assert isinstance(world.disk, MemoryDisk)
        left = world.disk.crash()  # Power is lost at the moment of the answer.
        assert await answer_of(client, OLD) is Answer.ABSENT
    world.disk = left
    async with world.store.open_session() as metadata:
        # It tells of the orderly end, which did not come.
        await metadata.delete(ClusterPaths("default").journal(node.instance))
    for _ in range(2):
        async with world.node() as node, world.client(node) as client:
            assert await answer_of(client, OLD) is Answer.ABSENT
            assert '"doubt_below": 0' in node.status()


async def test_a_request_that_covers_too_few_ledgers_settles_no_doubt(
    autojump_clock: MockClock, world: World
) -> None:
    await a_damaged_disk(world)
    async with world.node() as node, world.client(node) as client:
        await settle(client, node, 19)
        refused = await client.receive_one(Refused)
        assert (refused.reason, "below 20" in refused.message) == (Reason.CONFLICT, True)
        other = InstanceId("f" * 32)
        await client.send(SettleDoubt(9, LedgerId(20), node.service.start_number, other))
        assert (await client.receive_one(Refused)).reason is Reason.WRONG_INSTANCE
        assert await answer_of(client, OLD) is Answer.UNKNOWN


async def test_an_inspection_before_a_restart_settles_no_doubt(
    autojump_clock: MockClock, world: World
) -> None:
    """Data that was intact then may have been damaged since."""
    await a_damaged_disk(world)
    async with world.node() as node:
        looked_at = node.service.start_number
    async with world.node() as node, world.client(node) as client:
        await client.send(SettleDoubt(9, LedgerId(20), looked_at, node.instance))
        refused = await client.receive_one(Refused)
        assert (refused.reason, "inspect again" in refused.message) == (Reason.CONFLICT, True)
        assert await answer_of(client, OLD) is Answer.UNKNOWN


async def test_settling_where_nothing_is_in_doubt_changes_nothing(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await settle(client, node, 0)
        await client.receive_one(DoubtSettled)
        await client.send(client.open())
        await client.receive_one(LedgerOpened)
