"""A node over several data directories: their owner, and the work in each of them."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import permutations
from random import Random

import attrs
import pytest
import trio
from crc32c import crc32c
from trio.testing import MockClock

from geolog.metadata.nodes import find_known_node, list_live_nodes
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.messages import (
    AddRefused,
    AddsReceived,
    AddsSynced,
    Answer,
    EntryAnswer,
    Fenced,
    LedgerOpened,
    ReadAnswer,
    Reason,
)
from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from regions.storage.cookies import COOKIE_NAME, DamagedCookieError, WrongDataDirectoryError
from regions.storage.disk import Disk, DiskFailedError
from regions.storage.journal_end import OlderDiskError
from regions.storage.protocol.directories import directory_of
from regions.storage.protocol.records import file_id_of
from regions.storage.registration import NodeReplacedError
from sim.fakes.failing_disk import FailingDisk, Failure
from sim.fakes.memory_disk import DiskFaults, MemoryDisk
from tests.pure.storage.nodes import BareClient, World, a_config, a_world
from topology.errors import GeologError

NODE_1 = attrs.evolve(a_config(), node_id="node-1")
NODE_2 = attrs.evolve(a_config(), node_id="node-2", listen=Address("storage", 7002))
COUNT = 3


def ledger_in(directory: int, *, count: int = COUNT) -> LedgerId:
    """Some ledger that lives in this directory."""
    return next(
        LedgerId(ledger)
        for ledger in range(1, 1000)
        if directory_of(LedgerId(ledger), count) == directory
    )


def new_disks(count: int = COUNT) -> list[Disk]:
    return [MemoryDisk(name=f"/disk-{index + 1}") for index in range(count)]


def disk_of(world: World, index: int) -> MemoryDisk:
    disk = world.disks[index]
    assert isinstance(disk, MemoryDisk)
    return disk


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        world.disks = new_disks()
        yield world


async def start(world: World, config: StorageConfig = NODE_1) -> InstanceId:
    """Start a node and stop it; return its instance."""
    async with world.node(config) as node:
        return node.instance


async def names_on(disks: list[Disk]) -> list[list[str]]:
    return [await disk.list() for disk in disks]


# The directory of a ledger.


def test_a_ledger_lives_where_the_documented_hash_says() -> None:
    for ledger in (1, 2, 1000, 123_456_789_012):
        expected = crc32c(ledger.to_bytes(8, "little")) % 5
        assert directory_of(LedgerId(ledger), 5) == expected
    found = [directory_of(LedgerId(ledger), 3) for ledger in range(1, 11)]
    assert found == [0, 0, 1, 1, 2, 1, 1, 1, 0, 2], "as in releases before"


@pytest.mark.parametrize("count", [2, 3, 4, 6])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 16])
def test_ledgers_are_spread_over_all_directories_alike(count: int, step: int) -> None:
    found = [directory_of(LedgerId(ledger), count) for ledger in range(0, 6000 * step, step)]

    for directory in range(count):
        assert found.count(directory) == pytest.approx(6000 / count, rel=0.15)


# The directories of a node.


async def test_the_order_in_which_directories_are_given_does_not_matter(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        for directory in range(COUNT):
            await client.store(b"body", ledger=ledger_in(directory))

    for order in permutations(list(world.disks)):
        world.disks = list(order)
        async with world.node(NODE_1) as node, world.client(node) as client:
            for directory in range(COUNT):
                await client.send(client.reading(0, 1, ledger=ledger_in(directory)))
                answer = await client.receive_one(ReadAnswer)
                assert answer.entries == (EntryAnswer(Answer.HAVE, b"body"),)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ([1], "node-1 was created with 3 data directories, but 2 given; missing: number 2"),
        ([0, 2], "but 1 given; missing: number 1, 3. Pass all of them to --data-dir"),
    ],
)
async def test_a_missing_directory_is_named(
    autojump_clock: MockClock, world: World, missing: list[int], text: str
) -> None:
    await start(world)
    world.disks = [disk for index, disk in enumerate(world.disks) if index not in missing]
    before = await names_on(world.disks)

    with pytest.raises(WrongDataDirectoryError, match=text):
        await start(world)
    assert await names_on(world.disks) == before, "nothing was begun"


async def test_a_directory_too_many_is_named(autojump_clock: MockClock, world: World) -> None:
    await start(world)
    world.disks = [MemoryDisk(name="/fourth"), *world.disks]
    before = await names_on(world.disks)

    with pytest.raises(WrongDataDirectoryError, match="/fourth is empty and one too many"):
        await start(world)
    assert await names_on(world.disks) == before


async def test_a_second_directory_cannot_be_given_to_a_node_that_was_made_with_one(
    autojump_clock: MockClock, world: World
) -> None:
    world.disks = new_disks(1)
    await start(world)
    world.disks += [MemoryDisk(name="/second")]

    with pytest.raises(WrongDataDirectoryError, match="was created with one data directory"):
        await start(world)


async def test_a_directory_of_another_node_is_named(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    own = world.disks
    world.disks = [MemoryDisk(name=f"/other-{index}") for index in range(COUNT)]
    await start(world, NODE_2)
    world.disks = [own[0], world.disks[1], own[2]]

    with pytest.raises(WrongDataDirectoryError, match="/other-1 belongs to node node-2"):
        await start(world)


async def test_a_directory_of_an_earlier_instance_of_the_node_is_named(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    own = world.disks
    async with a_world(seed=2) as elsewhere:
        elsewhere.store = world.store
        elsewhere.disks = [MemoryDisk(name=f"/older-{index}") for index in range(COUNT)]
        async with world.store.open_session() as metadata:
            await metadata.delete("/geolog/default/nodes/known/node-1")
        await start(elsewhere)
        world.disks = [own[0], own[1], elsewhere.disks[2]]

    with pytest.raises(WrongDataDirectoryError, match=r"older-2 belongs to node node-1 \(inst"):
        await start(world)


async def test_a_copy_of_one_directory_in_place_of_another_is_named(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    copy = disk_of(world, 0).crash()
    copy.name = "/copy"
    world.disks = [world.disks[0], copy, world.disks[2]]

    with pytest.raises(
        WrongDataDirectoryError,
        match="/disk-1 and /copy are both number 1 of node node-1: one is a copy",
    ):
        await start(world)


async def test_an_empty_directory_among_full_ones_is_named_and_stays_empty(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    world.disks[1] = MemoryDisk(name="/empty")

    with pytest.raises(NodeReplacedError, match=r"/empty is empty.*geolog node replace node-1"):
        await start(world)
    assert await world.disks[1].list() == []


async def test_a_directory_with_a_journal_and_no_cookie_is_named(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    await world.disks[2].remove(COOKIE_NAME)

    with pytest.raises(DamagedCookieError, match="/disk-3 of node node-1 holds a journal"):
        await start(world)


async def test_a_damaged_cookie_of_any_directory_stops_the_node(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    cookie = bytearray(disk_of(world, 1).content(COOKIE_NAME))
    cookie[len(cookie) // 2] ^= 1
    disk_of(world, 1).overwrite(COOKIE_NAME, bytes(cookie))

    with pytest.raises(
        DamagedCookieError, match=r"cookie\.json of data directory /disk-2 is damaged"
    ):
        await start(world)


async def test_a_directory_that_lost_its_journal_is_refused(
    autojump_clock: MockClock, world: World
) -> None:
    await start(world)
    for name in await world.disks[2].list():
        if file_id_of(name) is not None:
            await world.disks[2].remove(name)

    with pytest.raises(OlderDiskError, match="geolog node replace node-1"):
        await start(world)


@pytest.mark.parametrize("sync_failing", range(1, 16))
async def test_a_first_start_that_ended_anywhere_is_resumed(
    autojump_clock: MockClock, world: World, sync_failing: int
) -> None:
    """After power loss at any sync of any disk, the rest starts as one node."""
    index, call = (sync_failing - 1) % COUNT, 1 + (sync_failing - 1) // COUNT
    disk_of(world, index).faults = DiskFaults(sync_failing=call)
    with suppress(DiskFailedError):
        await start(world)
    chance = Random(sync_failing)
    world.disks = [disk_of(world, at).crash(keep_unsynced=chance) for at in range(COUNT)]

    first = await start(world)

    async with world.store.open_session() as metadata:
        known = await find_known_node(metadata, "default", "node-1")
    assert known is not None
    assert known.instance == first
    assert await start(world) == first


@pytest.mark.parametrize("killed_at", range(1, 8))
@pytest.mark.parametrize("lost_at", range(1, 8))
async def test_a_first_start_that_was_killed_outlives_power_loss_once_it_is_resumed(
    autojump_clock: MockClock, world: World, killed_at: int, lost_at: int
) -> None:
    """The kill can leave a cookie that is not on disk yet, which the resumed start finds."""
    disks = [disk_of(world, at) for at in range(COUNT)]
    world.disks = [FailingDisk(disks[0], Failure(killed_at)), *disks[1:]]
    with suppress(DiskFailedError):
        await start(world)
    disks = [each.handed_on() for each in disks]
    world.disks = [FailingDisk(disks[0], Failure(lost_at)), *disks[1:]]
    with suppress(DiskFailedError):
        await start(world)

    world.disks = [each.crash() for each in disks]

    await start(world)


async def test_a_node_is_not_known_before_all_its_directories_have_a_cookie(
    autojump_clock: MockClock, world: World
) -> None:
    disk_of(world, 2).faults = DiskFaults(sync_failing=1)

    with pytest.raises(GeologError):
        await start(world)

    async with world.store.open_session() as metadata:
        assert await find_known_node(metadata, "default", "node-1") is None


# Work in the directories.


async def opened(client: BareClient) -> list[LedgerId]:
    """One open ledger in each directory."""
    ledgers = [ledger_in(directory) for directory in range(COUNT)]
    for ledger in ledgers:
        await client.send(client.open(ledger=ledger))
        await client.receive_one(LedgerOpened)
    return ledgers


async def test_adds_are_answered_in_order_on_disks_of_unequal_speed(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        ledgers = await opened(client)
        for index, sync_s in enumerate((0.1, 1.0, 0.3)):
            disk_of(world, index).faults = DiskFaults(sync_s=sync_s)
        start_s = trio.current_time()
        for ordinal, directory in enumerate((0, 2, 1, 0, 2), start=1):
            entry = (ordinal - 1) // COUNT
            await client.send(client.add(ordinal, entry, b"body", ledger=ledgers[directory]))

        heard: list[tuple[int, float]] = []
        while not heard or heard[-1][0] < 5:
            through = (await client.receive_one(AddsSynced)).through
            heard.append((through, round(trio.current_time() - start_s, 1)))

    assert heard == [(1, 0.1), (2, 0.3), (5, 1.0)]


async def test_receipts_are_cumulative_and_come_before_the_sync(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        ledgers = await opened(client)
        for index in range(COUNT):
            disk_of(world, index).faults = DiskFaults(sync_s=1.0)
        adds = [
            client.add(
                1 + number,
                number // COUNT,
                b"body",
                ledger=ledgers[number % COUNT],
                wants_received=number < 20,
            )
            for number in range(30)
        ]
        await client.send_at_once(*adds)

        answers = [await client.receive()]
        while answers[-1] != AddsSynced(30):
            answers.append(await client.receive())

    received = [each for each in answers if isinstance(each, AddsReceived)]
    assert received[-1] == AddsReceived(20)
    assert len(received) <= 2
    assert answers.index(received[-1]) < answers.index(AddsSynced(30))
    assert isinstance(answers[0], AddsReceived)


async def test_a_refused_add_is_not_acknowledged_as_received(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        (ledger, *_) = await opened(client)
        await client.send_at_once(
            client.add(1, 0, b"zero", ledger=ledger, wants_received=True),
            client.add(2, 0, b"other", ledger=ledger, wants_received=True),
        )

        answers = [await client.receive() for _ in range(3)]

    assert isinstance(answers[0], AddRefused)
    assert answers[1:] == [AddsReceived(1), AddsSynced(1)]


async def test_a_failed_sync_of_one_disk_ends_the_node(
    autojump_clock: MockClock, world: World
) -> None:
    async def add_over_a_failure() -> None:
        async with world.node(NODE_1) as node, world.client(node) as client:
            ledgers = await opened(client)
            disk = disk_of(world, 1)
            disk.faults = DiskFaults(sync_failing=disk.syncs_count + 1)
            await client.send(client.add(1, 0, b"zero", ledger=ledgers[1]))
            await client.receive()

    with pytest.raises(DiskFailedError, match="Input/output error"):
        await add_over_a_failure()


async def test_a_full_directory_takes_nothing_and_the_others_go_on(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        ledgers = await opened(client)
        disk_of(world, 1).capacity_bytes = 10_000
        await trio.sleep(2 * NODE_1.free_check_s)

        await client.send(client.add(1, 0, b"zero", ledger=ledgers[1]))
        assert (await client.receive_one(AddRefused)).reason is Reason.READ_ONLY
        await client.send(client.add(2, 0, b"zero", ledger=ledgers[0]))
        assert await client.receive_one(AddsSynced) == AddsSynced(2)
        status = json.loads(node.status())
        assert [each["is_read_only"] for each in status["directories"]] == [False, True, False]
        async with world.store.open_session() as metadata:
            (live,) = await list_live_nodes(metadata, "default")
        assert not live.is_writable, "no new ledger is placed here"

        disk_of(world, 1).capacity_bytes = 1 << 40
        await trio.sleep(2 * NODE_1.free_check_s)
        await client.send(client.add(3, 0, b"zero", ledger=ledgers[1]))
        assert await client.receive_one(AddsSynced) == AddsSynced(3)


async def test_fences_and_adds_of_all_directories_outlive_power_loss(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        ledgers = await opened(client)
        for ordinal, ledger in enumerate(ledgers, start=1):
            await client.send(client.add(ordinal, 0, b"zero", ledger=ledger))
        while (await client.receive_one(AddsSynced)).through < COUNT:
            pass
        for ledger in ledgers:
            await client.send(attrs.evolve(client.fence(5), ledger=ledger))
            await client.receive_one(Fenced)
        after_power_loss: list[Disk] = [disk_of(world, at).crash() for at in range(COUNT)]
        world.node_session.cut_off()
    world.disks = after_power_loss

    async with world.node(NODE_1) as node, world.client(node) as client:
        for ordinal, ledger in enumerate(ledgers, start=1):
            await client.send(client.add(ordinal, 1, b"one", epoch=4, ledger=ledger))
            refused = await client.receive_one(AddRefused)
            assert (refused.reason, refused.epoch_highest) == (Reason.FENCED, 5)
            await client.send(client.reading(0, 1, ledger=ledger))
            answer = await client.receive_one(ReadAnswer)
            assert answer.entries == (EntryAnswer(Answer.HAVE, b"zero"),)


async def test_the_status_tells_of_each_directory(
    autojump_clock: MockClock, world: World
) -> None:
    async with world.node(NODE_1) as node, world.client(node) as client:
        await opened(client)

        status = json.loads(node.status())

        assert [each["name"] for each in status["directories"]] == [
            "/disk-1",
            "/disk-2",
            "/disk-3",
        ]
        assert [each["ledgers_count"] for each in status["directories"]] == [1, 1, 1]
        assert all(each["free_bytes"] > 0 for each in status["directories"])
        assert status["ledgers_count"] == COUNT
        assert not status["is_any_in_doubt"]
