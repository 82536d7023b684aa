"""Finding the end of a partition: always by asking, never by assuming.

The end of an open ledger lies before the first entry that a blocking set of its write set calls
ABSENT. Entries between the LAC and that end may have been acknowledged, and may still vanish:
wait until the LAC or a close covers them. If the owner has left, or has been missing for longer
than its grace (`OwnerAbsences`), nobody will move the LAC: recover the ledger first. The caller
bounds the wait, and a read fails rather than end short.

Metadata's answer about the last segment may be stale, even after a sync: its leader may be
deposed. So an end counts only if metadata then says, with certainty, that no segment follows.
For an open ledger its own record says so, since the step that lists the next segment closes it;
otherwise the owner record says so. That costs one write in metadata for each end.

Rules: PROTOCOL R2 to R6.
"""

import math
import random

import attrs
import trio

from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.nodes.node_pool import NodePool
from geolog.ledger.reading.ledger_reader import LedgerReader, TailView
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.metadata.seam import Freshness
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.owner_absence import OwnerAbsences
from geolog.protocol.stream_state import PartitionName, SegmentRecord

_LAC_POLL_S = 0.005
_STATE_POLL_S = 0.1
_AGAIN_S_MAX = 0.5
"""Longest pause before the end is looked for again, which may cost a write."""
_RECOVERY_PATIENCE_S = 2.0


@attrs.frozen
class PartitionEnd:
    """The place after the last record that was acknowledged when the end was asked for."""

    segment: int
    entry: int
    sequence: int
    append_time_us: int


