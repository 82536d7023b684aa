"""One storage node on real files loses power, again and again, and is held to all its answers.

A history is a node from its first start on an empty disk: lives that end in the middle of
anything. Most end by power loss: what was not synced is there, or not, or torn. Some end by
SIGKILL: the page cache is kept, so the next life sees what is still not synced; it is asked for
that, and then the power is lost. At each start all promises are checked (`NodePromises`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import attrs
import trio

from geolog.metadata.memory import MemoryMetadata, MemoryStore, open_memory_store
from geolog.transport.seam import Address, ConnectionFailedError
from regions.storage.config import StorageConfig
from regions.storage.disk import Disk
from regions.storage.node import StorageNode, open_storage_node
from sim.drills.node_client import NodeClient, NodeGoneError
from sim.drills.node_promises import NodePromises
from sim.drills.verdict import Verdict
from sim.memory_transport import MemoryNetwork
from sim.recording_disk import (
    CutOffError,
    ProcessLife,
    RecordedDirectory,
    open_recording_disk,
)
from topology.errors import GeologError

HOST = "storage"
LOSSES_PER_HISTORY = 10
LIFE_S_MAX = 30.0
"""A life that takes longer hangs."""

_SYNC_S = 0.0002
_PROBLEMS_MAX = 20

WrapDisk = Callable[[Disk], Disk]
"""Puts something between the node and its disk: a planted fault, in a test of this drill."""


def _as_it_is(disk: Disk) -> Disk:
    return disk


@attrs.frozen(kw_only=True)
class PowerLossOptions:
    """How often, and with which chances."""

    loops: int = 500
    seed: int = 0


@attrs.define
class _Counts:
    """What happened in all histories."""

    power_losses: int = 0
    kills: int = 0
    starts: int = 0
    starts_cut: int = 0
    """The node was cut off before it answered anybody."""
    entries_promised: int = 0
    fences_promised: int = 0


async def power_loss(
    options: PowerLossOptions,
    directory: Path,
    tell: Callable[[str], None],
    *,
    wrap_disk: WrapDisk = _as_it_is,
) -> Verdict:
    """Run as many loops as asked for, over files in that directory."""
    counts, problems = _Counts(), list[str]()
    started_s = trio.current_time()
    history = 0
    while counts.power_losses < options.loops and len(problems) < _PROBLEMS_MAX:
        history += 1
        rng = Random(f"{options.seed}/{history}")
        losses = min(LOSSES_PER_HISTORY, options.loops - counts.power_losses)
        async with _open_history(directory / str(history), rng, counts, wrap_disk) as one:
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


@asynccontextmanager
async def _open_history(
    directory: Path, rng: Random, counts: _Counts, wrap_disk: WrapDisk
) -> "AsyncIterator[_History]":
    async with open_memory_store() as store:
        yield _History(directory, rng, store, counts, wrap_disk)


@attrs.define(eq=False)
class _Life:
    """One process: when it can be asked, and what ends it."""

    of_disks: ProcessLife
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    begun: trio.Event = attrs.field(factory=trio.Event)
    """It answers, or has ended before it did."""
    node: StorageNode | None = None


class _History:
    """A node, its disks as they are now, and what it has promised."""

    def __init__(
        self,
        directory: Path,
        rng: Random,
        store: MemoryStore,
        counts: _Counts,
        wrap_disk: WrapDisk,
    ) -> None:
        self.promises = NodePromises()
        self._directory = directory
        self._rng = rng
        self._store = store
        self._counts = counts
        self._wrap_disk = wrap_disk
        self._network = MemoryNetwork()
        self._client = NodeClient(self.promises, rng)
        self._disks = [
            RecordedDirectory(directory / f"0-{number}")
            for number in range(rng.choice((1, 1, 2)))
        ]
        self._losses_count = 0

    async def run(self, losses_count: int) -> None:
        """So many power losses, and a last look; ends early when a promise is broken."""
        for _ in range(losses_count):
            await self._live(self._drawn_life(), self._load)
            if self._rng.random() < 0.4:
                self._counts.kills += 1
                await self._live(self._drawn_life(), self._ask_again)
            self._lose_power()
            if self.promises.problems:
                return
        await self._live(ProcessLife(sync_s=_SYNC_S), self._look, is_killed=False)
        await self._live(ProcessLife(sync_s=_SYNC_S), self._look)
        self._counts.entries_promised += self.promises.entries_count
        self._counts.fences_promised += self.promises.fences_count

    def _drawn_life(self) -> ProcessLife:
        """It ends while it starts, or under load, or when the load is over."""
        cut_off_at = self._rng.choice(
            (None, self._rng.randint(1, 40), self._rng.randint(1, 300))
        )
        return ProcessLife(cut_off_at=cut_off_at, sync_s=_SYNC_S)

    def _lose_power(self) -> None:
        self._counts.power_losses += 1
        self._losses_count += 1
        self._disks = [
            each.after_power_loss(self._directory / f"{self._losses_count}-{number}", self._rng)
            for number, each in enumerate(self._disks)
        ]

    async def _load(self) -> None:
        """All promises are kept; then any requests, until the node is gone or it is enough."""
        await self._client.reopen()
        await self._client.check()
        is_slow = self._rng.random() < 0.3
        for _ in range(self._rng.randint(1, 120)):
            await self._client.act()
            if is_slow:
                await self._client.wait_all_answered()
        if self._rng.random() < 0.5:
            await self._client.wait_all_answered()

    async def _ask_again(self) -> None:
        """After a kill: what is answered now must be on disk, whatever was before."""
        await self._client.ask_again()
        if self._rng.random() < 0.3:
            await self._load()

    async def _look(self) -> None:
        await self._client.check()

    async def _live(
        self,
        of_disks: ProcessLife,
        act: Callable[[], Awaitable[None]],
        *,
        is_killed: bool = True,
    ) -> None:
        """Start the node, act as its client, end it; back when nothing of it runs."""
        life = _Life(of_disks)
        self._counts.starts += 1
        with trio.move_on_after(LIFE_S_MAX) as whole:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_node, life)
                await life.begun.wait()
                if life.node is None:
                    self._counts.starts_cut += 1
                else:
                    await self._act_at(life.node.address, act, nursery)
                if is_killed:
                    of_disks.cut_off()
                life.scope.cancel(reason="the life ends here")
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
            return  # It was cut off.

    async def _run_node(self, life: _Life) -> None:
        try:
            with life.scope:
                async with self._open_node(life.of_disks) as life.node:
                    life.begun.set()
                    await trio.sleep_forever()
        except* CutOffError:
            pass
        except* GeologError as group:
            self.promises.problems.append(f"the node ended: {group.exceptions[0]!r}")
        finally:
            life.begun.set()

    @asynccontextmanager
    async def _open_node(self, of_disks: ProcessLife) -> AsyncIterator[StorageNode]:
        config = StorageConfig(
            location="/here/rack-1",
            listen=Address(HOST, 7001),
            node_id="node",
            journal_file_bytes=1 << 20,
            mark_idle_s=0.001,
        )
        async with AsyncExitStack() as stack:
            disks = [
                self._wrap_disk(
                    await stack.enter_async_context(open_recording_disk(each, of_disks))
                )
                for each in self._disks
            ]
            metadata = await stack.enter_async_context(self._store.open_session())
            of_disks.on_cut_off = lambda: _end_session(metadata)
            stack.callback(of_disks.forget_who_asked)
            yield await stack.enter_async_context(
                open_storage_node(
                    config,
                    transport=self._network.transport(HOST),
                    disks=disks,
                    metadata=metadata,
                    random_bytes=self._rng.randbytes,
                )
            )


def _end_session(metadata: MemoryMetadata) -> None:
    """As of a dead process: the store is told nothing, and no request waits for an answer."""
    metadata.cut_off()
    metadata.leave()
