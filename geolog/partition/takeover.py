"""Becoming the owner of a partition: take its epoch, then end what the one before left open.

Rules: PROTOCOL O2 and O13.
"""

import random
from collections.abc import Callable
from functools import partial

import attrs
import trio

from geolog.background import both
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_records import VersionedSegment
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.state_recovery import recovered_state
from geolog.protocol.ids import Sequence
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from topology.errors import DamagedBytesError, DataLostError

_GIVE_BACK_S = 2.0
"""How long a takeover that fails waits for metadata; it goes on in the background."""


@attrs.frozen
class TakenOver:
    """The new owner, and where its partition goes on."""

    owner: VersionedOwner
    state: PartitionState
    first_sequence: int
    """Before it all was trimmed then."""


@attrs.frozen(kw_only=True)
class Takeover:
    """Ends what an owner of a partition left open, and tells what its log says."""

    partitions: PartitionMetadata
    owners: ShownOwners
    ledgers: LedgerMetadata
    pool: NodePool
    region: str | None
    rng: random.Random
    recovery: RecoveryConfig
    now_us: Callable[[], int]
    """What the clock of this host says."""
    progress: RecoveryProgress = attrs.field(factory=RecoveryProgress)
    """Of all recoveries of what others left open, and of what is read back of their logs."""

    async def take_over(self, name: PartitionName, who: str) -> TakenOver:
        """Own the partition, with every listed ledger CLOSED.

        FencedError if it was taken over in turn, SealedError, NoSuchStreamError. Whoever does
        not come to the end, for whatever reason, gives the partition back: as long as an owner
        is alive readers leave its open ledger to it.
        """
        # The steps may be taken in different sessions of metadata: reads of a process never go
        # back (`geolog.metadata.seam`). What was written to become the owner stands behind all
        # that the owners before wrote, so each later read sees that, and sees a ledger CLOSED
        # that was closed here; none of them needs to catch up.
        owner = await self.owners.take(name, who)
        try:
            state, trim = await both(
                partial(self.end_open_segment, name, owner),
                partial(self.partitions.trims.read, name),  # As of when it was taken, or later.
            )
            return TakenOver(owner, state, trim.first_sequence)
        except BaseException:
            # The owner is forgotten no sooner than metadata has it, however late that is.
            with trio.move_on_after(_GIVE_BACK_S, shield=True):
                await self.owners.release(owner)
            raise

    async def end_open_segment(
        self, name: PartitionName, owner: VersionedOwner
    ) -> PartitionState:
        """Close the ledger that may be open, store its segment's end: the partition's state.

        Only the last ledger of the list can be open: each is listed in the step that closes the
        one before it. FencedError if others own the partition now: they may have gone on, and
        trimmed what was the last.
        """
        try:
            return await self._end_listed(name, owner)
        except (DamagedBytesError, DataLostError, NoSuchLedgerError):
            why = await self.partitions.owners.why_deposed(name, owner.record)
            if why is not None:
                raise why from None
            raise

    async def _end_listed(self, name: PartitionName, owner: VersionedOwner) -> PartitionState:
        listed = await self._last_segment(name, owner)
        if listed is None:
            return PartitionState()
        last = listed.record
        closed = None if last.is_completed else await self._close(last)
        reader = LedgerReader(
            self.pool,
            region=self.region,
            rng=self.rng,
            config=LedgerReadConfig(),
            record_now=self.ledgers.record_certain,
        )
        state = await recovered_state(
            name,
            last=last,  # A later one is of whoever has fenced us meanwhile.
            segments=self.partitions.segments,
            ledgers=self.ledgers,
            reader=reader,
            progress=self.progress,
        )
        if closed is None:
            return _checked(name, last, state)
        assert closed.last_entry is not None
        if closed.last_entry < 0:
            _go_on_behind_nothing(state, last)
        if state.sequence_next < last.first_sequence:
            raise DamagedBytesError(
                f"{name}: its log ends before sequence {state.sequence_next}, its last segment"
                f" begins at {last.first_sequence}"
            )
        completed = last.completed(
            last_entry=closed.last_entry,
            last_sequence=Sequence(state.sequence_next - 1),
            last_append_time_us=state.append_time_us,
            completed_us=self.now_us(),
            last_transaction_id=state.transaction_id,
            size_bytes_through=state.size_bytes,
        )
        await self.partitions.changes.complete(
            name, owner, VersionedSegment(completed, listed.version)
        )
        return state

    async def _last_segment(
        self, name: PartitionName, owner: VersionedOwner
    ) -> VersionedSegment | None:
        """The last of the list: whoever lists one notes its number as the owner.

        Nothing needs to be caught up with: who has become the owner, or read that it is, sees
        what the owners before it wrote.
        """
        highest = owner.record.segment_highest
        if highest == 0:
            return None
        found = await self.partitions.segments.at(name, [highest])
        return found[0] if found else await self.partitions.segments.last(name)

    async def close_open_ledger(self, name: PartitionName) -> None:
        """Close the ledger that may be open: its writer is fenced."""
        listed = await self.partitions.segments.last(name)
        if listed is not None and not listed.record.is_completed:
            await self._close(listed.record)

    async def _close(self, segment: SegmentRecord) -> LedgerRecord:
        return await recover_ledger(
            segment.ledger,
            ledgers=self.ledgers,
            pool=self.pool,
            rng=self.rng,
            config=self.recovery,
            progress=self.progress,
        )


def _go_on_behind_nothing(state: PartitionState, empty: SegmentRecord) -> None:
    """What an empty segment's record says holds also where all before it is gone."""
    state.sequence_next = empty.first_sequence
    state.append_time_us = max(state.append_time_us, empty.append_time_us_before)
    if state.transaction_id is None:
        state.transaction_id = empty.transaction_id_before
    state.size_bytes = empty.size_bytes_before


def _checked(name: PartitionName, last: SegmentRecord, state: PartitionState) -> PartitionState:
    """The state, which must end where the list does."""
    assert last.last_sequence is not None
    if last.last_entry is not None and last.last_entry < 0:
        _go_on_behind_nothing(state, last)
    if state.sequence_next != last.last_sequence + 1:
        raise DamagedBytesError(
            f"{name}: its log ends before sequence {state.sequence_next}, its list of segments"
            f" before {last.last_sequence + 1}"
        )
    return state
