"""The end of a history: the last read, repair, and the verdict of the laws."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

import attrs
import trio

import geolog
from geolog.admin.doubt import DoubtReport
from geolog.admin.verification import VerifyReport
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerState
from geolog.protocol.stream_state import StreamName
from sim.histories.damaged_twice import damage_twice
from sim.histories.rotten_copies import rotten_copies
from sim.laws.history.all_laws import Violation, breaches
from sim.laws.state.misnamed import misnamed
from sim.laws.state.seen import Looking
from sim.world.apps.operator import repair_all, repair_queued
from sim.world.apps.reading import Reading, found
from sim.world.apps.short_lived import BRIEF, ShortLived
from sim.world.calls import STREAM
from sim.world.damage_reports import not_reported
from sim.world.endings import words_of_crash
from sim.world.history import Ending, Found, History, Item, Missing, ReaderWalk
from sim.world.process import Process
from sim.world.trace import Trace
from sim.world.waiting import operators, run_client, wait_end
from sim.world.world import ClientMain, World

_LAST_READ_S = 60.0

_REPAIR_S = 600.0
"""All copies are read twice: over long links, nodes with little room take minutes for that."""

_TOLD_MAX = 5

_ALLOCATED = LedgerState.ALLOCATED.value


def _go_on() -> None:
    pass


@attrs.define(eq=False)
class Breaches:
    """Collects breaches as they are found."""

    replay: str
    """The command that replays the history."""
    trace: Trace
    violations: list[Violation] = attrs.field(factory=list)
    on_breach: Callable[[], None] = _go_on
    """Called after each breach."""

    def add(self, law: str, message: str) -> None:
        """Add the breach of a law."""
        if not self.trace.is_closed:
            self.trace.add("-", "violation", f"{law} {message}")
        self.violations.append(Violation(law, message, self.replay))
        self.on_breach()


@attrs.frozen(eq=False)
class Judging:
    """Reads everything once more, repairs, verifies, and reports breaches."""

    history: History
    reading: Reading
    short_lived: ShortLived
    trace: Trace
    breaches: Breaches
    rng: Random
    is_damaged_twice: bool
    """Whether to damage a file again after its damage was settled."""
    is_by_queue: bool
    """Whether the operator repairs only the ledgers in the queue, before and after
    verifying."""

    async def judge(self, world: World) -> None:
        """Judge within the time limit, or report the delay as a breach."""
        reads: list[ReaderWalk] = []
        reports: list[VerifyReport] = []

        async def read_last(process: Process, log: geolog.Log) -> None:
            last = self.reading.begin_last(process.region)
            await self.reading.read_to_end(log, last, follow=self.history.is_seal_asked)
            if any(isinstance(one, Missing) and one.is_local_only for one in last.items):
                self.history.happened.add("left-local-only")
            if self.history.lives.is_made:
                await self.short_lived.read_to_end(log, self.short_lived.begin_last())
            if self.reading.calls.knobs.failovers_rest_s_max is not None:
                await self._read_aside(world, log)
            reads.append(last)

        abroad: dict[str, list[Item]] = {}

        async def read_abroad(process: Process, log: geolog.Log) -> None:
            there = self.reading.begin_last(process.region)
            await self.reading.read_to_end(log, there)
            abroad[process.region] = there.items

        async def repair_last(_process: Process, log: geolog.Log) -> None:
            if self.is_by_queue:
                await self._repair_by_queue(log)
            else:
                await self._repair(world, log)
            reports.append(await log.verify_stream(STREAM, full_copies=True))
            if reports[0].is_good:
                for rotten in rotten_copies(Looking(world, self.history).look()):
                    self.breaches.add("15", rotten)

        with self._in_time("the last read", _LAST_READ_S):
            await wait_end(world, operators)
            await run_client(world, "closer", self._close_last)
            if self.history.lives.is_made:
                first = world.options.shape.regions[0]
                await run_client(world, "brief-closer", self._close_brief, region=first)
            await self._run(world, "the last read", read_last)
            calls = self.reading.calls
            if calls.knobs.failovers_rest_s_max is not None or calls.knobs.leaves_local_only:
                # Where homes are lost, the others must have been cut right. Records that stayed
                # in a region are still there.
                home, _ = calls.home_of()
                for region in (one for one in calls.relay_regions if one != home):
                    await self._run(world, "the last read", read_abroad, region=region)
        if reads:
            self.trace.add("-", "phase", "repair")
            with self._in_time("the repair of all", _REPAIR_S):
                await self._run(world, "the repair of all", repair_last)
            if self.is_damaged_twice:
                with self._in_time("the repair of what was damaged twice", _REPAIR_S):
                    await self._damage_twice(world)
        for process, error in world.surprises:
            self.breaches.add("crash", f"{process.key} ended with {words_of_crash(error)}")
        if reads:
            self._judge_history(reads[0], abroad)
        if reports and not reports[0].is_good:
            # Copies may be too few: a world may end with a node that is down.
            wrong = [*reports[0].problems, *reports[0].mirror_problems]
            for problem in [*wrong, *reports[0].silent_mirrors][:_TOLD_MAX]:
                self.breaches.add("2", problem)

    async def _read_aside(self, world: World, log: geolog.Log) -> None:
        """What regions keep aside, and what failovers told of it."""
        history = self.history
        history.failovers = await log.list_failovers(STREAM)
        for one in await log.list_divergences(STREAM):
            async with log.open_divergence(STREAM, one.name) as reader:
                kept = history.rests[one.name] = []
                gone = history.rests_elsewhere[one.name] = set()
                async for item in reader.items():
                    if isinstance(item, geolog.Record):
                        kept.append(found(item))
                    elif item.reason is geolog.GapReason.LOCAL_ONLY:
                        gone |= set(range(item.from_sequence or 0, item.to_sequence))
        upkeep = log.partition_opener.upkeep
        stream = await upkeep.catalog.read_latest(StreamName.parse(STREAM))
        ledgers: set[LedgerId] = set()
        for rest in await upkeep.catalog.kept_rests(stream):
            ledgers |= {one.record.ledger for one in await upkeep.partitions.segments.all(rest)}
        for words in misnamed(Looking(world, history).look(), ledgers):
            self.breaches.add("9", words)
        if history.left_behind():
            history.happened.add("left-behind")

    async def _close_last(self, _process: Process, log: geolog.Log) -> None:
        # A takeover closes the previous ledger: then all its copies are due.
        with suppress(geolog.SealedError):
            async with log.open_writer(STREAM):
                pass

    async def _close_brief(self, _process: Process, log: geolog.Log) -> None:
        async with log.open_writer(BRIEF):
            pass

    async def _damage_twice(self, world: World) -> None:
        async def repair_once(_process: Process, log: geolog.Log) -> None:
            await self._repair(world, log)

        async def ask_once(_process: Process, log: geolog.Log) -> None:
            await repair_all(log, is_deep=False)

        def on_damaged_again() -> None:
            self.history.happened.add("damaged-twice")

        await damage_twice(
            world,
            self.rng,
            repair=partial(self._run, world, "the repair of the damage", repair_once),
            ask_all=partial(self._run, world, "asking for all copies", ask_once),
            on_damaged_again=on_damaged_again,
        )

    async def _run(
        self, world: World, what: str, main: ClientMain, *, region: str | None = None
    ) -> None:
        host = "last" if region is None else f"last-{region}"
        process = await run_client(world, host, main, region=region)
        if process.error is not None:
            self.breaches.add("24", f"{what} failed: {process.error!r}")

    @contextmanager
    def _in_time(self, what: str, limit_s: float) -> Iterator[None]:
        with trio.move_on_after(limit_s) as scope:
            yield
        if scope.cancelled_caught and not self.breaches.violations:
            self.breaches.add("24", f"{what} took more than {limit_s:g} s")

    def _judge_history(self, last: ReaderWalk, abroad: dict[str, list[Item]]) -> None:
        self.history.put_aside()
        records = [item for item in last.items if isinstance(item, Found)]
        # Proxies live on, so their retention may trim while the last read is under way.
        ending = Ending(
            records,
            last.trims_ended,
            last.trims,
            abroad,
            [one for one in last.items if isinstance(one, Missing) and one.is_local_only],
            last.region,
        )
        for law, message in breaches(self.history, ending):
            self.breaches.add(law, message)

    async def _repair_by_queue(self, log: geolog.Log) -> None:
        """Laws 15 and 24: repair by the queue ends all doubt and all damage that was found."""
        doubts = (await repair_queued(log)).doubts
        await log.verify_stream(STREAM)
        done = await repair_queued(log)
        for ledger in done.ledgers:
            if ledger.state == LedgerState.CLOSED.value and not ledger.is_complete:
                why = "; ".join(f"{one.node_id}: {one.why}" for one in ledger.incomplete)
                self.breaches.add("15", f"ledger {ledger.ledger} is not repaired: {why}")
        self._judge_doubts([*doubts, *done.doubts])

    async def _repair(self, world: World, log: geolog.Log) -> None:
        """Laws 15 and 24: damage is reported, every copy comes back, and doubt ends."""
        repaired, doubts = await repair_all(log)
        for ledger in repaired:
            if not ledger.is_complete:
                why = "; ".join(f"{one.node_id}: {one.why}" for one in ledger.incomplete)
                self.breaches.add("15", f"ledger {ledger.ledger} is not repaired: {why}")
        damaged = [LedgerId(ledger.ledger) for ledger in repaired if ledger.damaged]
        for ledger_id in await not_reported(world, damaged):
            self.breaches.add("15", f"damaged ledger {ledger_id} is not in the repair queue")
        self._judge_doubts(doubts)

    def _judge_doubts(self, doubts: Sequence[DoubtReport]) -> None:
        for doubt in doubts:
            # A ledger allocated ahead holds nothing acknowledged; it expires.
            if not doubt.is_settled and _ALLOCATED not in doubt.why_not:
                self.breaches.add("24", f"{doubt.node_id} stays in doubt: {doubt.why_not}")
