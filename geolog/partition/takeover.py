"""Becoming the owner of a partition: take its epoch, then close the predecessor's ledger.

`PartitionTakeover` decides; this shell asks metadata, recovers the ledger, and reads the log.

Rules: PROTOCOL H9 and H15.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import all_of, both
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_records import VersionedSegment
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.repair_queue import RepairReason
from geolog.partition.home_lease import LeaseTerms
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.state_recovery import recovered_row, recovered_state
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.partition_takeover import (
    AskWhyDeposed,
    ClaimPartition,
    CloseLedger,
    CompleteSegment,
    Effect,
    EndingStep,
    FailTakeover,
    FindLastSegment,
    GiveBack,
    PartitionTakeover,
    ReadSegment,
    ReadTrim,
    RecoverState,
)
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import DamagedBytesError, DataLostError


@attrs.frozen
class TakenOver:
    """The new owner, and the state from which it goes on."""

    owner: VersionedOwner
    state: PartitionState
    first_sequence: int
    """The trim at that time: records before it are gone."""


@attrs.define(eq=False)
class _Run:
    """One takeover, and the versions of what it read."""

    name: PartitionName
    who: str
    core: PartitionTakeover
    is_mirror: bool
    owner: VersionedOwner | None = None
    """None until the partition is claimed."""
    mirror_in: str | None = None
    """The region of a mirror that is to be claimed."""
    move_id: str = ""
    """Of the move of the home that takes it over."""
    lease_s: float | None = 0.0
    """Inside which the owner answers appends, as its record tells it."""
    last_version: int = 0
    """Version of the last segment's record."""

    @property
    def claimed(self) -> VersionedOwner:
        """The owner that this process became."""
        assert self.owner is not None, f"{self.name} is not claimed"
        return self.owner

    def noted(self, found: VersionedSegment | None) -> SegmentRecord | None:
        """The record of the segment found; its version is kept."""
        if found is None:
            return None
        self.last_version = found.version
        return found.record


