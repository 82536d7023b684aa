"""A node whose metadata is away waits for it, at its start and while it serves."""

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.nodes import list_live_nodes
from geolog.protocol.messages import AddsSynced, Answer, EntryAnswer, Fenced, LedgerOpened
from regions.storage.node import open_storage_node
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.storage.nodes import World, a_config, a_world

AWAY_S = 300.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


async def is_shown_up(world: World) -> bool:
    async with world.store.open_session() as other:
        return bool(await list_live_nodes(other, "default"))


async def test_a_node_that_starts_without_metadata_waits_and_is_ready_once_it_is_registered(
    autojump_clock: MockClock, world: World
) -> None:
    ready_s: list[float] = []

    async def start(metadata: MemoryMetadata) -> None:
        async with open_storage_node(
            a_config(),
            transport=world.network.transport("storage"),
            disks=[world.disk],
            metadata=metadata,
            random_bytes=world.chance.randbytes,
        ):
            assert await is_shown_up(world)
            ready_s.append(trio.current_time())

    began_s = trio.current_time()
    async with world.store.open_session() as metadata, trio.open_nursery() as nursery:
        metadata.cut_off()
        nursery.start_soon(start, metadata)
        await trio.sleep(AWAY_S)
        assert not ready_s
        metadata.restore()

    assert AWAY_S <= ready_s[0] - began_s <= AWAY_S + 10.0


async def test_a_node_that_loses_metadata_serves_on_and_is_shown_up_again(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node, world.client(node) as client:
        await client.send(client.open(), client.add(1, 0, b"zero"))
        await client.receive_one(LedgerOpened)
        await client.receive_one(AddsSynced)
        world.node_session.cut_off()
        await trio.sleep(AWAY_S)
        assert not await is_shown_up(world)

        await client.send(client.add(2, 1, b"one"))
        await client.receive_one(AddsSynced)
        await client.send(client.fence(2))
        await client.receive_one(Fenced)
        assert (await client.read(0, 1)).entries == (EntryAnswer(Answer.HAVE, b"zero"),)
        world.node_session.restore()
        await trio.sleep(5.0)
        assert await is_shown_up(world)


async def test_a_node_in_a_new_session_does_not_wait_for_its_older_record_to_go(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node() as node:
        path = f"/geolog/default/nodes/live/{node.instance}"
        before = (await world.node_session.get(path)).session_id
        world.node_session.cut_off()
        await trio.sleep(AWAY_S)
        world.node_session.restore()
        await trio.sleep(5.0)

        found = await world.node_session.get(path)
        assert found.session_id == world.node_session.session_id != before
