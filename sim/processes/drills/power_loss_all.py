"""Cuts the power of all nodes and writers of a cluster at one moment, repeatedly.

The cluster runs in this process on real files: three regions of two nodes. The cut falls into a
call to one node's disk, during start-up or under the load of two streams. Then all nodes start
on the remaining data, a new writer takes over and recovers each stream, and everything ever
acknowledged is read back.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import attrs
import trio

from geolog.background import open_background
from geolog.client.connect import open_log
from geolog.client.log import Log
from geolog.client.writing.writer import Writer
from geolog.transport.seam import Address
from regions.storage.config import StorageConfig
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from sim.fakes.recorded_directory import RealDirectoryPlace
from sim.fakes.recorded_node import (
    NodeLife,
    NodeWorld,
    RecordedNode,
    WrapDisk,
    as_it_is,
    end_session,
)
from sim.processes.drills.verdict import Audit, Verdict, audit_stream
from sim.processes.drills.writer_process import Acknowledged
from topology.errors import GeologError

REGIONS = ("us-east", "eu-west", "ap-northeast")
NODES_PER_REGION = 2
STREAMS = ("drill/power-1", "drill/power-2")

RECOVERY_S_MAX = 30.0
"""Time limit from the start of the nodes until each stream has a writer and is read back."""

_LOAD_S_MAX = 0.5
_APPENDERS_COUNT = 8
_MOMENTS_MAX = 250
_SYNC_S = 0.0002
_START_OF_TIME_US = 1_700_000_000_000_000


@attrs.frozen(kw_only=True)
class AllNodesOptions:
    """Number of power losses, and the seed."""

    loops: int = 20
    seed: int = 0


@attrs.define
class _Appended:
    """The appended and the acknowledged records of one stream."""

    values: set[bytes] = attrs.field(factory=set)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)


@attrs.define(eq=False)
class _Client:
    """A process with a log, on its own host."""

    host: str
    metadata: MemoryMetadata | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)


class _Power:
    """The power supply of nodes and clients."""

    def __init__(self, lives: list[NodeLife], network: MemoryNetwork) -> None:
        self._lives = lives
        self._network = network
        self.clients: list[_Client] = []
        self.is_lost = False

    def lose(self) -> None:
        """Stop everything at once."""
        if self.is_lost:
            return
        self.is_lost = True
        for life in self._lives:
            life.kill()
        for client in self.clients:
            # The client may still take time to close its connections; nobody sees that.
            self._network.darken(client.host)
            if client.metadata is not None:
                end_session(client.metadata)
            client.scope.cancel(reason="no power")
            client.is_over.set()


_Act = Callable[[_Power], Awaitable[None]]
_ClientAct = Callable[[Log], Awaitable[object]]


async def power_loss_all(
    options: AllNodesOptions,
    directory: Path,
    tell: Callable[[str], None],
    *,
    wrap_disk: WrapDisk = as_it_is,
) -> Verdict:
    """Run `options.loops` loops over files in `directory`."""
    async with open_memory_store() as store:
        world = NodeWorld(
            store=store,
            network=MemoryNetwork(),
            rng=Random(options.seed),
            wrap_disk=wrap_disk,
        )
        async with open_background() as nursery:
            return await _AllNodes(options, directory, world, tell, nursery).run()


class _AllNodes:
    """One cluster across all its power losses."""

    def __init__(
        self,
        options: AllNodesOptions,
        directory: Path,
        world: NodeWorld,
        tell: Callable[[str], None],
        clients_nursery: trio.Nursery,
    ) -> None:
        self._clients_nursery = clients_nursery
        self._options = options
        self._world = world
        self._rng = world.rng
        self._tell = tell
        self._nodes = [
            RecordedNode(
                _config(region, number),
                world,
                [RealDirectoryPlace(directory / f"{region}-{number}", 0)],
            )
            for region in REGIONS
            for number in range(NODES_PER_REGION)
        ]
        self._appended = {stream: _Appended() for stream in STREAMS}
        self._hosts = count(1)
        self._problems: list[str] = []
        self._audits: list[Audit] = []
        self._recovery_s: list[float] = []
        self._losses_count = self._starts_cut_count = 0

    async def run(self) -> Verdict:
        """Run all loops and a final check."""
        await self._live(None, self._create_streams)
        for number in range(1, self._options.loops + 1):
            await self._live(self._rng.randint(1, _MOMENTS_MAX), self._recover_and_load)
            for node in self._nodes:
                node.lose_power()
            self._losses_count += 1
            if self._problems:
                break
            acknowledged = sum(len(each.acknowledged) for each in self._appended.values())
            self._tell(f"power loss {number}: {acknowledged:,} records acknowledged")
        await self._live(None, self._recover)
        last = self._audits[-len(STREAMS) :]
        return Verdict(
            drill="power-loss all nodes",
            passed=not self._problems,
            problems=self._problems,
            counts={
                "power_losses": self._losses_count,
                "starts_cut": self._starts_cut_count,
                "recoveries": len(self._recovery_s),
                "acknowledged": sum(each.acknowledged for each in last),
                "read": sum(each.read for each in last),
                "lost": sum(each.lost for each in self._audits),
                "unequal": sum(each.unequal for each in self._audits),
                "repeated": sum(each.repeated for each in self._audits),
            },
            figures={"recovery_s_max": max(self._recovery_s, default=0.0)},
            rounds=[],
            seed=self._options.seed,
        )

    async def _live(self, cut_off_at: int | None, act: _Act) -> None:
        """Start all nodes in random order; when the chosen one is cut off, all lose power."""
        order = self._rng.sample(self._nodes, len(self._nodes))
        lives = [NodeLife(sync_s=_SYNC_S) for _ in order]
        lives[0] = NodeLife(cut_off_at=cut_off_at, sync_s=_SYNC_S)
        power = _Power(lives, self._world.network)
        lives[0].of_disks.on_cut_off = power.lose
        async with trio.open_nursery() as nursery:
            for node, life in zip(order, lives, strict=True):
                nursery.start_soon(node.run, life)
            for life in lives:
                await life.begun.wait()
            if power.is_lost:
                self._starts_cut_count += 1
            else:
                await act(power)
            if cut_off_at is not None:
                power.lose()
            for life in lives:
                life.end()
        for node in self._nodes:
            self._problems += node.problems
            node.problems = []

    async def _create_streams(self, power: _Power) -> None:
        async with trio.open_nursery() as nursery:
            for stream in STREAMS:
                nursery.start_soon(
                    self._as_client,
                    power,
                    partial(Log.create_stream, name=stream, survive="1 region"),
                )

    async def _recover_and_load(self, power: _Power) -> None:
        await self._recover(power)
        with trio.move_on_after(_LOAD_S_MAX):
            async with trio.open_nursery() as nursery:
                for stream in STREAMS:
                    nursery.start_soon(
                        self._as_client, power, partial(self._load, stream=stream)
                    )

    async def _recover(self, power: _Power) -> None:
        """Open a writer on each stream, then read the stream back."""
        started_s = trio.current_time()
        with trio.move_on_after(RECOVERY_S_MAX) as scope:
            for stream in STREAMS:
                await self._as_client(power, partial(self._read_back, stream=stream))
        if scope.cancelled_caught:
            self._problems.append(f"recovery took more than {RECOVERY_S_MAX:.0f} s")
        if not power.is_lost:
            self._recovery_s.append(trio.current_time() - started_s)

    async def _read_back(self, log: Log, stream: str) -> None:
        appended = self._appended[stream]
        async with log.open_writer(stream) as writer:
            await self._append(writer, appended)
        audit = await audit_stream(log, stream, appended.acknowledged, appended.values)
        self._audits.append(audit)
        self._problems += [f"{stream}: {each}" for each in audit.problems]

    async def _load(self, log: Log, stream: str) -> None:
        async with log.open_writer(stream) as writer, trio.open_nursery() as nursery:
            for _ in range(_APPENDERS_COUNT):
                nursery.start_soon(self._append_always, writer, self._appended[stream])

    async def _append_always(self, writer: Writer, appended: _Appended) -> None:
        while True:
            await self._append(writer, appended)

    async def _append(self, writer: Writer, appended: _Appended) -> None:
        value = b"%d-" % len(appended.values) + self._rng.randbytes(self._rng.choice((9, 900)))
        appended.values.add(value)
        receipt = await writer.append(value)
        appended.acknowledged.append(Acknowledged(value, receipt.dlsn, receipt.sequence))

    async def _as_client(self, power: _Power, act: _ClientAct) -> None:
        """Run `act` on its own host, which loses power with the nodes."""
        if power.is_lost:
            return
        client = _Client(f"client-{next(self._hosts)}")
        power.clients.append(client)
        self._clients_nursery.start_soon(self._run_client, client, power, act)
        await client.is_over.wait()

    async def _run_client(self, client: _Client, power: _Power, act: _ClientAct) -> None:
        try:
            with client.scope:
                async with (
                    self._world.store.open_session() as client.metadata,
                    open_log(
                        metadata=client.metadata,
                        transport=self._world.network.transport(client.host),
                        cluster="default",
                        region=self._rng.choice(REGIONS),
                        who=client.host,
                        rng=Random(self._rng.getrandbits(64)),
                        now_us=_now_us,
                    ) as log,
                ):
                    await act(log)
        except* GeologError as group:
            if not power.is_lost:
                self._problems.append(f"{client.host}: {group.exceptions[0]!r}")
        finally:
            if not power.is_lost:
                power.clients.remove(client)
            client.is_over.set()


def _config(region: str, number: int) -> StorageConfig:
    node_id = f"{region}-{number}"
    return StorageConfig(
        location=f"/{region}/rack-{number}",
        listen=Address(node_id, 4000),
        node_id=node_id,
        journal_file_bytes=1 << 20,
        mark_idle_s=0.001,
    )


def _now_us() -> int:
    return _START_OF_TIME_US + int(trio.current_time() * 1_000_000)
