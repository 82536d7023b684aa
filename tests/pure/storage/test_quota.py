"""A quota that the reported free space hides makes a node read-only, and does not end it."""

from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.nodes import list_live_nodes
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.messages import (
    AddRefused,
    AddsSynced,
    Answer,
    Fenced,
    LedgerOpened,
    Message,
    Reason,
    Refused,
)
from sim.fakes.memory_disk import MemoryDisk
from tests.pure.storage.nodes import BareClient, World, a_config, a_world

CONFIG = attrs.evolve(a_config(), journal_file_bytes=4 << 20)
BODY = b"some entry " * 1000
QUOTA_BYTES = 10 << 20
AT_ONCE = 50


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


def disk_of(world: World) -> MemoryDisk:
    assert isinstance(world.disk, MemoryDisk)
    return world.disk


async def add_until_refused(client: BareClient, *, at_once: int = AT_ONCE) -> int:
    """Add many entries at once, repeatedly, until refused; return how many were stored."""
    await client.send(client.open())
    await client.receive_one(LedgerOpened)
    sent = stored = 0
    refused: Message | None = None
    while refused is None:
        adds = [client.add(sent + n + 1, sent + n, BODY) for n in range(at_once)]
        await client.send(*adds)
        sent += at_once
        while stored < sent and refused is None:
            answer = await client.receive()
            if isinstance(answer, AddRefused):
                assert answer.reason is Reason.READ_ONLY
                refused = answer
            else:
                assert isinstance(answer, AddsSynced)
                stored = answer.through
    return stored


async def test_a_node_under_a_quota_is_read_only_and_fences_durably(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(CONFIG) as node:
        disk_of(world).faults.full_at_bytes = QUOTA_BYTES
        async with world.client(node) as client:
            stored = await add_until_refused(client)
        await trio.sleep(2 * CONFIG.free_check_s)
        assert await world.disk.free_bytes() > CONFIG.free_bytes_min, "nothing reveals it"
        async with world.store.open_session() as metadata:
            (live,) = await list_live_nodes(metadata, "default")
        async with world.client(node) as client:
            for epoch in range(2, 200):
                await client.send(client.fence(epoch))
                await client.receive_one(Fenced)
            (found,) = (await client.read(stored - 1, 1)).entries
        left = disk_of(world).crash()
    assert stored > 3 * CONFIG.journal_file_bytes // 2 // len(BODY)
    assert (found.answer, live.is_writable) == (Answer.HAVE, False)

    world.disk = left
    async with world.store.open_session() as metadata:
        # It tells of the orderly end, which did not come.
        await metadata.delete(ClusterPaths("default").journal(node.instance))
    async with world.node(CONFIG) as node, world.client(node) as client:
        await client.send(client.open(epoch=100))
        assert (await client.receive_one(Refused)).epoch_highest == 199
        (found,) = (await client.read(stored - 1, 1)).entries
        assert found.answer is Answer.HAVE


async def test_a_burst_that_the_quota_does_not_hold_is_refused_and_ends_nothing(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(CONFIG) as node:
        disk_of(world).faults.full_at_bytes = QUOTA_BYTES
        disk_of(world).faults.sync_s = 0.05  # Meanwhile all of it comes.
        async with world.client(node) as client:
            stored = await add_until_refused(client, at_once=2 * QUOTA_BYTES // len(BODY))
        async with world.client(node) as client:
            await client.send(client.fence(epoch=2))
            await client.receive_one(Fenced)
            (found,) = (await client.read(stored - 1, 1)).entries
    assert found.answer is Answer.HAVE
    assert stored > QUOTA_BYTES // 2 // len(BODY)


async def test_a_node_takes_entries_again_when_its_quota_is_raised(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(CONFIG) as node, world.client(node) as client:
        disk_of(world).faults.full_at_bytes = QUOTA_BYTES
        stored = await add_until_refused(client)
        (store,) = node.service.stores
        before = store.journal.file_id
        await trio.sleep(10 * CONFIG.free_check_s)
        was_read_only = store.is_read_only

        disk_of(world).faults.full_at_bytes = None
        await trio.sleep(3 * CONFIG.free_check_s)

        assert (was_read_only, store.is_read_only) == (True, False)
        async with world.client(node) as again:
            await again.send(*(again.add(n + 1, stored + n, BODY) for n in range(500)))
            through = 0
            while through < 500:
                through = (await again.receive_one(AddsSynced)).through
        assert store.journal.file_id > before
