"""Cuts the power of one storage node repeatedly and checks all its answers.

A history follows a node from its first start on an empty disk, through lives that end at any
point. Most end by power loss: data that was not synced is there, missing or torn. Some end by
SIGKILL, several in a row: the page cache survives, so the next life sees data that is still not
synced. The drill asks for that data and then cuts the power. Each start checks all promises
(`NodePromises`), and none may find damage, because nothing was damaged.

The node runs on real files, with the threads and the timing of a real disk, or in memory, where
a seed repeats its history exactly under a mock clock.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import attrs
import trio

from geolog.transport.seam import Address, ConnectionFailedError
from regions.storage.config import StorageConfig
from sim.fakes.memory_disk import MemoryDisk
from sim.fakes.memory_metadata import open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from sim.fakes.recorded_directory import (
    DirectoryPlace,
    MemoryDirectoryPlace,
    RealDirectoryPlace,
)
from sim.fakes.recorded_node import NodeLife, NodeWorld, RecordedNode, WrapDisk, as_it_is
from sim.processes.drills.node_client import NodeClient, NodeGoneError
from sim.processes.drills.node_promises import NodePromises
from sim.processes.drills.verdict import Verdict

LOSSES_PER_HISTORY = 10
LIFE_S_MAX = 30.0
"""Time limit of a life; a longer one hangs."""

_SYNC_S = 0.0002
_SYNC_AT_SEAL_S = 0.005
_ACTS_TO_SEAL = 400
_MOMENTS_OF_SEAL = (1, 2, 3, 4, 4, 4, 5, 5, 5, 6)
"""Weighted towards the moments between the write of the table and its sync."""
_PROBLEMS_MAX = 20
_CONFIG = StorageConfig(
    location="/here/rack-1",
    listen=Address("storage", 7001),
    node_id="node",
    journal_file_bytes=1 << 20,
    mark_idle_s=0.001,
)


@attrs.frozen(kw_only=True)
class PowerLossOptions:
    """Number of power losses, their timing, and the seed."""

    loops: int = 500
    seed: int = 0
    at_seal_share: float = 0.2
    """Share of the lives that should end while a journal file is being sealed."""


@attrs.define
class _Counts:
    """Events of all histories."""

    power_losses: int = 0
    kills: int = 0
    starts: int = 0
    starts_cut: int = 0
    """Starts at which the node was cut off before it answered."""
    cut_at_seal: int = 0
    """Lives that ended while a journal file was being sealed."""
    entries_promised: int = 0
    fences_promised: int = 0


async def power_loss(
    options: PowerLossOptions,
    directory: Path | None,
    tell: Callable[[str], None],
    *,
    wrap_disk: WrapDisk = as_it_is,
) -> Verdict:
    """Run `options.loops` loops over files in `directory`, or in memory if that is None."""
    counts, problems = _Counts(), list[str]()
    started_s = trio.current_time()
    history = 0
    while counts.power_losses < options.loops and len(problems) < _PROBLEMS_MAX:
        history += 1
        rng = Random(f"{options.seed}/{history}")
        losses = min(LOSSES_PER_HISTORY, options.loops - counts.power_losses)
        async with open_memory_store() as store:
            world = NodeWorld(
                store=store, network=MemoryNetwork(), rng=rng, wrap_disk=wrap_disk
            )
            path = directory and directory / str(history)
            one = _History(path, world, counts, options)
            await one.run(losses)
        problems += [f"history {history}: {each}" for each in one.promises.problems]
        if history % 10 == 0:
            tell(f"{counts.power_losses:,} of {options.loops:,} power losses")
    took_s = trio.current_time() - started_s
    return Verdict(
        drill="power-loss",
        passed=not problems,
        problems=problems[:_PROBLEMS_MAX],
        counts=attrs.asdict(counts),
        figures={"took_s": took_s, "loop_s_mean": took_s / max(counts.power_losses, 1)},
        rounds=[],
        seed=options.seed,
    )


class _History:
    """One node and its promises."""

    def __init__(
        self,
        directory: Path | None,
        world: NodeWorld,
        counts: _Counts,
        options: PowerLossOptions,
    ) -> None:
        self.promises = NodePromises()
        self._counts = counts
        self._at_seal_share = options.at_seal_share
        self._rng = world.rng
        self._network = world.network
        self._client = NodeClient(self.promises, world.rng)
        self._life = NodeLife()
        places = _places(directory, world.rng.choice((1, 1, 2)))
        self._node = RecordedNode(_CONFIG, world, places)

    async def run(self, losses_count: int) -> None:
        """Run `losses_count` power losses and a final check; end early on a broken promise."""
        for _ in range(losses_count):
            await self._live(self._drawn_life(), self._load)
            is_at_seal = self._life.of_disks.is_cut_off_at_seal
            self._counts.cut_at_seal += is_at_seal
            is_killed = is_at_seal or self._rng.random() < 0.4
            while is_killed:
                self._counts.kills += 1
                await self._live(self._drawn_life(), self._ask_again)
                is_killed = self._rng.random() < 0.4
            self._node.lose_power()
            self._counts.power_losses += 1
            if self.promises.problems:
                return
        await self._live(NodeLife(sync_s=_SYNC_S), self._client.check, is_killed=False)
        await self._live(NodeLife(sync_s=_SYNC_S), self._client.check)
        self._counts.entries_promised += self.promises.entries_count
        self._counts.fences_promised += self.promises.fences_count

    def _drawn_life(self) -> NodeLife:
        """A life that ends during start-up, under load, or after the load."""
        cut_off_at = self._rng.choice(
            (None, self._rng.randint(1, 40), self._rng.randint(1, 300))
        )
        return NodeLife(cut_off_at=cut_off_at, sync_s=_SYNC_S)

    async def _load(self) -> None:
        """Check all promises, then send random requests until the node goes or they suffice."""
        await self._client.reopen()
        await self._client.check()
        is_slow = self._rng.random() < 0.3
        acts_count = self._rng.randint(1, 120)
        if self._rng.random() < self._at_seal_share:
            self._aim_at_seal()
            is_slow, acts_count = False, _ACTS_TO_SEAL
        for _ in range(acts_count):
            await self._client.act()
            if is_slow:
                await self._client.wait_all_answered()
        if self._rng.random() < 0.5:
            await self._client.wait_all_answered()

    def _aim_at_seal(self) -> None:
        """Have the life end at a seal, which is rare, with many promises in flight."""
        disks = self._life.of_disks
        disks.cut_off_at = None
        disks.cut_off_after_shortened = self._rng.choice(_MOMENTS_OF_SEAL)
        disks.sync_s = _SYNC_AT_SEAL_S

    async def _ask_again(self) -> None:
        """Ask for everything again after a kill: answers given now must be on disk."""
        await self._client.ask_again()
        if self._rng.random() < 0.3:
            await self._load()

    async def _live(
        self, life: NodeLife, act: Callable[[], Awaitable[None]], *, is_killed: bool = True
    ) -> None:
        """Start the node, act as its client, end it; return when none of its tasks runs."""
        self._life = life
        self._counts.starts += 1
        with trio.move_on_after(LIFE_S_MAX) as whole:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._node.run, life)
                await life.begun.wait()
                if life.node is None:
                    self._counts.starts_cut += 1
                else:
                    await self._act_at(life.node.address, act, nursery)
                if is_killed:
                    life.kill()
                life.end()
        self.promises.problems += self._node.problems
        self._node.problems = []
        if whole.cancelled_caught:
            self.promises.problems.append(f"a life took more than {LIFE_S_MAX:.0f} s")

    async def _act_at(
        self, address: Address, act: Callable[[], Awaitable[None]], nursery: trio.Nursery
    ) -> None:
        try:
            stream = await self._network.transport("client").connect(address)
            self._client.use(stream)
            nursery.start_soon(self._client.run)
            await self._client.wait_welcome()
            await act()
        except (NodeGoneError, ConnectionFailedError):
            return  # The node was cut off.


def _places(directory: Path | None, count: int) -> list[DirectoryPlace]:
    if directory is None:
        return [
            MemoryDirectoryPlace(MemoryDisk(name=f"disk {number}")) for number in range(count)
        ]
    return [RealDirectoryPlace(directory, number) for number in range(count)]
