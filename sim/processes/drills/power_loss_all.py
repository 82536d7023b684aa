"""All nodes of a cluster, and its writers, lose power at one moment; again and again.

The cluster is in this process, over real files: three regions of two nodes. The moment is in
the middle of some call of one node's disk, while it starts or under the load of two streams.
Then all nodes start on what is left, each stream is taken over by a writer, which recovers it,
and everything that was ever acknowledged is read back.
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
"""From the start of the nodes until each stream has a writer again and was read back."""

_LOAD_S_MAX = 0.5
_APPENDERS_COUNT = 8
_MOMENTS_MAX = 250
_SYNC_S = 0.0002
_START_OF_TIME_US = 1_700_000_000_000_000


@attrs.frozen(kw_only=True)
class AllNodesOptions:
    """How often, and with which chances."""

    loops: int = 20
    seed: int = 0


@attrs.define
class _Appended:
    """Records appended to one stream, and those answered OK."""

    values: set[bytes] = attrs.field(factory=set)
    acknowledged: list[Acknowledged] = attrs.field(factory=list)


@attrs.define(eq=False)
class _Client:
    """A process with a log, on a host of its own."""

    host: str
    metadata: MemoryMetadata | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_over: trio.Event = attrs.field(factory=trio.Event)


class _Power:
    """What nodes and clients run on."""

    def __init__(self, lives: list[NodeLife], network: MemoryNetwork) -> None:
        self._lives = lives
        self._network = network
        self.clients: list[_Client] = []
        self.is_lost = False

    def lose(self) -> None:
        """Everything stops where it is."""
        if self.is_lost:
            return
        self.is_lost = True
        for life in self._lives:
            life.kill()
        for client in self.clients:
            # It may still take its time to close what it had open: nobody hears of it.
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
    """Run as many loops as asked for, over files in that directory."""
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
    """One cluster through all its power losses."""

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
            RecordedNode(_config(region, number), world, directory / f"{region}-{number}", 1)
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
        """All loops, and a last look."""
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
        """All nodes start in random order, one of them to be cut off and all with it."""
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
        """Each stream gets a writer, and is read back."""
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
        """Do it on a host of its own, which loses power with the nodes."""
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
