"""Recovers a ledger: takes it from its writer, fences it, agrees on its end, and closes it.

Any number of callers may recover a ledger at once. Each first takes the next epoch by
compare-and-set, so the latest wins and the others find out at their next step. `recovery_run`
does the work between fence and close.

Rules: PROTOCOL F2 and L4.
"""

import random
from contextlib import suppress

import trio

from geolog.background import open_background
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError, VersionedLedger
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.ledger.recovery.recovery_run import Recovered, RecoveryConfig, RecoveryRun
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import BadVersionError, NoNodeError, SessionLostError
from geolog.protocol.fencing import FenceRound, FenceTaken
from geolog.protocol.ids import NO_ENTRY, EntryId, LedgerId
from geolog.protocol.ledger_change import Judgement, LedgerChange
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.messages import Fenced
from topology.errors import (
    FencedError,
    GeologError,
    OutcomeUnknownError,
    UnavailableError,
)

__all__ = ["RecoveryConfig", "recover_ledger"]

_RIVALS_COUNTED_MAX = 5
"""Maximum doublings of the patience with rivals: up to 16 s with the default delay."""


async def recover_ledger(
    ledger: LedgerId,
    *,
    ledgers: LedgerMetadata,
    replicas: Replicas,
    rng: random.Random,
    config: RecoveryConfig,
    progress: RecoveryProgress | None = None,
    is_kept: bool = True,
) -> LedgerRecord:
    """Fence and close the ledger, or find it closed; the caller bounds the wait.

    Tries again while too few members answer. A recovery that a rival overtakes lets the rival
    finish, with more patience each time; otherwise many recoveries over slow links would keep
    ending each other. An ALLOCATED ledger is closed like an empty one, because none of its
    entries was ever acknowledged. `progress` is updated for each entry. NoSuchLedgerError, also
    if the ledger is deleted meanwhile.

    is_kept: False if the ledger is about to be deleted; then nobody need restore its copies.
    """
    progress = progress or RecoveryProgress()
    rivals_met_count = 0
    try:
        # A stale record does no harm: it is CLOSED for good, or the compare-and-set fails.
        read = await ledgers.read(ledger)
    except NoSuchLedgerError:
        read = await ledgers.read_latest(ledger)
    while True:
        if read.record.state is LedgerState.CLOSED:
            return read.record
        try:
            taken = await ledgers.replace(read, read.record.taken_over())
            closed = await _Round(taken, ledgers, replicas, rng, config, progress).run()
        except (BadVersionError, NoNodeError, FencedError):
            rivals_met_count = min(rivals_met_count + 1, _RIVALS_COUNTED_MAX)
            patience_s = config.retry_delay_s * rng.uniform(1, 2) * 2**rivals_met_count
            await _let_rival_finish(ledger, ledgers, patience_s)
        except GeologError as error:
            if not error.retriable:
                raise
            # Too few members answer, or metadata does not.
            await trio.sleep(config.retry_delay_s * rng.uniform(0.5, 1.5))
        else:
            if is_kept and closed.last_entry != NO_ENTRY:
                ledgers.report_nowait(ledger, RepairReason.RECOVERED)
            return closed
        read = await ledgers.read_latest(ledger)


async def _let_rival_finish(
    ledger: LedgerId, ledgers: LedgerMetadata, patience_s: float
) -> None:
    """Wait until the ledger is CLOSED, or has not changed for `patience_s`."""
    with suppress(UnavailableError, SessionLostError):
        while True:
            changed = trio.Event()
            found = await ledgers.read(ledger, changed=changed)
            if found.record.state is LedgerState.CLOSED:
                return
            with trio.move_on_after(patience_s):
                await changed.wait()
                continue
            return


class _Round:
    """One attempt at recovery, under one epoch."""

    def __init__(
        self,
        taken: VersionedLedger,
        ledgers: LedgerMetadata,
        replicas: Replicas,
        rng: random.Random,
        config: RecoveryConfig,
        progress: RecoveryProgress,
    ) -> None:
        self._progress = progress
        self._taken = taken
        self._record = taken.record
        self._fragment: Fragment = taken.record.fragments[-1]
        self._ledgers = ledgers
        self._replicas = replicas.within(config.member_timeout_s)
        self._rng = rng
        self._config = config

    async def run(self) -> LedgerRecord:
        lac = await self._fence()
        first = max(EntryId(lac + 1), self._fragment.first_entry)
        return await self._close(await self._recover_from(first))

    async def _close(self, recovered: Recovered) -> LedgerRecord:
        """Store the end and the fragments of this recovery, on top of others' changes."""
        change = LedgerChange(
            state=LedgerState.IN_RECOVERY,
            epoch=self._record.epoch,
            lasts=(self._fragment,),
            fragments=recovered.fragments,
            last_entry=recovered.last,
        )
        read = self._taken
        while True:
            try:
                return (await self._ledgers.replace(read, change.over(read.record))).record
            except (BadVersionError, NoNodeError, OutcomeUnknownError):
                read = await self._ledgers.read_latest(self._record.ledger)
                match change.judge(read.record):
                    case Judgement.STORED:
                        return read.record  # Only the answer was lost.
                    case Judgement.TAKEN:
                        raise

    async def _fence(self) -> EntryId:
        core = FenceRound(self._fragment.rule(self._record.quorum))
        taken: list[FenceTaken] = []
        whys: list[str] = []
        async with open_background() as nursery:
            tell, told = trio.open_memory_channel[tuple[int, Fenced | None]](64)

            async def ask(slot: int) -> None:
                answer = await self._fence_at(slot, whys)
                await tell.send((slot, answer))

            for slot in range(len(self._fragment.ensemble)):
                nursery.start_soon(ask, slot)
            for _ in self._fragment.ensemble:
                slot, answer = await told.receive()
                if answer is not None:
                    taken += core.on_fenced(slot, answer.lac)
                if taken:
                    return taken[0].lac
        raise UnavailableError(
            f"ledger {self._record.ledger} cannot be fenced: {'; '.join(whys)}"
        )

    async def _fence_at(self, slot: int, whys: list[str]) -> Fenced | None:
        record, member = self._record, self._fragment.ensemble[slot]
        try:
            return await self._replicas.fence(record.ledger, member.instance, record.epoch)
        except GeologError as error:
            whys.append(f"{member.node_id}: {error}")
            return None

    async def _recover_from(self, first: EntryId) -> Recovered:
        async with open_background() as nursery:
            run = RecoveryRun(
                self._record, self._replicas, self._rng, self._config, nursery, self._progress
            )
            try:
                return await run.run(first)
            finally:
                run.close()
