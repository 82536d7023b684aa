"""The world: storage nodes and clients on one network, with one metadata store, clock and seed.

Nodes and clients run the code that servers and applications run; only the four seams of that
code are simulated. A killed process does not clean up. Its tasks are held for good, so none of
its code runs any more, and its disk and its metadata session stay as an abrupt end leaves them.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import trio

from geolog.catalog.partition_config import PartitionConfig
from geolog.client.connect import open_log
from geolog.client.log import Log, LogConfig
from geolog.client.proxied_log import open_proxied_log
from geolog.protocol.ids import InstanceId
from regions.proxy.proxy import open_write_proxy
from regions.storage.node import StorageNode, open_storage_node
from relay.server.relay import open_relay
from sim.fakes.memory_messages import MemoryMessages
from sim.fakes.memory_metadata import MemoryStore, open_memory_store
from sim.fakes.memory_transport import MemoryNetwork
from sim.scheduling import RunQueue, enter_process
from sim.world.begun_again import BegunAgain
from sim.world.chance import chance
from sim.world.endings import is_foreseen, words_of
from sim.world.machine_clock import MachineClock
from sim.world.network import WorldLinks
from sim.world.node import WorldNode, bays, storage_config
from sim.world.options import Options
from sim.world.own_hedge import hedge_of_world
from sim.world.process import Life, Process
from sim.world.proxy import WorldProxy
from sim.world.relay import WorldRelay
from sim.world.seams import CLUSTER, Seams
from sim.world.trace import Trace

_RESTART_S = 1.0
"""How long a supervisor waits before it restarts a process that ended with an error."""

ClientMain = Callable[[Process, Log], Awaitable[None]]
"""The main function of a client process: gets the process and its log."""


class World:
    """All parts of one simulation; made by `open_world`."""

    def __init__(
        self,
        options: Options,
        seed: int,
        store: MemoryStore,
        nursery: trio.Nursery,
        trace: Trace,
    ) -> None:
        self.options = options
        self.trace = trace
        self.store = store
        self.queue = RunQueue.install()
        self.links = WorldLinks(options.links, chance(seed, "links"), trace)
        self.network: MemoryNetwork = self.links.open_network(
            is_narrow=options.knobs.is_room_tight
        )
        self._disk_rng = chance(seed, "disks")
        self._metadata_rng = chance(seed, "metadata")
        self.seams = Seams(
            options,
            store,
            self.links,
            trace,
            disk_rng=self._disk_rng,
            metadata_rng=self._metadata_rng,
        )
        self.nodes: dict[str, WorldNode] = {}
        self.proxies: dict[str, WorldProxy] = {}
        self.relays: dict[str, WorldRelay] = {}
        self.processes: dict[str, Process] = {}
        """Live processes, by host."""
        self.cores: dict[str, StorageNode] = {}
        """Nodes that have finished starting, by host."""
        self.logs: dict[str, Log] = {}
        """The logs of client processes that are not over, by the process's key."""
        self.struck: Counter[str] = Counter()
        """How often each kind of fault struck."""
        self.harmable: list[str] = []
        """Hosts of nodes whose disks may be harmed or lost: fewer than an ack quorum, so every
        acknowledged record has an intact copy elsewhere."""
        self.harmed: set[InstanceId] = set()
        """Instances whose synced bytes were harmed: only these may break a promise."""
        self.wiped: set[str] = set()
        """Regions whose nodes have all lost their disks: their mirrors begin again."""
        self.begun_again = BegunAgain()
        """Mirrors that were begun again."""
        store.on_written = self.begun_again.on_written
        self.surprises: list[tuple[Process, Exception]] = []
        """Processes that ended with an error that no code expects."""
        self._machine_clocks: dict[str, MachineClock] = {}
        self._client_mains: dict[str, ClientMain] = {}
        self._incarnations: dict[str, int] = {}
        self._all: list[Process] = []
        self._seed = seed
        self._nursery = nursery
        self._identity_rng = chance(seed, "identities")
        self._log_config = LogConfig(
            partition=PartitionConfig(
                append_timeout_s=options.knobs.append_timeout_s,
                retention_every_s=options.stream.retention_every_s,
                better_ledger_s=options.knobs.member_away_s,
            )
        )

    def rng(self, purpose: str) -> Random:
        """A source of chance of this seed, for one purpose."""
        return chance(self._seed, purpose)

    def _clock_of(self, host: str) -> MachineClock:
        """The clocks of a host, by which it keeps leases."""
        if host not in self._machine_clocks:
            drift = self.options.knobs.clock_drift_max
            rng = chance(self._seed, f"clock of {host}")
            self._machine_clocks[host] = MachineClock(1 + rng.uniform(-drift, drift))
        return self._machine_clocks[host]

    def jump_lease_clocks(self, host: str, *, monotonic_s: float, boottime_s: float) -> None:
        """Have these clocks of a host tell a later time from now on."""
        self._clock_of(host).jump_ahead(monotonic_s=monotonic_s, boottime_s=boottime_s)

    # Starting processes.

    def add_node(self, node_id: str, location: str) -> None:
        """Add a place for a storage node, with empty disks, and start its process."""
        region = location.split("/")[1]
        disks = bays(self.options.knobs.disks_per_node)
        self.nodes[node_id] = WorldNode(node_id, location, region, disks)
        self.links.region_of[node_id] = region
        self.start_node(node_id)

    def start_node(self, node_id: str) -> Process:
        """Start a node's process on its current disks; it needs a while until it answers."""
        node = self.nodes[node_id]
        self.network.lighten(node_id)
        return self._start(node_id, node.region, lambda process: self._run_node(node, process))

    def start_client(
        self, host: str, region: str, main: ClientMain, *, is_restarted: bool = True
    ) -> Process:
        """Start a process that uses the log; it ends when `main` does."""
        self.links.region_of[host] = region
        self._client_mains[host] = main
        process = self._start(host, region, lambda process: self._run_client(process, main))
        process.is_restarted = is_restarted
        return process

    def add_proxy(self, host: str, region: str) -> None:
        """Add a place for a write proxy, and start its process."""
        self.links.region_of[host] = region
        self.proxies[host] = WorldProxy(host, region)
        self.start_proxy(host)

    def start_proxy(self, host: str) -> Process:
        """Start a proxy's process; it needs a while until it serves."""
        proxy = self.proxies[host]
        proxy.to_drain = trio.Event()
        return self._start(
            host, proxy.region, lambda process: self._run_proxy(proxy, process, proxy.to_drain)
        )

    def add_relay(self, host: str, region: str) -> None:
        """Add a place for a relay, and start its process, perhaps later."""
        self.links.region_of[host] = region
        self.relays[host] = WorldRelay(host, region)
        after_s = self.options.knobs.relays_after_s
        self._nursery.start_soon(self._restart_later, host, after_s, name="supervisor")

    def start_relay(self, host: str) -> Process:
        """Start a relay's process; it needs a while until it is a member of its group."""
        relay = self.relays[host]
        relay.to_leave = trio.Event()
        return self._start(
            host, relay.region, lambda process: self._run_relay(relay, process, relay.to_leave)
        )

    def restart(self, host: str) -> Process:
        """Restart the process of a host that has none."""
        if host in self.nodes:
            return self.start_node(host)
        if host in self.proxies:
            return self.start_proxy(host)
        if host in self.relays:
            return self.start_relay(host)
        return self.start_client(host, self.links.region_of[host], self._client_mains[host])

    def _start(
        self, host: str, region: str, body: Callable[[Process], Awaitable[None]]
    ) -> Process:
        assert host not in self.processes, f"{host} runs"
        self._incarnations[host] = self._incarnations.get(host, 0) + 1
        process = Process(host, region, self._incarnations[host])
        self.processes[host] = process
        self._all.append(process)
        self.trace.add(host, "start", str(process.incarnation))
        self._nursery.start_soon(self._live, process, body, name=process.key)
        return process

    # Ending processes.

    def kill(self, host: str, *, power_loss: bool = False) -> None:
        """End a process as SIGKILL does, or its machine as a power cut does."""
        process = self.processes.pop(host)
        self.cores.pop(host, None)
        if process.life is Life.RUNNING:
            self.queue.hold(process.key)
        process.life = Life.KILLED
        self.trace.add(host, "power-loss" if power_loss else "kill", process.key)
        if process.session is not None:
            process.session.cut_off(noticed_after_s=math.inf)
        self.network.vanish(host)
        if host in self.nodes:
            self._take_disks(self.nodes[host], power_loss=power_loss)
        if power_loss:
            self.network.darken(host)

    def pause(self, host: str) -> None:
        """Pause a process, as SIGSTOP does: to the others it falls silent."""
        process = self.processes[host]
        assert process.life is Life.RUNNING, f"{host} is {process.life.value}"
        process.life = Life.PAUSED
        self.trace.add(host, "pause", process.key)
        self.queue.hold(process.key)
        if self.options.knobs.are_pauses_sleep:
            self._clock_of(host).fall_asleep()
        if process.session is not None:
            process.session.cut_off(noticed_after_s=math.inf)

    def resume(self, process: Process, *, blind_s: float = 0.0) -> None:
        """Resume a paused process, if it is still there; it learns later what it missed."""
        if process.life is not Life.PAUSED:
            return
        process.life = Life.RUNNING
        self.trace.add(process.host, "resume", process.key)
        self._clock_of(process.host).wake()
        self.queue.release(process.key)
        learns_after_s = blind_s + self._metadata_rng.choice((0.0, 0.01, 0.3))
        self._nursery.start_soon(self._restore_session, process, learns_after_s)

    async def _restore_session(self, process: Process, after_s: float) -> None:
        await trio.sleep(after_s)
        if process.life is Life.RUNNING and process.session is not None:
            process.session.restore()

    def _take_disks(self, node: WorldNode, *, power_loss: bool) -> None:
        for bay in node.bays:
            left = bay.disk
            rng = self._disk_rng
            bay.disk = left.crash(keep_unsynced=rng) if power_loss else left.handed_on()

    # The life of a process.

    async def _live(self, process: Process, body: Callable[[Process], Awaitable[None]]) -> None:
        enter_process(process.key)
        try:
            with process.scope:
                await body(process)
        except Exception as error:  # noqa: BLE001 - a process ends here, whatever the error.
            process.error = error
        if process.is_alive and not self.trace.is_closed:
            self._on_end(process)

    def _on_end(self, process: Process) -> None:
        process.life = Life.ENDED
        del self.processes[process.host]
        self.cores.pop(process.host, None)
        node = self.nodes.get(process.host)
        is_refusal_due = node is not None and node.is_refusal_due
        self.trace.add(process.host, "end", words_of(process.error))
        if process.error and not is_refusal_due and not is_foreseen(process.error):
            self.surprises.append((process, process.error))
        if node is not None and node.is_being_replaced:
            node.give_up_disks_if_told(process.error)
        if process.host in self.nodes:
            # Writes that no sync confirmed may be there or not, above all after a failed sync.
            self._take_disks(self.nodes[process.host], power_loss=True)
        server = self.proxies.get(process.host) or self.relays.get(process.host)
        has_left = server is not None and server.is_wanted
        if process.is_restarted and (process.error is not None or has_left):
            self._nursery.start_soon(
                self._restart_later, process.host, _RESTART_S, name="supervisor"
            )
        process.ended.set()

    async def _restart_later(self, host: str, after_s: float) -> None:
        await trio.sleep(after_s)
        server = self.proxies.get(host) or self.relays.get(host)
        is_wanted = server is None or server.is_wanted
        if is_wanted and host not in self.processes and not self.trace.is_closed:
            self.restart(host)

    async def _run_node(self, node: WorldNode, process: Process) -> None:
        config = storage_config(node, self.options.knobs)
        disks = self.seams.open_disks(node, process)
        async with (
            self.seams.open_session(process) as metadata,
            open_storage_node(
                config,
                transport=self.network.transport(node.node_id),
                disks=disks,
                metadata=metadata,
                random_bytes=self._identity_rng.randbytes,
                now_us=lambda: self.seams.now_us(node.node_id),
            ) as core,
        ):
            if process.is_alive:
                self.cores[node.node_id] = core
                node.is_being_replaced = False
            await trio.sleep_forever()

    async def _run_client(self, process: Process, main: ClientMain) -> None:
        rng = chance(self._seed, process.key)
        async with (
            self.seams.open_session(process) as metadata,
            open_log(
                metadata=metadata,
                transport=self.network.transport(process.host),
                cluster=CLUSTER,
                region=process.region,
                who=process.key,
                rng=rng,
                config=self._log_config,
                now_us=lambda: self.seams.now_us(process.host),
                lease_clocks=self._clock_of(process.host).read,
                via="proxy" if self.proxies else "direct",
                hedge=hedge_of_world(self.options.knobs.hedge),
                messages=MemoryMessages(self.network.transport(process.host)),
            ) as log,
        ):
            self.logs[process.key] = log
            try:
                await main(process, log)
            finally:
                del self.logs[process.key]

    @asynccontextmanager
    async def open_proxied_log(self, process: Process) -> AsyncIterator[Log]:
        """A log of this process that knows the write proxies alone."""
        transport = self.network.transport(process.host)
        async with open_proxied_log(
            [proxy.address for proxy in self.proxies.values()],
            transport=transport,
            messages=MemoryMessages(transport),
            cluster=CLUSTER,
            region=process.region,
            rng=chance(self._seed, f"{process.key} by proxies"),
            now_us=lambda: self.seams.now_us(process.host),
        ) as log:
            yield log

    async def _run_proxy(
        self, proxy: WorldProxy, process: Process, to_drain: trio.Event
    ) -> None:
        transport = self.network.transport(proxy.host)
        async with (
            self.seams.open_session(process) as metadata,
            open_write_proxy(
                proxy.config(self.options.knobs),
                metadata=metadata,
                transport=transport,
                messages=MemoryMessages(transport),
                cluster=CLUSTER,
                rng=chance(self._seed, process.key),
                now_us=lambda: self.seams.now_us(proxy.host),
                lease_clocks=self._clock_of(proxy.host).read,
                log_config=self._log_config,
            ) as serving,
        ):
            proxy.endpoints.append(serving.endpoint)
            proxy.held = serving.held
            await to_drain.wait()

    async def _run_relay(
        self, relay: WorldRelay, process: Process, to_leave: trio.Event
    ) -> None:
        transport = self.network.transport(relay.host)
        async with AsyncExitStack() as stack:
            metadata = await stack.enter_async_context(self.seams.open_session(process))
            messages = stack.enter_context(relay.in_version(MemoryMessages(transport)))
            serving = await stack.enter_async_context(
                open_relay(
                    relay.config(self.options.knobs),
                    metadata=metadata,
                    transport=transport,
                    messages=messages,
                    cluster=CLUSTER,
                    rng=chance(self._seed, process.key),
                    now_us=lambda: self.seams.now_us(relay.host),
                    log_config=self._log_config,
                )
            )
            relay.relays.append(serving)
            await to_leave.wait()

    # Ending the world.

    def drain_proxies(self) -> None:
        """End all proxies in good order, for good."""
        for proxy in self.proxies.values():
            proxy.is_wanted = False
            proxy.to_drain.set()

    def end_relays(self) -> None:
        """End all relays in good order, for good."""
        for relay in self.relays.values():
            relay.is_wanted = False
            relay.to_leave.set()

    def end(self) -> None:
        """Close the trace and let all processes unwind; the history is over."""
        self.trace.close()
        for process in self._all:
            process.scope.cancel(reason="the world ends")
        self.queue.release_all()


@asynccontextmanager
async def open_world(options: Options, seed: int, trace: Trace) -> AsyncIterator[World]:
    """A world with its nodes started. Raises EndlessMomentError if time stands still in it."""
    async with open_memory_store() as store, trio.open_nursery() as nursery:
        world = World(options, seed, store, nursery, trace)
        watch = trio.CancelScope()
        nursery.start_soon(_watch_time, world.queue, watch)
        try:
            for region, count in options.shape.nodes_by_region:
                for number in range(1, count + 1):
                    world.add_node(f"{region}-{number}", f"/{region}/rack-{number}")
            harmable_count = options.shape.quorum.ack_quorum - 1
            rng = chance(seed, "harmable")
            world.harmable = sorted(rng.sample(sorted(world.nodes), harmable_count))
            yield world
        finally:
            world.end()
            watch.cancel(reason="the world ends")


async def _watch_time(queue: RunQueue, scope: trio.CancelScope) -> None:
    with scope:
        await queue.watch_time()
