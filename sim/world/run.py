"""One seed, one history: a world is drawn, faults strike and stop, the laws judge it."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import attrs
import trio

import geolog
from geolog.background import open_background
from geolog.client.verification import VerifyReport
from geolog.protocol.ledger_state import LedgerState
from sim.laws.all_laws import StateLaws
from sim.laws.seen import Looking
from sim.memory_disk import DISK_BYTES
from sim.scheduling import EndlessMomentError, run_seeded
from sim.world.calls import STREAM, Calls
from sim.world.endings import words_of_crash
from sim.world.faults import FAULTS, strike_for_ever
from sim.world.history import Ending, Found, History, Read
from sim.world.history_laws import Violation, breaches
from sim.world.operator import OPERATOR, repair_all
from sim.world.options import Options, draw_options
from sim.world.process import Life, Process
from sim.world.trace import Trace
from sim.world.truth import Truth
from sim.world.workload import Workload
from sim.world.world import ClientMain, World, open_world

_FOUNDING_S = 30.0
_LAST_READ_S = 60.0
_OPERATORS_S = 120.0
_RETRY_S = 0.25
_TOLD_MAX = 5

_ALLOCATED = f"not closed yet, but {LedgerState.ALLOCATED.value}"

_METADATA_STEPS = 40
"""What a restart and a takeover ask of the metadata store, one after the other, at most."""


@attrs.frozen(kw_only=True)
class SimReport:
    """What came of one seed."""

    seed: int
    trace_hash: str
    simulated_s: float
    steps: int
    """Task steps: how often a task was run until it waited again."""
    events: int
    """Lines of the trace."""
    acknowledged: int
    reads: int
    faults: dict[str, int]
    """How often each kind of fault struck."""
    sometimes: list[str]
    """What this history has seen of `sim.laws.sometimes`, and the kinds of its events."""
    violations: list[Violation]


@attrs.define(eq=False)
class _Breaches:
    """Collects what is broken, as it is found."""

    seed: int
    trace: Trace
    violations: list[Violation] = attrs.field(factory=list)

    def add(self, law: str, message: str) -> None:
        if not self.trace.is_closed:
            self.trace.add("-", "violation", f"{law} {message}")
        replay = f"geolog sim replay --seed {self.seed}"
        self.violations.append(Violation(law, message, replay))


def run_seed(
    seed: int,
    *,
    options: Options | None = None,
    write_line: Callable[[str], None] | None = None,
) -> SimReport:
    """Run the history of a seed, in options other than its own if some are given."""
    if options is None:
        options = draw_options(Random(f"{seed}/options"), tuple(FAULTS))
    trace = Trace(write_line)
    run = _Run(seed, options, trace)
    try:
        with trace.taking_logs():
            run_seeded(run.run, seed=seed)
    except* EndlessMomentError as group:
        run.breaches.add("stuck", str(group.exceptions[0]))
    except* Exception as group:  # noqa: BLE001 - told as what it is, under its seed.
        run.breaches.add("crash", f"the world itself: {words_of_crash(group)}")
    return run.report()


class _Run:
    """One run. It ends with a report, whatever was broken."""

    def __init__(self, seed: int, options: Options, trace: Trace) -> None:
        self.seed = seed
        self.options = options
        self.trace = trace
        self.breaches = _Breaches(seed, trace)
        self.history = History()
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
                    await self._live_through(world)
            finally:
                self.simulated_s = trio.current_time() - begun_s
                self.steps = world.queue.steps_count

    async def _live_through(self, world: World) -> None:
        workload = Workload(
            Calls(
                self.options.knobs,
                self.options.stream,
                self.history,
                self.trace,
                world.chance(self.seed, "workload"),
                Truth(world.store).trim_of,
            )
        )
        with trio.move_on_after(_FOUNDING_S) as founding:
            await _run_client(world, "founder", self._found_stream)
        if founding.cancelled_caught:
            self.breaches.add("24", f"no stream could be made in {_FOUNDING_S:g} s of calm")
            return
        self._phase("chaos")
        workload.start(world)
        await self._strike(world)
        self._phase("calm")
        self._heal(world)
        workload.calls.quiet.set()
        await self._await_operators(world)
        await self._converge(world, workload)
        self._phase("last read")
        await self._judge(world, workload)

    async def _found_stream(self, process: Process, log: geolog.Log) -> None:
        quorum, stream = self.options.shape.quorum, self.options.stream
        self.history.partitions = stream.partitions, stream.partitions
        while True:
            try:
                await log.create_stream(
                    STREAM,
                    ensemble_size=quorum.ensemble_size,
                    write_quorum=quorum.write_quorum,
                    ack_quorum=quorum.ack_quorum,
                    min_regions=quorum.min_regions,
                    partitions=stream.partitions,
                    segment_bytes=self.options.knobs.segment_bytes,
                    segment_age_s=stream.segment_age_s,
                    retention_s=stream.retention_s,
                    retention_bytes=stream.retention_bytes,
                    if_not_exists=True,
                )
            except geolog.GeologError as error:
                self.trace.add(process.host, "failed", f"create-stream {error!r}")
                if not error.retriable:
                    raise
                await trio.sleep(_RETRY_S)
            else:
                return

    def _phase(self, name: str) -> None:
        self.trace.add("-", "phase", name)

    async def _strike(self, world: World) -> None:
        hazards = self.options.hazards
        with trio.move_on_after(hazards.chaos_s):
            async with trio.open_nursery() as nursery:
                for kind, strikes_per_s in hazards.strikes_per_s:
                    rng = world.chance(self.seed, f"fault {kind}")
                    nursery.start_soon(
                        strike_for_ever, world, kind, strikes_per_s, rng, name=kind
                    )
                await trio.sleep(hazards.chaos_s)
        self.faults = dict(sorted(world.struck.items()))

    def _heal(self, world: World) -> None:
        """Faults that overlapped may have left something behind: now all is well."""
        world.links.is_calm = True
        for process in list(world.processes.values()):
            world.resume(process)
            if process.session is not None and process.life is Life.RUNNING:
                process.session.catch_up()
                process.session.restore()
        for host in sorted(world.nodes):
            world.nodes[host].disk.capacity_bytes = DISK_BYTES
            if host not in world.processes:
                world.restart(host)

    async def _await_operators(self, world: World) -> None:
        """No law says how soon an operator gives a lost disk up: then its node can answer."""
        with trio.move_on_after(_OPERATORS_S):
            while any(node.is_being_replaced for node in world.nodes.values()):  # noqa: ASYNC110
                await trio.sleep(_RETRY_S)
            return
        self.breaches.add("24", f"a lost disk was not replaced within {_OPERATORS_S:g} s")

    async def _converge(self, world: World, workload: Workload) -> None:
        """Law 24: a new owner can append, and whoever waits is answered."""
        grace_s = 2 * self.options.knobs.session_timeout_s + 5.0
        grace_s += _METADATA_STEPS * world.seams.metadata_round_trip_s_max
        appended = trio.Event()

        async def prove(process: Process, log: geolog.Log) -> None:
            await workload.appending.append_once(process, log)
            appended.set()

        world.start_client("prover", self.options.shape.regions[-1], prove)
        with trio.move_on_after(grace_s):
            await appended.wait()
            await _wait_end(world, _clients)
            return
        if not appended.is_set():
            self.breaches.add("24", f"no append succeeded within {grace_s:g} s of calm")
        for host in _clients(world):
            self.breaches.add("24", f"{host} still waits after {grace_s:g} s of calm")

    async def _judge(self, world: World, workload: Workload) -> None:
        reports: list[VerifyReport] = []

        async def read_last(_process: Process, log: geolog.Log) -> None:
            await workload.reading.read_to_end(log, last, follow=self.history.is_seal_asked)
            self._phase("repair")
            await self._repair(log)
            reports.append(await log.verify_stream(STREAM, full_copies=True))

        async def close_last(_process: Process, log: geolog.Log) -> None:
            with suppress(geolog.SealedError):
                async with log.open_writer(STREAM):
                    pass  # Who takes over closes the ledger before: then all copies are due.

        with trio.move_on_after(_LAST_READ_S):
            await _run_client(world, "closer", close_last)
            await _wait_end(world, _operators)
            last = workload.reading.begin_last()
            process = await _run_client(world, "last", read_last)
            if process.error is not None:
                self.breaches.add("24", f"the last read failed: {process.error!r}")
        if not reports and not self.breaches.violations:
            self.breaches.add("24", f"the last read took more than {_LAST_READ_S:g} s")
        for process, error in world.surprises:
            self.breaches.add("crash", f"{process.key} ended by {words_of_crash(error)}")
        if reports:
            self._judge_history(last)
            for problem in [] if reports[0].is_good else reports[0].problems[:_TOLD_MAX]:
                self.breaches.add("2", problem)

    def _judge_history(self, last: Read) -> None:
        found = [item for item in last.items if isinstance(item, Found)]
        for law, message in breaches(self.history, Ending(found, last.trims_ended)):
            self.breaches.add(law, message)

    async def _repair(self, log: geolog.Log) -> None:
        """Laws 15 and 24: every copy that is missing or damaged comes back; doubt ends."""
        repaired, doubts = await repair_all(log)
        for ledger in repaired:
            if not ledger.is_complete:
                why = "; ".join(f"{one.node_id}: {one.why}" for one in ledger.incomplete)
                self.breaches.add("15", f"ledger {ledger.ledger} is not repaired: {why}")
        for doubt in doubts:
            # A ledger made ahead holds nothing that was answered; its day ends it.
            if not doubt.is_settled and _ALLOCATED not in doubt.why_not:
                self.breaches.add("24", f"{doubt.node_id} stays in doubt: {doubt.why_not}")


async def _run_client(world: World, host: str, main: ClientMain) -> Process:
    """A process that does one thing; returns when it has ended."""
    region = world.options.shape.regions[0]
    process = world.start_client(host, region, main, is_restarted=False)
    await process.ended.wait()
    return process


async def _wait_end(world: World, those: Callable[[World], list[str]]) -> None:
    while hosts := those(world):
        await world.processes[hosts[0]].ended.wait()


def _clients(world: World) -> list[str]:
    """Those that must end soon when all is well."""
    others = {*world.nodes, *_operators(world)}
    return [host for host in sorted(world.processes) if host not in others]


def _operators(world: World) -> list[str]:
    """Those that have bytes to copy."""
    return [host for host in sorted(world.processes) if host.startswith(OPERATOR)]
