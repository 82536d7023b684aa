"""One seed, one history: draw a world, let faults strike and stop, and judge by the laws."""

from collections.abc import Callable
from functools import partial

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.metadata.paths import ClusterPaths
from sim.fakes.memory_disk import DISK_BYTES
from sim.histories.judging import Breaches, Judging
from sim.laws.history.all_laws import Violation
from sim.laws.state.all_laws import StateLaws
from sim.laws.state.law_18_mirrors_are_prefixes import mirrors_behind, mirrors_uncut
from sim.laws.state.seen import Looking
from sim.scheduling import EndlessMomentError, run_seeded
from sim.world.apps.workload import Workload
from sim.world.calls import Calls
from sim.world.chance import chance
from sim.world.draws.drawing import options_of_seed
from sim.world.draws.named_worlds import options_of_world
from sim.world.endings import words_of_crash
from sim.world.exchange import Exchange
from sim.world.faults.all_faults import FAULTS, strike_for_ever
from sim.world.history import History
from sim.world.options import Options
from sim.world.process import Life, Process
from sim.world.seams import CLUSTER
from sim.world.trace import Trace
from sim.world.truth import Truth
from sim.world.waiting import clients, movers, proxies, relays, run_client, wait_end
from sim.world.wiped_target import WipedTarget
from sim.world.world import World, open_world

_FOUNDING_S = 30.0
_OPERATORS_S = 120.0
_RETRY_S = 0.25

_LINK_S = 30.0
"""The time in which a bridge notices that nothing moves, dials again, and sends the rest."""

_UPKEEP_S = 25.0
"""Longer than hasty nodes wait before they delete garbage; by now there is some."""

_NODES_S = 5.0
"""Longer than a node takes to be found again after its session was lost as calm began, and than
a full node takes to notice that its disk has room again."""

_BY_QUEUE_CHANCE = 0.5
"""Share of histories in which the operator repairs only the ledgers in the queue."""

_METADATA_STEPS = 40
"""The most metadata operations, one after the other, of a restart and a takeover."""


@attrs.frozen(kw_only=True)
class SimReport:
    """The result of one seed."""

    seed: int
    trace_hash: str
    simulated_s: float
    steps: int
    """Task steps: how often a task ran until it waited again."""
    events: int
    """Number of lines of the trace."""
    acknowledged: int
    reads: int
    faults: dict[str, int]
    """How often each kind of fault struck."""
    sometimes: list[str]
    """The names in `sim.laws.sometimes` that this history has seen, and its kinds of events."""
    violations: list[Violation]


def run_seed(
    seed: int,
    *,
    world: str | None = None,
    options: Options | None = None,
    write_line: Callable[[str], None] | None = None,
    replay: str = "",
    ends_at_breach: bool = False,
) -> SimReport:
    """Run the history of a seed, with its own options unless others are given.

    `world` names a kind of worlds, of `WORLDS`, among which the seed draws its options.
    `replay` is the command that runs it again; not needed with the seed's own options.
    With `ends_at_breach`, nothing happens after the first broken law.
    """
    if options is None and world is not None:
        options = options_of_world(world, seed, tuple(FAULTS))
        replay = f"geolog sim replay --world {world} --seed {seed}"
    elif options is None:
        options = options_of_seed(seed, tuple(FAULTS))
        replay = replay or f"geolog sim replay --seed {seed}"
    trace = Trace(write_line)
    replay = replay or f"seed {seed}, with the options it was given"
    run = _Run(seed, options, trace, replay, ends_at_breach=ends_at_breach)
    try:
        with trace.taking_logs():
            run_seeded(run.run, seed=seed)
    except* EndlessMomentError as group:
        run.breaches.add("stuck", str(group.exceptions[0]))
    except* Exception as group:  # noqa: BLE001 - reported as a crash, under its seed.
        run.breaches.add("crash", f"the world itself: {words_of_crash(group)}")
    return run.report()


