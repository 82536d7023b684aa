"""Disks that are harmed or lost for good: the copies come back from the others."""

from random import Random

import trio

import geolog
from geolog.client.repair import RepairReport
from geolog.client.verification import VerifyReport
from regions.protocol.records import file_id_of
from sim.memory_disk import MemoryDisk
from sim.world.harm import harm_disk
from sim.world.operator import OPERATOR, repair_all, replacing
from sim.world.process import Process
from sim.world.world import World
from tests.sim.calm import STREAM, do, in_a_calm_world

NODE = "us-east-1"


async def append_some(_process: Process, log: geolog.Log) -> None:
    async with log.open_writer(STREAM) as writer:
        for number in range(20):
            await writer.append(b"%d" % number * 50)


async def repair_and_verify(world: World) -> tuple[list[RepairReport], VerifyReport]:
    found: list[tuple[list[RepairReport], VerifyReport]] = []

    async def look(_process: Process, log: geolog.Log) -> None:
        async with log.open_writer(STREAM):
            pass  # Who takes the stream over closes what was open.
        reports, _ = await repair_all(log)
        found.append((reports, await log.verify_stream(STREAM, full_copies=True)))

    await do(world, look)
    return found[0]


def test_only_files_that_another_followed_are_harmed() -> None:
    async def story(world: World) -> list[str]:
        await do(world, append_some)
        disk = world.nodes[NODE].disk
        before = {name: disk.content(name) for name in disk.names}
        assert harm_disk(disk, Random(1)) is None
        world.kill(NODE)
        world.restart(NODE)
        await trio.sleep(5.0)
        disk = world.nodes[NODE].disk
        assert harm_disk(disk, Random(1)) is not None
        for seed in range(50):
            harm_disk(disk, Random(seed))  # In the end there is nothing left to harm.
        newest = max(name for name in disk.names if file_id_of(name) is not None)
        assert newest not in before
        return [name for name in before if disk.content(name) != before[name]]

    assert len(in_a_calm_world(story)) >= 1


def test_what_rots_at_one_node_is_repaired_from_the_others() -> None:
    async def story(world: World) -> tuple[int, bool]:
        await do(world, append_some)
        world.kill(NODE)
        world.restart(NODE)
        await trio.sleep(5.0)
        rng = Random(7)
        for _ in range(30):
            harm_disk(world.nodes[NODE].disk, rng)
        reports, verified = await repair_and_verify(world)
        assert all(report.is_complete for report in reports)
        return sum(report.copies_stored for report in reports), verified.is_good

    copies_stored, is_good = in_a_calm_world(story)

    assert copies_stored
    assert is_good


def test_a_lost_disk_is_refused_until_an_operator_gives_it_up_and_then_filled_again() -> None:
    async def story(world: World) -> tuple[int, bool]:
        await do(world, append_some)
        node = world.nodes[NODE]
        world.kill(NODE, power_loss=True)
        node.disk, node.is_being_replaced = MemoryDisk(), True
        world.restart(NODE)
        await trio.sleep(10.0)
        assert NODE not in world.cores
        await do(world, replacing(world, NODE), OPERATOR + NODE)
        assert NODE in world.cores
        assert not node.is_being_replaced
        reports, verified = await repair_and_verify(world)
        return sum(len(report.incomplete) for report in reports), verified.is_good

    assert in_a_calm_world(story) == (0, True)