class TailFinder:
    """Finds the ends of partitions and ledgers."""

    def __init__(
        self,
        *,
        partitions: PartitionMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        pool: NodePool,
        rng: random.Random,
        recovery: RecoveryConfig,
    ) -> None:
        self._partitions = partitions
        self._ledgers = ledgers
        self._reader = reader
        self._pool = pool
        self._rng = rng
        self._recovery = recovery
        self._absences: OwnerAbsences[PartitionName] = OwnerAbsences()
        self._recoveries: dict[LedgerId, tuple[Epoch, float]] = {}  # The last, and since when.
        self._contradictions: dict[PartitionName, str] = {}  # While the end is looked for.

    async def end_of(self, name: PartitionName) -> PartitionEnd:
        """The end of the partition at some moment after this call; the caller bounds the wait.

        NoSuchStreamError.
        """
        pause_s = _LAC_POLL_S
        self._contradictions.pop(name, None)
        while True:
            listed = await self._partitions.segments.last(name)
            last = None if listed is None else listed.record
            try:
                found = await self._end_after(name, last)
            except NoSuchLedgerError:
                if await self._is_last(name, last):
                    raise  # It is listed, but does not exist: metadata is damaged.
                found = None  # It was completed, and trimmed since.
            if found is not None:
                self._contradictions.pop(name, None)
                return found
            await trio.sleep(pause_s)  # The list has grown, or it was stale.
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)

    def why_not_found(self, name: PartitionName) -> str:
        """The reason why the end was not found in time, for error messages."""
        return self._contradictions.get(
            name, "too few replicas answer, or the last ledger is being recovered"
        )

    async def _end_after(
        self, name: PartitionName, last: SegmentRecord | None
    ) -> PartitionEnd | None:
        """The end if `last` is the last segment (or there is none); None to look again."""
        if last is None:
            return PartitionEnd(0, 0, 0, 0) if await self._is_last(name, None) else None
        if last.is_completed:
            return _end_of_completed(last) if await self._is_last(name, last) else None
        ledger = (await self._ledgers.read(last.ledger)).record
        if ledger.state is not LedgerState.CLOSED:
            end = await self._end_entry(name, ledger)
            return None if end is None else await self._end_at(last, ledger, end)
        if not await self._is_last(name, last):
            return None
        assert ledger.last_entry is not None
        return await self._end_at(last, ledger, EntryId(ledger.last_entry + 1))

    async def _is_last(self, name: PartitionName, segment: SegmentRecord | None) -> bool:
        """Whether no segment was ever listed after this one. NoSuchStreamError."""
        number = 0 if segment is None else segment.segment
        return await self._partitions.owners.segment_highest_certain(name) == number

    async def _end_at(
        self, segment: SegmentRecord, ledger: LedgerRecord, end: EntryId
    ) -> PartitionEnd:
        if end == 0:
            return PartitionEnd(
                segment.segment, 0, segment.first_sequence, segment.append_time_us_before
            )
        last = EntryId(end - 1)
        header = (await self._reader.read_one(ledger, last)).decoded.header
        return PartitionEnd(segment.segment, end, header.next_sequence, header.append_time_us)

    async def _end_entry(self, name: PartitionName, ledger: LedgerRecord) -> EntryId | None:
        """The end of an open ledger, once the LAC has reached it; None to look again.

        None if the ledger was closed, or its members were replaced.
        """
        is_doubted = False  # A member knows more of the ledger than its record says.
        end: EntryId | None = None
        lac = held_to = NO_ENTRY
        next_look_s = math.inf
        while True:
            view = await self._reader.probe_tail(ledger, max(lac, held_to))
            # Counted from the first answer: over distance, that takes longer than the pause.
            next_look_s = min(next_look_s, trio.current_time() + _STATE_POLL_S)
            # A recovery fences the members: that is news only while the record says OPEN.
            is_new_doubt = view.is_taken and not is_doubted and ledger.state is LedgerState.OPEN
            if is_new_doubt or trio.current_time() >= next_look_s:
                is_doubted = is_doubted or is_new_doubt
                freshness = Freshness.CERTAIN if is_new_doubt else Freshness.LATEST
                if await self._is_ended(name, ledger, freshness):
                    return None
                next_look_s = trio.current_time() + _STATE_POLL_S
            if end is None and view.end is not None:
                if not await self._stands(name, ledger, view):
                    return None
                end = view.end
            lac = max(lac, view.lac)
            if end is not None and lac >= end - 1:
                return end
            # More may be in flight than one probe asks for; then the end lies further on.
            if end is not None or view.held_to <= held_to:
                await trio.sleep(_LAC_POLL_S)
            held_to = max(held_to, view.held_to)

    async def _stands(self, name: PartitionName, ledger: LedgerRecord, view: TailView) -> bool:
        """Whether the end that the members told is the end of the partition.

        Not if a member was replaced: it calls its successor's entries ABSENT. Not if the ledger
        is closed: the next ledger may have entries. Not if a member is fenced though nobody has
        taken the ledger: metadata, or that member, was set back.
        """
        found = await self._ledgers.record_certain(ledger.ledger)
        if found.state is LedgerState.CLOSED or found.fragments != ledger.fragments:
            return False
        if view.is_taken and found.state is LedgerState.OPEN:
            self._contradictions[name] = (
                f"a member of ledger {ledger.ledger} is fenced, or has a later epoch, but"
                f" metadata says that the ledger is open in epoch {found.epoch}. Was metadata"
                f" restored from an older copy? See `geolog ledger describe {ledger.ledger}`"
            )
            return False
        return True

    async def _is_ended(
        self, name: PartitionName, ledger: LedgerRecord, freshness: Freshness
    ) -> bool:
        """Whether the ledger is CLOSED now; closes it if nobody else is there to do so.

        Also true if its members were replaced: a reader that asks the old ones may wait for
        ever for a LAC that only the new ones hear of.
        """
        found = (await self._ledgers.read(ledger.ledger, freshness=freshness)).record
        if found.state is LedgerState.CLOSED:
            self._recoveries.pop(found.ledger, None)
            return True
        if found.fragments != ledger.fragments:
            return True
        is_waited_for = (
            await self._is_owner_waited_for(name)
            if found.state is LedgerState.OPEN
            else self._is_recovery_fresh(found)
        )
        if is_waited_for:
            return False
        await recover_ledger(
            ledger.ledger,
            ledgers=self._ledgers,
            pool=self._pool,
            rng=self._rng,
            config=self._recovery,
        )
        return True

    async def _is_owner_waited_for(self, name: PartitionName) -> bool:
        """Whether the owner is there, or may come back.

        Before it counts as gone, more than one metadata server is asked: a recovery fences for
        good, and a deposed leader may not have heard of the owner.
        """
        for freshness in (Freshness.LATEST, Freshness.CERTAIN):
            look = await self._partitions.owners.look_for_owner(name, freshness=freshness)
            is_gone = self._absences.on_look(
                name,
                look,
                now_s=trio.current_time(),
                session_timeout_s=self._partitions.session.timeout_s,
            )
            if not is_gone:
                return True
        return False

    def _is_recovery_fresh(self, found: LedgerRecord) -> bool:
        """Whether another process may still be recovering the ledger, which is fenced."""
        now_s = trio.current_time()
        epoch, since_s = self._recoveries.get(found.ledger, (found.epoch, now_s))
        if epoch != found.epoch:
            since_s = now_s  # Another recovery has begun.
        self._recoveries[found.ledger] = (found.epoch, since_s)
        return now_s - since_s < _RECOVERY_PATIENCE_S


def _end_of_completed(segment: SegmentRecord) -> PartitionEnd:
    assert segment.last_entry is not None
    assert segment.last_sequence is not None
    assert segment.last_append_time_us is not None
    return PartitionEnd(
        segment.segment,
        segment.last_entry + 1,
        segment.last_sequence + 1,
        segment.last_append_time_us,
    )
