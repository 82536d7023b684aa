"""Disks that are harmed or lost for good: the other copies restore them."""

from random import Random

import trio

import geolog
from geolog.admin.repair import RepairReport
from geolog.admin.verification import VerifyReport
from regions.storage.protocol.records import (
    DATA_OFFSET,
    FileHeader,
    RecordCodec,
    RecordKind,
    file_id_of,
)
from regions.storage.protocol.scan import JournalWalk
from sim.fakes.memory_disk import MemoryDisk
from sim.world.apps.operator import OPERATOR, repair_all, replacing
from sim.world.faults.harm import harm_disk, harm_entry
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world

NODE = "us-east-1"


async def append_some(_process: Process, log: geolog.Log) -> None:
    async with log.open_writer(STREAM) as writer:
        for number in range(20):
            await writer.append(b"%d" % number * 50)


def last_synced_mark(disk: MemoryDisk, name: str) -> int:
    content = disk.content(name)
    header = FileHeader.decode(content[:DATA_OFFSET])
    walk = JournalWalk(RecordCodec(header.file_id, header.salt), 0, len(content))
    while (window := walk.window()) is not None:
        walk.take(window[0], content[window[0] : sum(window)])
    marks = [offset for offset, record in walk.records() if record.kind is RecordKind.MARK]
    return max(offset for offset in marks if disk.is_synced(name, offset, 1))


async def repair_and_verify(world: World) -> tuple[list[RepairReport], VerifyReport]:
    found: list[tuple[list[RepairReport], VerifyReport]] = []

    async def look(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM):
            pass  # A takeover closes the open ledger.
        reports, _ = await repair_all(log)
        found.append((reports, await log.verify_stream(STREAM, full_copies=True)))

    await do(world, look)
    return found[0]


def test_only_bytes_below_the_last_mark_of_the_newest_file_are_harmed() -> None:
    async def story(world: World) -> tuple[bool, bool]:
        await do(world, append_some)
        await trio.sleep(1.0)
        disk = world.nodes[NODE].bays[0].disk
        [name] = [one for one in disk.names if file_id_of(one) is not None]
        before = disk.content(name)
        last = last_synced_mark(disk, name)
        assert harm_disk(disk, Random(0)) is not None
        for seed in range(50):
            harm_disk(disk, Random(seed))  # In the end the file's own header is harmed.
        harmed = disk.content(name)
        return harmed[:last] != before[:last], harmed[last:] == before[last:]

    assert in_a_calm_world(story) == (True, True)


def test_the_end_of_a_ledger_is_harmed_where_a_node_has_it() -> None:
    async def story(world: World) -> tuple[str | None, int]:
        await do(world, append_some)
        world.kill(NODE)
        world.restart(NODE)
        await trio.sleep(5.0)
        [store] = world.cores[NODE].service.stores
        ledger = max(replica.ledger for replica in store.ledgers if replica.entry_highest >= 0)
        words = harm_entry(world.nodes[NODE].bays[0].disk, store, ledger, Random(1))
        return words, ledger

    words, ledger = in_a_calm_world(story)

    assert words is not None
    assert words.endswith(f"of {ledger}")


def test_rot_at_one_node_is_repaired_from_the_others() -> None:
    async def story(world: World) -> tuple[int, bool]:
        await do(world, append_some)
        world.kill(NODE)
        world.restart(NODE)
        await trio.sleep(5.0)
        rng = Random(7)
        for _ in range(30):
            harm_disk(world.nodes[NODE].bays[0].disk, rng)
        reports, verified = await repair_and_verify(world)
        assert all(report.is_complete for report in reports)
        return sum(report.copies_stored for report in reports), verified.is_good

    copies_stored, is_good = in_a_calm_world(story)

    assert copies_stored
    assert is_good


def test_a_lost_disk_is_refused_until_an_operator_gives_it_up_then_refilled() -> None:
    async def story(world: World) -> tuple[int, bool]:
        await do(world, append_some)
        node = world.nodes[NODE]
        world.kill(NODE, power_loss=True)
        node.bays[0].disk, node.is_being_replaced = MemoryDisk(), True
        world.restart(NODE)
        await trio.sleep(10.0)
        assert NODE not in world.cores
        await do(world, replacing(world, NODE), OPERATOR + NODE)
        assert NODE in world.cores
        assert not node.is_being_replaced
        reports, verified = await repair_and_verify(world)
        return sum(len(report.incomplete) for report in reports), verified.is_good

    assert in_a_calm_world(story) == (0, True)
