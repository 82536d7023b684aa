"""An instance is replaced once, for good, and never while it runs."""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import NodeRecord, find_known_node
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.replaced_nodes import (
    NodeRunsError,
    ReplacedNode,
    UnknownNodeError,
    find_replaced_node,
    list_replaced_nodes,
    mark_replaced,
)
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from regions.storage.registration import NodeRegistration, NodeReplacedError
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from topology.location import Location

PATHS = ClusterPaths("default")
NODE = NodeRecord(
    "node-1", InstanceId("1" * 32), Address("host", 1), Location.parse("/here/rack-1")
)
REPLACED = ReplacedNode(
    instance=NODE.instance, node_id="node-1", address=NODE.address, location=NODE.location
)


@pytest.fixture
async def metadata() -> AsyncIterator[MemoryMetadata]:
    """A cluster that knows one node, which is down."""
    async with open_memory_store() as store, store.open_session() as session:
        await session.ensure_path(PATHS.nodes_known)
        await session.ensure_path(PATHS.nodes_live)
        await session.create(PATHS.node_known(NODE.node_id), seal_document(NODE))
        yield session


async def test_an_instance_that_is_given_up_loses_its_node_id(
    autojump_clock: MockClock, metadata: MemoryMetadata
) -> None:
    assert await mark_replaced(metadata, "default", "node-1") == REPLACED

    assert await find_known_node(metadata, "default", "node-1") is None
    assert await find_replaced_node(metadata, "default", NODE.instance) == REPLACED


async def test_a_node_that_is_up_is_not_given_up(
    autojump_clock: MockClock, metadata: MemoryMetadata
) -> None:
    await NodeRegistration(metadata, "default", NODE).register()

    with pytest.raises(NodeRunsError, match="is up at host:1"):
        await mark_replaced(metadata, "default", "node-1")

    assert await find_known_node(metadata, "default", "node-1") == NODE
    assert await list_replaced_nodes(metadata, "default") == []


async def test_a_node_that_was_given_up_does_not_come_up(
    autojump_clock: MockClock, metadata: MemoryMetadata
) -> None:
    await mark_replaced(metadata, "default", "node-1")

    with pytest.raises(NodeReplacedError, match="node-1 was replaced"):
        await NodeRegistration(metadata, "default", NODE).register()


@pytest.mark.parametrize("head_start", range(-8, 9))
async def test_of_a_starting_node_and_an_operator_replacing_it_only_one_wins(
    autojump_clock: MockClock, metadata: MemoryMetadata, head_start: int
) -> None:
    won: list[str] = []

    async def come_up() -> None:
        for _ in range(head_start):
            await trio.lowlevel.checkpoint()
        with suppress(NodeReplacedError):
            await NodeRegistration(metadata, "default", NODE).register()
            won.append("the node")

    async def give_up() -> None:
        for _ in range(-head_start):
            await trio.lowlevel.checkpoint()
        with suppress(NodeRunsError):
            await mark_replaced(metadata, "default", "node-1")
            won.append("the operator")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_up)
        nursery.start_soon(give_up)

    assert len(won) == 1


async def test_an_id_that_no_instance_has_cannot_be_given_up(
    autojump_clock: MockClock, metadata: MemoryMetadata
) -> None:
    with pytest.raises(UnknownNodeError, match="'node-2'"):
        await mark_replaced(metadata, "default", "node-2")
