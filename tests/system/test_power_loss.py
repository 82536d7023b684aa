"""A node on real files keeps its promises after power loss; and the drill can fail."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import trio

from geolog.transport.seam import Address
from regions.storage import restart
from regions.storage.config import StorageConfig
from regions.storage.disk import Disk
from regions.storage.open_file import OpenFile
from regions.storage.protocol.records import (
    DATA_OFFSET,
    FileHeader,
    JournalRecord,
    RecordCodec,
    file_name,
    unfinished_name,
)
from sim.fakes.memory_metadata import open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from sim.fakes.recorded_directory import RealDirectoryPlace
from sim.fakes.recorded_node import NodeLife, NodeWorld, RecordedNode, WrapDisk
from sim.processes.drills.power_loss import PowerLossOptions, power_loss
from sim.processes.drills.power_loss_all import AllNodesOptions, power_loss_all
from tests.system.planted_disks import ForgetfulDirectory, NeverSyncedDisk

CONFIG = StorageConfig(location="/here/rack-1", listen=Address("storage", 7001), node_id="node")
LOOPS = 100
LOOPS_ALL = 6
LOOPS_TO_FIND_MAX = 1000
"""Each is found after about forty, sometimes a hundred: moments differ."""


def silent(_line: str) -> None:
    pass


@pytest.mark.long
async def test_a_nodes_answers_outlive_every_power_loss(tmp_path: Path) -> None:
    verdict = await power_loss(PowerLossOptions(loops=LOOPS), tmp_path, silent)

    assert verdict.problems == []
    assert verdict.counts["power_losses"] == LOOPS
    assert verdict.counts["kills"] > LOOPS / 5
    assert verdict.counts["starts_cut"] > LOOPS / 10
    assert verdict.counts["cut_at_seal"] > LOOPS / 50
    assert verdict.counts["entries_promised"] > LOOPS
    assert verdict.counts["fences_promised"] > LOOPS / 4


@pytest.mark.long
async def test_acknowledged_records_outlive_the_power_loss_of_all_nodes(
    tmp_path: Path,
) -> None:
    verdict = await power_loss_all(AllNodesOptions(loops=LOOPS_ALL), tmp_path, silent)

    assert verdict.problems == []
    assert verdict.counts["power_losses"] == LOOPS_ALL
    assert verdict.counts["recoveries"] > LOOPS_ALL / 3
    assert verdict.counts["acknowledged"] > LOOPS_ALL


async def test_damage_that_a_start_finds_is_a_problem_even_if_no_promise_is_broken(
    tmp_path: Path,
) -> None:
    async with open_memory_store() as store:
        world = NodeWorld(store=store, network=MemoryNetwork(), rng=Random(1))
        for _ in range(2):
            node = RecordedNode(CONFIG, world, [RealDirectoryPlace(tmp_path, 0)])
            await live(node)
            assert node.problems == []

        (tmp_path / "0-0" / file_name(1)).unlink()
        node = RecordedNode(CONFIG, world, [RealDirectoryPlace(tmp_path, 0)])
        await live(node)

    [problem] = node.problems
    assert problem.startswith("node found damage in ")


async def live(node: RecordedNode) -> None:
    life = NodeLife()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run, life)
        await life.begun.wait()
        life.end()


@pytest.mark.parametrize(
    "planted",
    [NeverSyncedDisk, ForgetfulDirectory],
    ids=["13: acknowledged before the sync", "15: no sync of the directory"],
)
async def test_a_disk_that_breaks_its_promise_is_found(
    tmp_path: Path, planted: WrapDisk
) -> None:
    verdict = await power_loss(
        PowerLossOptions(loops=LOOPS_TO_FIND_MAX), tmp_path, silent, wrap_disk=planted
    )

    assert not verdict.passed


@pytest.mark.long
async def test_a_node_that_serves_an_unsynced_tail_after_a_restart_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted bug 34: the tail that a kill left is served without a new sync."""
    monkeypatch.setattr(restart, "create_file", create_file_unsynced)

    verdict = await power_loss(PowerLossOptions(loops=LOOPS_TO_FIND_MAX), tmp_path, silent)

    assert not verdict.passed


async def create_file_unsynced(
    disk: Disk, header: FileHeader, records: Sequence[tuple[JournalRecord, bytes]] = ()
) -> OpenFile:
    codec = RecordCodec(header.file_id, header.salt)
    buffers, _, end = codec.pack_all(DATA_OFFSET, records)
    name = unfinished_name(header.file_id)
    unfinished = await disk.create(name)
    await unfinished.write_synced(0, [header.encode()])
    await unfinished.write(DATA_OFFSET, buffers)
    await unfinished.close()
    await disk.rename(name, file_name(header.file_id))
    await disk.sync_directory()
    return OpenFile(await disk.open(file_name(header.file_id)), codec, end)