@attrs.frozen(kw_only=True)
class Takeover:
    """Closes the ledger that an earlier owner left open, and recovers the partition's state."""

    partitions: PartitionMetadata
    owners: ShownOwners
    ledgers: LedgerMetadata
    replicas: Replicas
    region: str | None
    rng: random.Random
    recovery: RecoveryConfig
    now_us: Callable[[], int]
    """Wall-clock time of this host, not adjusted."""
    lease_terms: LeaseTerms | None = None
    """How owners of streams keep their lease that stop when their home is cut off."""
    progress: RecoveryProgress = attrs.field(factory=RecoveryProgress)
    """Counts what all recoveries, and all reading back of logs, have done."""

    async def take_over(
        self,
        name: PartitionName,
        who: str,
        *,
        mirror_in: str | None = None,
        move_id: str = "",
        lease_s: float | None = 0.0,
    ) -> TakenOver:
        """Own the partition, or its mirror in that region, with every listed ledger CLOSED.

        lease_s: the lease inside which appends will be answered; None: always. move_id: of the
        move of the home that takes the partition over. While that is a failover nobody else can
        take a mirror, and hears UnavailableError. The log at home it takes only while the move
        is under way, else HomeMoveConflictError. FencedError if another process took it over in
        turn, or if the mirror is at home by now. SealedError, NoSuchStreamError. If this fails
        for any reason, the partition is given back.
        """
        run = _Run(name, who, PartitionTakeover(name), mirror_in is not None)
        run.mirror_in, run.move_id, run.lease_s = mirror_in, move_id, lease_s
        try:
            await self._follow(run, run.core.begin())
        except BaseException:
            await self._follow(run, run.core.on_given_up())
            raise
        return TakenOver(run.claimed, run.core.state, run.core.first_sequence)

    async def end_open_segment(
        self, name: PartitionName, owner: VersionedOwner, *, is_mirror: bool = False
    ) -> PartitionState:
        """Close the ledger that may be open, store its segment's end, recover the state.

        FencedError if another process owns the partition.
        """
        run = _Run(name, owner.record.owner, PartitionTakeover(name), is_mirror, owner)
        await self._follow(run, run.core.end_open_segment(owner.record.segment_highest))
        return run.core.state

    async def close_open_ledger(self, name: PartitionName) -> None:
        """Close the ledger that may be open, to fence its writer before all is deleted."""
        listed = await self.partitions.segments.last(name)
        if listed is not None and not listed.record.is_completed:
            await self._close(listed.record.ledger, is_kept=False)

    async def _follow(self, run: _Run, effects: Sequence[Effect]) -> None:
        """Perform these, concurrently if they are several, and all that follows from them."""
        while len(effects) == 1:
            effects = await self._perform(run, effects[0])
        if effects:
            await all_of([partial(self._follow, run, [one]) for one in effects])

    async def _perform(self, run: _Run, effect: Effect) -> list[Effect]:
        core, name = run.core, run.name
        match effect:
            case ClaimPartition():
                homes, region = self.partitions.homes, run.mirror_in
                if region is None and run.move_id:
                    moves = self.partitions.home_moves
                    may_end = partial(moves.checks_to_end, name, run.move_id)
                    owner = await self.owners.take(name, run.who, find_checks=may_end)
                elif region is None:
                    taking = partial(self.owners.take, name, run.who, lease_s=run.lease_s)
                    owner, _ = await both(taking, partial(homes.look, name))
                else:
                    may_take = partial(
                        homes.checks_to_claim_mirror, name, region, move_id=run.move_id
                    )
                    owner = await self.owners.take(name, run.who, find_checks=may_take)
                run.owner = owner
                claimed = core.on_claimed(owner.record.segment_highest)
                if region is not None:
                    await self.partitions.trims.drop_noted(name, owner)
                return claimed
            case ReadTrim():
                return core.on_trim((await self.partitions.trims.read(name)).first_sequence)
            case AskWhyDeposed():
                why = await self.partitions.owners.why_deposed(name, run.claimed.record)
                return core.on_owner_known(effect, why)
            case FailTakeover(error):
                raise error
            case GiveBack(patience_s):
                # The owner is forgotten only once metadata has the release, however late.
                with trio.move_on_after(patience_s, shield=True):
                    await self.owners.release(run.claimed)
                return []
            case _:
                try:
                    return await self._end(run, effect)
                except (DamagedBytesError, DataLostError, NoSuchLedgerError) as error:
                    return core.on_log_broken(error)

    async def _end(self, run: _Run, step: EndingStep) -> list[Effect]:
        core, name = run.core, run.name
        match step:
            case ReadSegment(number):
                found = await self.partitions.segments.at(name, [number])
                return core.on_segment(run.noted(found[0] if found else None))
            case FindLastSegment():
                last = await self.partitions.segments.last(name)
                return core.on_last_segment(run.noted(last))
            case CloseLedger(ledger):
                return core.on_closed(await self._close(ledger))
            case RecoverState(last):
                state = await self._recovered_state(run, last)
                return core.on_state(state, now_us=self.now_us())
            case CompleteSegment(completed):
                stored = VersionedSegment(completed, run.last_version)
                await self.partitions.changes.complete(
                    name, run.claimed, stored, is_mirror=run.is_mirror
                )
                return []
            case _:
                assert_never(step)

    async def _close(self, ledger: LedgerId, *, is_kept: bool = True) -> EntryId:
        closed = await recover_ledger(
            ledger,
            ledgers=self.ledgers,
            replicas=self.replicas,
            rng=self.rng,
            config=self.recovery,
            progress=self.progress,
            is_kept=is_kept,
        )
        assert closed.last_entry is not None
        return closed.last_entry

    async def _recovered_state(self, run: _Run, last: SegmentRecord) -> PartitionState:
        if run.is_mirror:
            return await recovered_row(
                last, ledgers=self.ledgers, reader=self.reader(), progress=self.progress
            )
        return await recovered_state(
            run.name,
            last=last,  # A later one belongs to an owner that has fenced us meanwhile.
            segments=self.partitions.segments,
            ledgers=self.ledgers,
            reader=self.reader(),
            progress=self.progress,
        )

    def reader(self) -> LedgerReader:
        """A reader of the ledgers that a takeover looks back into."""
        return LedgerReader(
            self.replicas,
            rng=self.rng,
            config=LedgerReadConfig(),
            record_now=self.ledgers.record_certain,
            report_damaged=partial(self.ledgers.report_nowait, why=RepairReason.DAMAGED),
        )
