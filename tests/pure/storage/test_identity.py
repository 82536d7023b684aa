"""A node starts only where disk, claim and metadata agree."""

from collections.abc import AsyncIterator

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geolog.metadata.nodes import list_known_nodes, list_live_nodes
from geolog.metadata.replaced_nodes import mark_replaced
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from regions.storage.cookies import (
    COOKIE_NAME,
    DamagedCookieError,
    WrongDataDirectoryError,
)
from regions.storage.journal_end import OlderDiskError
from regions.storage.protocol.records import file_id_of
from regions.storage.registration import NodeReplacedError, NodeUpElsewhereError
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.storage.nodes import World, a_config, a_world
from topology.errors import GeologError

NODE_1 = attrs.evolve(a_config(), node_id="node-1")
NODE_1_ELSEWHERE = attrs.evolve(NODE_1, listen=Address("storage", 7002))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


async def start(world: World, config: StorageConfig = NODE_1) -> InstanceId:
    """Start a node and stop it; return its instance."""
    async with world.node(config) as node:
        return node.instance


def disk_of(world: World) -> MemoryDisk:
    assert isinstance(world.disk, MemoryDisk)
    return world.disk


async def test_a_node_keeps_its_instance(autojump_clock: MockClock, world: World) -> None:
    first = await start(world)

    world.disk = disk_of(world).crash()

    assert await start(world) == first


async def test_every_disk_has_its_own_instance(autojump_clock: MockClock, world: World) -> None:
    first = await start(world)

    world.disk = MemoryDisk()

    other = attrs.evolve(NODE_1, node_id="node-2", listen=Address("storage", 7002))
    assert await start(world, other) != first


async def test_the_node_id_is_the_advertised_address_unless_given(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(attrs.evolve(NODE_1, node_id=None)) as node:
        assert node.node_id == "storage:7001"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (attrs.evolve(NODE_1, node_id="node-2"), "belongs to node node-1, not to node-2"),
        (attrs.evolve(NODE_1, cluster="other"), "belongs to cluster 'default'"),
        (attrs.evolve(NODE_1, location="/there/r"), "is at /here/rack-1, not /there/r"),
    ],
    ids=["another node", "another cluster", "another place"],
)
async def test_a_data_directory_of_something_else_is_refused_with_the_value(
    autojump_clock: MockClock, world: World, config: StorageConfig, text: str
) -> None:
    await start(world)

    with pytest.raises(WrongDataDirectoryError, match=text):
        await start(world, config)


