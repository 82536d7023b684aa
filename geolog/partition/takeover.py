"""Becoming the owner of a partition: take its epoch, then close the predecessor's ledger.

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
"""How long a failed takeover waits to give back its claim; it goes on in the background."""


@attrs.frozen
class TakenOver:
    """The new owner, and the state from which it goes on."""

    owner: VersionedOwner
    state: PartitionState
    first_sequence: int
    """The trim at that time: records before it are gone."""


@attrs.frozen(kw_only=True)
class Takeover:
    """Closes the ledger that an earlier owner left open, and recovers the partition's state."""

    partitions: PartitionMetadata
    owners: ShownOwners
    ledgers: LedgerMetadata
    pool: NodePool
    region: str | None
    rng: random.Random
    recovery: RecoveryConfig
    now_us: Callable[[], int]
    """Wall-clock time of this host, not adjusted."""
    progress: RecoveryProgress = attrs.field(factory=RecoveryProgress)
    """Counts what all recoveries, and all reading back of logs, have done."""

    async def take_over(self, name: PartitionName, who: str) -> TakenOver:
        """Own the partition, with every listed ledger CLOSED.

        FencedError if another process took it over in turn. SealedError, NoSuchStreamError. If
        this fails for any reason, the partition is given back: readers leave the open ledger to
        its owner for as long as that owner is alive.
        """
        # The steps may run in different metadata sessions: reads of a process never go back
        # (`geolog.metadata.seam`). The write that made this process the owner comes after all
        # writes of earlier owners, so each later read sees those, and sees a ledger CLOSED that
        # was closed here. None of these reads needs a sync.
        owner = await self.owners.take(name, who)
        try:
            state, trim = await both(
                partial(self.end_open_segment, name, owner),
                partial(self.partitions.trims.read, name),  # As of when it was taken, or later.
            )
            return TakenOver(owner, state, trim.first_sequence)
        except BaseException:
            # The owner is forgotten only once metadata has the release, however late that is.
            with trio.move_on_after(_GIVE_BACK_S, shield=True):
                await self.owners.release(owner)
            raise

    async def end_open_segment(
        self, name: PartitionName, owner: VersionedOwner
    ) -> PartitionState:
        """Close the ledger that may be open, store its segment's end, recover the state.

        Only the last listed ledger can be open: each is listed in the step that closes the one
        before it. FencedError if another process owns the partition: it may have gone on, and
        trimmed the segment that was last.
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
            last=last,  # A later one belongs to an owner that has fenced us meanwhile.
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
                f"{name}: the next sequence is {state.sequence_next} by the log, but its last"
                f" segment begins at {last.first_sequence}"
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
        """The last listed segment: an owner notes each segment's number as it lists it.

        No sync is needed: a process that has become the owner, or has read that it is, sees the
        writes of earlier owners.
        """
        highest = owner.record.segment_highest
        if highest == 0:
            return None
        found = await self.partitions.segments.at(name, [highest])
        return found[0] if found else await self.partitions.segments.last(name)

    async def close_open_ledger(self, name: PartitionName) -> None:
        """Close the ledger that may be open, and so fence its writer."""
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
    """Set the state to what the empty segment's record says; all before it may be gone."""
    state.sequence_next = empty.first_sequence
    state.append_time_us = max(state.append_time_us, empty.append_time_us_before)
    if state.transaction_id is None:
        state.transaction_id = empty.transaction_id_before
    state.size_bytes = empty.size_bytes_before


def _checked(name: PartitionName, last: SegmentRecord, state: PartitionState) -> PartitionState:
    """The state, checked to end where the list of segments does."""
    assert last.last_sequence is not None
    if last.last_entry is not None and last.last_entry < 0:
        _go_on_behind_nothing(state, last)
    if state.sequence_next != last.last_sequence + 1:
        raise DamagedBytesError(
            f"{name}: the next sequence is {state.sequence_next} by the log, but"
            f" {last.last_sequence + 1} by its list of segments"
        )
    return state