class _Run:
    """One run. It always ends with a report."""

    def __init__(
        self, seed: int, options: Options, trace: Trace, replay: str, *, ends_at_breach: bool
    ) -> None:
        self.seed = seed
        self.options = options
        self.trace = trace
        self.breaches = Breaches(replay, trace)
        self._ends_at_breach = ends_at_breach
        self.history = History()
        self.history.may_forget_writers = options.stream.may_forget_writers
        self.history.may_evict = options.knobs.may_evict
        self.history.stops_when_isolated = options.knobs.stops_when_isolated
        self.faults: dict[str, int] = {}
        self.sometimes: set[str] = set()
        self.simulated_s = 0.0
        self.steps = 0

    def report(self) -> SimReport:
        return SimReport(
            seed=self.seed,
            trace_hash=self.trace.hash,
            simulated_s=round(self.simulated_s, 6),
            steps=self.steps,
            events=self.trace.events_count,
            acknowledged=len(self.history.acknowledged()),
            reads=len(self.history.reads),
            faults=self.faults,
            sometimes=sorted(self.sometimes | set(self.trace.counts)),
            violations=self.breaches.violations,
        )

    async def run(self) -> None:
        begun_s = trio.current_time()
        for name, drawn in attrs.asdict(self.options).items():
            self.trace.add("-", "shape", f"{name} {drawn}")
        async with open_world(self.options, self.seed, self.trace) as world:
            try:
                async with open_background() as nursery:
                    laws = StateLaws(Looking(world, self.history), self.breaches.add)
                    self.sometimes = laws.sometimes.seen
                    nursery.start_soon(laws.watch, name="laws")
                    with trio.CancelScope() as life:
                        if self._ends_at_breach:
                            self.breaches.on_breach = partial(
                                life.cancel, reason="a law was broken"
                            )
                        await self._live_through(world)
            finally:
                self.simulated_s = trio.current_time() - begun_s
                self.steps = world.queue.steps_count

    async def _live_through(self, world: World) -> None:
        truth = Truth(world.store)
        self.history.is_left_behind = truth.is_left_behind
        self.history.forks_of = truth.forks_of
        self.history.home_regions = truth.home_regions
        workload = Workload(
            Calls(
                self.options.knobs,
                self.options.stream,
                self.history,
                self.trace,
                chance(self.seed, "workload"),
                truth.trim_of,
                truth.evicted_of,
                chance(self.seed, "repeats"),
                lambda: truth.home,
                truth.stream_now,
                relay_regions=self.options.relay_regions,
                is_proxied=self.options.shape.proxies_count > 0,
            ),
            self.options,
        )
        with trio.move_on_after(_FOUNDING_S) as founding:
            found = workload.tending.found(self.options)
            await run_client(world, "founder", found)
        if founding.cancelled_caught:
            self.breaches.add(
                "24", f"no stream could be created within {_FOUNDING_S:g} s of calm"
            )
            return
        self._phase("chaos")
        workload.start(world)
        await self._strike(world)
        self._phase("calm")
        self._heal(world)
        workload.calls.quiet.set()
        await self._await_operators(world)
        if self.options.knobs.failed_kept_s:
            await self._read_without_an_owner(world, workload)
        if self.options.knobs.is_region_exchanged:
            await self._exchange(world, workload)
        workload.calls.let_go.set()
        await self._converge(world, workload)
        if self.options.stream.cursor_readers:
            await self._read_by_cursor(world, workload)
        if self.options.knobs.is_target_wiped:
            await self._wipe_target(world)
        if world.relays:
            await self._await_mirrors(world)
        await _wait_nodes(world)
        if self.options.knobs.is_upkeep_hasty:
            await trio.sleep(_UPKEEP_S)
        self._phase("last read")
        judging = Judging(
            self.history,
            workload.reading,
            workload.short_lived,
            self.trace,
            self.breaches,
            chance(self.seed, "damaged twice"),
            self.options.knobs.is_damaged_twice,
            is_by_queue=chance(self.seed, "repair by queue").random() < _BY_QUEUE_CHANCE,
        )
        await judging.judge(world)

    def _phase(self, name: str) -> None:
        self.trace.add("-", "phase", name)

    async def _strike(self, world: World) -> None:
        hazards = self.options.hazards
        with trio.move_on_after(hazards.chaos_s):
            async with trio.open_nursery() as nursery:
                for kind, strikes_per_s in hazards.strikes_per_s:
                    rng = chance(self.seed, f"fault {kind}")
                    nursery.start_soon(
                        strike_for_ever, world, kind, strikes_per_s, rng, name=kind
                    )
                await trio.sleep(hazards.chaos_s)
        self.faults = dict(sorted(world.struck.items()))

    def _heal(self, world: World) -> None:
        """Remove what overlapping faults may have left behind."""
        world.links.is_calm = True
        for process in list(world.processes.values()):
            world.resume(process)
            if process.session is not None and process.life is Life.RUNNING:
                process.session.catch_up()
                process.session.lose_no_answer()
                process.session.restore()
        for host in sorted(world.nodes):
            for bay in world.nodes[host].bays:
                bay.disk.capacity_bytes = DISK_BYTES
            if host not in world.processes:
                world.restart(host)

    async def _await_operators(self, world: World) -> None:
        """Wait for operators to give up lost disks, for which no law sets a time."""
        with trio.move_on_after(_OPERATORS_S):
            while any(node.is_being_replaced for node in world.nodes.values()):  # noqa: ASYNC110
                await trio.sleep(_RETRY_S)
            return
        self.breaches.add("24", f"a lost disk was not replaced within {_OPERATORS_S:g} s")

    async def _read_without_an_owner(self, world: World, workload: Workload) -> None:
        """Law 24: recoveries end, though the last owner has failed and no other follows."""
        has_read = trio.Event()

        async def read(process: Process, log: geolog.Log) -> None:
            await workload.reading.read_once(process, log)
            has_read.set()

        process = world.start_client("late-reader", self.options.shape.regions[-1], read)
        grace_s = self._grace_s(world)
        with trio.move_on_after(grace_s):
            await has_read.wait()
            await process.ended.wait()
            return
        self.breaches.add("24", f"no read reached the end within {grace_s:g} s of calm")

    async def _read_by_cursor(self, world: World, workload: Workload) -> None:
        """Law 24: another reader of the cursor gets to the end."""
        grace_s = self._grace_s(world)
        with trio.move_on_after(grace_s):
            main = workload.cursor_reading.read_rest
            await run_client(world, "last-cursor", main)
            self.history.is_cursor_read = True
            return
        self.breaches.add("24", f"no reader of the cursor got to the end within {grace_s:g} s")

    async def _await_mirrors(self, world: World) -> None:
        """Law 24: links drain. Then the relays end, so that mirrors close their last ledgers.

        All that the home has now is durable in each mirror, and nothing else is in it, soon
        after a coordinator could be elected and a link that stood still was dialled again.
        """
        grace_s = self._grace_s(world) + _LINK_S
        with trio.move_on_after(grace_s):
            while True:
                now = Looking(world, self.history).look()
                behind = mirrors_behind(now) + mirrors_uncut(now)
                if not behind:
                    break
                await trio.sleep(_RETRY_S)
            world.end_relays()
            await wait_end(world, relays)
        for words in behind:
            self.breaches.add("24", f"{words} after {grace_s:g} s of calm")
        for host in relays(world):
            self.breaches.add("24", f"{host} has not left after {grace_s:g} s of calm")
        for place in world.relays.values():
            if place.met.mixed_count:
                self.breaches.add("crash", f"{place.host} has a bridge to another version")
            for relay in place.relays:
                if relay.bugs_count or (relay.ends is not None and relay.ends.bugs_count):
                    self.breaches.add("crash", f"a connection of {place.host} met a bug")

    async def _wipe_target(self, world: World) -> None:
        """Law 24: mirrors that lost everything begin again; `_await_mirrors` sees them grow."""
        breach = await WipedTarget(world, chance(self.seed, "wiped target")).breach()
        if breach is not None:
            self.breaches.add("24", breach)
        else:
            self.history.happened.add("target-wiped")

    async def _exchange(self, world: World, workload: Workload) -> None:
        """Law 24: a writer goes on with a node that joined from another region."""
        rng = chance(self.seed, "exchange")
        exchange = Exchange(world, workload.appending, rng, self._grace_s(world))
        breach = await exchange.breach()
        if breach is not None:
            self.breaches.add("24", breach)

    def _grace_s(self, world: World) -> float:
        metadata_s = _METADATA_STEPS * world.seams.metadata_round_trip_s_max
        return 2 * self.options.knobs.session_timeout_s + 5.0 + metadata_s

    async def _converge(self, world: World, workload: Workload) -> None:
        """Law 24: a new owner can append, and every waiting call is answered."""
        grace_s = self._grace_s(world)
        appended = trio.Event()

        async def prove(process: Process, log: geolog.Log) -> None:
            await workload.appending.append_once(process, log)
            appended.set()

        with trio.move_on_after(grace_s):
            await wait_end(world, movers)
            home, _ = workload.calls.home_of()
            is_moved = not self.options.knobs.has_one_home
            region = home if home and is_moved else self.options.writer_region(-1)
            world.start_client("prover", region, prove)
            await appended.wait()
            await wait_end(world, clients)
            await self._drain_proxies(world)
            return
        if not appended.is_set():
            self.breaches.add("24", f"no append succeeded within {grace_s:g} s of calm")
        for host in clients(world):
            self.breaches.add("24", f"{host} still waits after {grace_s:g} s of calm")

    async def _drain_proxies(self, world: World) -> None:
        """Law 24: proxies that drain end; and none of their sessions met a bug."""
        world.drain_proxies()
        await wait_end(world, proxies)
        for proxy in world.proxies.values():
            for endpoint in proxy.endpoints:
                if endpoint.bugs_count:
                    self.breaches.add("crash", f"a session of {proxy.host} met a bug")


async def _wait_nodes(world: World) -> None:
    """Wait until nodes are back and have noticed that their disks have room."""
    with trio.move_on_after(_NODES_S):
        while not all(_takes_copies(world, host) for host in world.nodes):  # noqa: ASYNC110
            await trio.sleep(_RETRY_S)


def _takes_copies(world: World, host: str) -> bool:
    """Whether a node answers, can be found, and has room."""
    core = world.cores.get(host)
    if core is None or core.service.is_read_only:
        return False
    return ClusterPaths(CLUSTER).node_live(core.instance) in world.store.tree.nodes
