"""Ambushes strike at their moment, and leave nothing behind."""

from random import Random

import pytest
import trio

import geolog
from sim.fakes.memory_disk import MemoryDisk
from sim.world.calls import HAND_OVER
from sim.world.draws.base_options import BASE
from sim.world.faults.all_faults import strike_for_ever
from sim.world.faults.ambushes import AMBUSHES
from sim.world.faults.disks import replaced_disk
from sim.world.process import Life, Process
from sim.world.trace import Trace
from sim.world.world import World
from tests.sim.calm import REGIONS, STREAM, in_a_calm_world


@pytest.mark.parametrize("kind", sorted(AMBUSHES))
def test_an_ambush_strikes_at_its_moment_and_ends(kind: str) -> None:
    trace = Trace()

    async def append_for_ever(process: Process, log: geolog.Log) -> None:
        while True:
            try:
                async with log.open_writer(STREAM) as writer:
                    for number in range(10):
                        await writer.append(Random(number).randbytes(8000))
                        trace.add(process.host, "done", f"append {number}")
                        await trio.sleep(0.05)
            except geolog.GeologError:
                await trio.sleep(0.1)

    async def read_for_ever(process: Process, log: geolog.Log) -> None:
        while True:
            trace.add(process.host, "call", "read")
            async with log.open_reader(STREAM, start=geolog.LastRecords(20)) as reader:
                _ = [record async for record in reader]
            await trio.sleep(0.2)

    async def hand_over_for_ever(process: Process, _log: geolog.Log) -> None:
        while True:
            trace.add(process.host, "call", f"{HAND_OVER} 1")
            await trio.sleep(0.2)

    async def story(world: World) -> tuple[int, list[Life]]:
        for number in (1, 2):
            world.start_client(f"writer-{number}", REGIONS[number], append_for_ever)
        world.start_client("reader-1", REGIONS[0], read_for_ever)
        world.start_client("owner-1", REGIONS[0], hand_over_for_ever)
        if kind == "ambush-copy":
            await trio.sleep(2.0)
            with replaced_disk(world, Random(kind)):
                await trio.sleep(0.1)
        with trio.move_on_after(20.0):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(strike_for_ever, world, kind, 2.0, Random(kind))
                await trace.wait("fault-off")
                nursery.cancel_scope.cancel(reason="it has struck")
        await trio.sleep(2.0)
        return world.struck[kind], [world.processes[host].life for host in sorted(world.nodes)]

    struck_count, lives = in_a_calm_world(story, trace)

    assert struck_count
    assert lives == [Life.RUNNING] * len(BASE.shape.nodes_by_region)


def test_waiting_for_a_trace_event_returns_its_process_and_details() -> None:
    async def story(world: World) -> tuple[str, str]:
        waited: list[tuple[str, str]] = []

        async def wait() -> None:
            waited.append(await world.trace.wait("phase"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.0)
            world.trace.add("here", "phase", "first")
            world.trace.add("there", "phase", "second")
        return waited[0]

    assert in_a_calm_world(story) == ("here", "first")


async def test_a_killed_process_leaves_its_writes_but_no_later_syncs() -> None:
    disk = MemoryDisk()
    file = await disk.create("a")
    await disk.sync_directory()
    await file.write_synced(0, [b"synced"])
    await file.write(6, [b"written"])
    assert (disk.is_synced("a", 0, 6), disk.is_synced("a", 6, 1)) == (True, False)
    await disk.create("b")

    left = disk.handed_on()

    assert left.content("a") == b"syncedwritten"
    assert not left.is_synced("a", 6, 1)
    assert left.names == ("a", "b")
    assert not left.is_synced("b", 0, 0)
    assert left.crash().content("a") == b"synced"
    await (await left.open("a")).write_synced(13, [b"."])
    assert left.is_synced("a", 0, 14)
    assert not disk.is_synced("a", 6, 1)


async def test_a_sync_of_a_directory_takes_time_and_covers_what_came_before_it() -> None:
    disk = MemoryDisk()
    disk.faults.sync_s = 1.0
    await disk.create("before")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.sync_directory)
        await trio.sleep(0.5)
        await disk.create("meanwhile")
        assert disk.crash().names == ()

    assert disk.crash().names == ("before",)
    assert disk.names == ("before", "meanwhile")


async def test_the_later_of_two_directory_syncs_counts() -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as nursery:
        for name, sync_s in (("first", 1.0), ("second", 0.1)):
            await disk.create(name)
            disk.faults.sync_s = sync_s
            nursery.start_soon(disk.sync_directory)
            await trio.sleep(0.01)

    assert disk.crash().names == ("first", "second")