async def test_an_empty_disk_of_a_known_node_is_refused_and_the_way_out_named(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    world.disk = MemoryDisk()

    with pytest.raises(NodeReplacedError, match="geolog node replace node-1"):
        await start(world)


async def test_an_empty_disk_at_a_known_address_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    world.disk = MemoryDisk()

    with pytest.raises(NodeReplacedError, match="address storage:7001 belongs to node node-1"):
        await start(world, attrs.evolve(NODE_1, node_id="node-2"))


async def test_a_disk_that_metadata_does_not_know_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    async with a_world(seed=2) as elsewhere:
        elsewhere.disk = world.disk
        with pytest.raises(GeologError, match="belongs to cluster"):
            await start(elsewhere)
    async with world.store.open_session() as metadata:
        await metadata.delete("/geolog/default/nodes/known/node-1")

    with pytest.raises(NodeReplacedError, match="metadata does not know node node-1"):
        await start(world)


async def test_a_crash_between_cookie_and_metadata_is_made_good(
    autojump_clock: MockClock, world: World
) -> None:
    first = await start(world)
    async with world.store.open_session() as metadata:
        await metadata.delete("/geolog/default/nodes/known/node-1")
        await metadata.delete(f"/geolog/default/nodes/journals/{first}")
    for name in await world.disk.list():
        if name != COOKIE_NAME:
            await world.disk.remove(name)

    assert await start(world) == first


async def test_every_flip_of_the_cookie_stops_the_node(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    cookie = disk_of(world).content(COOKIE_NAME)

    for place in range(len(cookie)):
        for bit in range(8):
            flipped = bytearray(cookie)
            flipped[place] ^= 1 << bit
            disk_of(world).overwrite(COOKIE_NAME, bytes(flipped))
            with pytest.raises(DamagedCookieError, match="geolog node replace"):
                await start(world)


async def test_a_cookie_cut_at_any_length_stops_the_node(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    cookie = disk_of(world).content(COOKIE_NAME)

    for length in range(len(cookie)):
        disk_of(world).overwrite(COOKIE_NAME, cookie[:length])
        with pytest.raises(DamagedCookieError, match="geolog node replace") as refused:
            await start(world)
        assert str(refused.value).endswith(
            "is not a JSON document with a body and its checksum)"
        )


async def test_a_journal_without_a_cookie_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    await world.disk.remove(COOKIE_NAME)

    with pytest.raises(DamagedCookieError, match=COOKIE_NAME):
        await start(world)


async def test_a_disk_that_has_lost_its_journal_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    await remove_journal_files(disk_of(world), count=10)

    with pytest.raises(OlderDiskError, match="geolog node replace node-1"):
        await start(world)


async def test_a_disk_without_its_newest_journal_file_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    await start(world)
    await remove_journal_files(disk_of(world), count=1)

    with pytest.raises(OlderDiskError):
        await start(world)


async def test_an_old_copy_of_a_disk_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    old = disk_of(world).crash()
    await start(world)
    newest = disk_of(world)
    world.disk = old
    with pytest.raises(OlderDiskError):
        await start(world)

    world.disk = newest
    await start(world)


async def remove_journal_files(disk: MemoryDisk, *, count: int) -> None:
    """Lose the newest files."""
    for name in [one for one in await disk.list() if file_id_of(one) is not None][-count:]:
        await disk.remove(name)
    await disk.sync_directory()


async def test_a_node_may_move_to_another_address(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)

    await start(world, NODE_1_ELSEWHERE)

    async with world.store.open_session() as metadata:
        (known,) = await list_known_nodes(metadata, "default")
        assert known.address == Address("storage", 7002)


async def is_live(metadata: Metadata, instance: InstanceId) -> bool:
    return any(
        record.instance == instance for record in await list_live_nodes(metadata, "default")
    )


async def test_a_live_record_comes_back_after_the_session_was_lost(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.store.open_session() as observer, world.node() as node:
        assert await is_live(observer, node.instance)
        world.node_session.cut_off()
        await trio.sleep(60)
        assert not await is_live(observer, node.instance)

        world.node_session.restore()
        await trio.sleep(60)
        assert await is_live(observer, node.instance)

        world.node_session.expire()
        await trio.sleep(60)
        assert await is_live(observer, node.instance)


async def test_a_copy_of_a_disk_is_refused_while_its_original_is_up(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.store.open_session() as observer, world.node(NODE_1):
        world.disk = disk_of(world).crash()

        with pytest.raises(
            NodeUpElsewhereError, match=r"up at storage:7001.*must not be copied"
        ):
            await start(world, NODE_1_ELSEWHERE)

        (live,) = await list_live_nodes(observer, "default")
        known = attrs.evolve(live, free_bytes=0)  # A running node reports its space.
        assert await list_known_nodes(observer, "default") == [known]
        assert live.address == NODE_1.listen


async def test_a_node_whose_place_was_taken_while_it_was_cut_off_ends(
    autojump_clock: MockClock, world: World
) -> None:
    async def run_original(task_status: trio.TaskStatus[MemoryMetadata]) -> None:
        async with world.node(NODE_1):
            task_status.started(world.node_session)
            await trio.sleep_forever()

    async def see_original_end(task_status: trio.TaskStatus[MemoryMetadata]) -> None:
        with pytest.raises(NodeUpElsewhereError, match=r"is now up at storage:7002"):
            await run_original(task_status)

    async with world.store.open_session() as observer, trio.open_nursery() as nursery:
        session: MemoryMetadata = await nursery.start(see_original_end)
        session.cut_off()
        world.disk = disk_of(world).crash()

        async with world.node(NODE_1_ELSEWHERE):
            session.restore()
            await trio.sleep(60)

            (live,) = await list_live_nodes(observer, "default")
            assert live.address == NODE_1_ELSEWHERE.listen
            assert not nursery.child_tasks


async def test_a_disk_whose_newest_file_was_cut_is_refused_and_the_whole_one_is_not(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    newest = [name for name in await world.disk.list() if file_id_of(name) is not None][-1]
    whole = disk_of(world).content(newest)

    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        disk_of(world).overwrite(newest, whole[:length])
        with pytest.raises(OlderDiskError, match="geolog node replace node-1"):
            await start(world)
    assert await world.disk.list() == [newest, COOKIE_NAME], "nothing was begun"
    disk_of(world).overwrite(newest, whole)
    await start(world)


async def test_a_disk_that_was_replaced_never_starts_again(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    async with world.store.open_session() as metadata:
        await mark_replaced(metadata, "default", "node-1")

    with pytest.raises(NodeReplacedError, match="replaced: it must never be used again"):
        await start(world)


async def test_an_empty_disk_takes_the_id_and_address_of_one_that_was_replaced(
    autojump_clock: MockClock, world: World
) -> None:
    first, old_disk = await start(world), world.disk
    async with world.store.open_session() as metadata:
        await mark_replaced(metadata, "default", "node-1")

    world.disk = MemoryDisk()
    second = await start(world)
    world.disk = old_disk

    assert second != first
    with pytest.raises(NodeReplacedError, match="has been replaced"):
        await start(world)


async def test_a_node_replaced_while_its_session_was_lost_ends(
    autojump_clock: MockClock, world: World
) -> None:
    async def run_until_replaced() -> None:
        async with world.node(NODE_1):
            world.node_session.cut_off()
            await trio.sleep(30)
            async with world.store.open_session() as metadata:
                await mark_replaced(metadata, "default", "node-1")
            world.node_session.restore()
            await trio.sleep_forever()

    with pytest.raises(NodeReplacedError, match="node-1 was replaced"):
        await run_until_replaced()
