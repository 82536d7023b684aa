"""When all is over: the last read, repair, and what the laws say of the history."""

from contextlib import suppress

import attrs
import trio

import geolog
from geolog.client.reading.verification import VerifyReport
from geolog.protocol.ledger_state import LedgerState
from sim.world.calls import STREAM
from sim.world.endings import words_of_crash
from sim.world.history import Ending, Found, History, Read
from sim.world.history_laws import Violation, breaches
from sim.world.operator import repair_all
from sim.world.process import Process
from sim.world.reading import Reading
from sim.world.short_lived import BRIEF, ShortLived
from sim.world.trace import Trace
from sim.world.waiting import operators, run_client, wait_end
from sim.world.world import World

_LAST_READ_S = 60.0
_TOLD_MAX = 5

_ALLOCATED = f"not closed yet, but {LedgerState.ALLOCATED.value}"


@attrs.define(eq=False)
class Breaches:
    """Collects what is broken, as it is found."""

    seed: int
    trace: Trace
    violations: list[Violation] = attrs.field(factory=list)

    def add(self, law: str, message: str) -> None:
        """A law is broken."""
        if not self.trace.is_closed:
            self.trace.add("-", "violation", f"{law} {message}")
        replay = f"geolog sim replay --seed {self.seed}"
        self.violations.append(Violation(law, message, replay))


@attrs.frozen(eq=False)
class Judging:
    """Reads all once more, repairs, verifies, and tells what is broken."""

    history: History
    reading: Reading
    short_lived: ShortLived
    trace: Trace
    breaches: Breaches

    async def judge(self, world: World) -> None:
        """Come to an end within a minute, or tell that as a breach."""
        reports: list[VerifyReport] = []

        async def read_last(_process: Process, log: geolog.Log) -> None:
            await self.reading.read_to_end(log, last, follow=self.history.is_seal_asked)
            if self.history.lives.is_made:
                await self.short_lived.read_to_end(log, self.short_lived.begin_last())
            self.trace.add("-", "phase", "repair")
            await self._repair(log)
            reports.append(await log.verify_stream(STREAM, full_copies=True))

        async def close_last(_process: Process, log: geolog.Log) -> None:
            # Who takes over closes the ledger before: then all copies are due.
            with suppress(geolog.SealedError):
                async with log.open_writer(STREAM):
                    pass
            if self.history.lives.is_made:
                async with log.open_writer(BRIEF):
                    pass

        with trio.move_on_after(_LAST_READ_S):
            await wait_end(world, operators)
            await run_client(world, "closer", close_last)
            last = self.reading.begin_last()
            process = await run_client(world, "last", read_last)
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
