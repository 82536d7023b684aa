"""A partition's segments, one after another: keep the open one writable, prepare the next.

A single task does this, so a ledger's ensemble, its end and its successor are decided in one
place. It checks, in this order:

1. Entries in flight cannot be acknowledged: replace members. If that does not help, close the
   ledger at its LAC and write the entries above it again to the next ledger.
2. The open segment is full and the next ledger is ready: roll, once all entries are answered.
3. Half the segment is written: make the next ledger ahead.
4. Members have been away for a while: replace them, without hurry.
5. The ensemble is complete, but would not survive losing another region, or has a member in a
   forbidden region: look for a better ensemble, and roll to it.

With metadata away, 2 to 5 wait, and the open ledger goes on past its size.

Rules: PROTOCOL O4, O6, P2 and P5.
"""

import logging
import math
from typing import Protocol

import trio

from geolog.catalog.metadata_session import MetadataSession
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_changes import ClosingSegment, SegmentChanges
from geolog.catalog.segment_records import VersionedSegment
from geolog.ledger.ledger_metadata import NoSuchLedgerError, VersionedLedger
from geolog.ledger.writing.ledger_writer import LedgerListener
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.open_segment import OpenSegment
from geolog.partition.placement_notice import PlacementNotice
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.roll import RollPolicy
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from topology.errors import FencedError, GeologError, NotEnoughNodesError
from topology.ring.window_rule import Adherence

_log = logging.getLogger(__name__)

_RESTING_LOOK_S = 5.0
"""How often to look at a partition that nobody writes to."""

_BETTER_PAUSES_MAX = 32
"""Longest pause between searches for a better ledger, as a multiple of `better_ledger_s`."""


class SegmentUser(LedgerListener, Protocol):
    """The owner whose entries are written to the segments."""

    @property
    def is_failed(self) -> bool:
        """Whether to stop writing."""
        ...

    @property
    def has_sent(self) -> bool:
        """Whether entries of the open ledger are not acknowledged yet."""
        ...

    @property
    def acknowledged(self) -> PartitionState:
        """The partition's state after all acknowledged entries."""
        ...

    def check_deadline(self) -> None:
        """UnavailableError if an entry has waited too long."""
        ...

    def on_segment_open(self, segment: OpenSegment) -> None:
        """Write unacknowledged entries to this segment, and go on there."""
        ...

    def now_us(self) -> int:
        """Wall-clock time, not far ahead of the metadata store's."""
        ...

    def local_us(self) -> int:
        """Wall-clock time of this host, not adjusted."""
        ...


class SegmentRoller:
    """Opens, rolls and closes the segments of one partition under one owner epoch.

    Invariants: `open` is None until the first segment is active; nothing new is sent to it
    while `is_rolling`; `owner` is the owner record as this owner last stored it.
    """

    def __init__(
        self,
        name: PartitionName,
        stream: StreamRecord,
        owner: VersionedOwner,
        user: SegmentUser,
        *,
        changes: SegmentChanges,
        session: MetadataSession,
        source: LedgerAllocator,
        config: PartitionConfig,
    ) -> None:
        self._name = name
        self._home_epoch = stream.home_epoch
        self._user = user
        self._changes = changes
        self._session = session
        self._source = source
        self._config = config
        self._roll = RollPolicy(
            segment_bytes=stream.segment_bytes, segment_age_s=stream.segment_age_s
        )
        self._notice = PlacementNotice(name, stream.placement.policy)
        self._next: PreparedLedger | None = None
        self._prepare_not_before_s = 0.0
        self._keep_not_before_s = 0.0
        self._better_not_before_s = math.inf
        self._better_pause_s = config.better_ledger_s
        self._switches_seen = source.switches
        self._wake = trio.Event()
        self.owner = owner
        self.open: OpenSegment | None = None
        self.is_rolling = True  # Until the first ledger is active.
        self.failovers_count = 0
        self.rolls_count = 0
        self._is_resting = False  # Nothing was sent between the last two rounds.

    def wake(self) -> None:
        """Look again soon: something changed that may need a decision."""
        self._wake.set()

    def may_send(self) -> bool:
        """Whether the next entry may go to the open segment; if not, start to roll."""
        segment = self.open
        if segment is None or self.is_rolling or self._user.is_failed:
            return False
        if self._is_roll_due(segment):
            self.is_rolling = True
            self._wake.set()
            return False
        return True

    def on_sent(self) -> None:
        """Entries were sent: the next ledger may be due."""
        if self._is_resting:
            self._wake.set()
        if (
            self._next is None
            and self.open is not None
            and self._roll.is_preparation_due(written_bytes=self.open.written_bytes)
        ):
            self._wake.set()

    def _is_roll_due(self, segment: OpenSegment) -> bool:
        """Whether to roll: the segment is full, and the next ledger and metadata are there."""
        return (
            self._next is not None
            and segment.is_full(self._roll)
            and self._session.is_reachable
        )

    # The one task.

    async def run(self) -> None:
        """Decide and act until the user has failed."""
        while not self._user.is_failed:
            entry_next = None if self.open is None else self.open.writer.entry_next
            with trio.move_on_after(self._pause_s()):
                await self._wake.wait()
            self._is_resting = (
                self.open is not None
                and self.open.writer.entry_next == entry_next
                and not (self.is_rolling or self._user.has_sent)
            )
            self._wake = trio.Event()
            if self.open is not None and not self._user.is_failed:
                await self._work(self.open)

    def _pause_s(self) -> float:
        """How long to sleep unless something happens.

        Short while entries are in flight, since lateness is noticed here. Longer for an idle
        partition: a process may have thousands of them.
        """
        if self._is_resting:
            return _RESTING_LOOK_S
        return min(0.25, self._config.add_timeout_s / 4)

    async def _work(self, segment: OpenSegment) -> None:
        self._notice_placement(segment)
        if self._next is not None and not self._is_usable(self._next):
            self._drop_next()
        if segment.keeper.is_urgent:
            await self._mend(segment)
        elif self.is_rolling:
            if not self._user.has_sent:
                await self._roll_over()
        elif self._is_preparation_due(segment):
            await self._prepare_ahead()
        elif self._is_keeping_due(segment):
            await self._keep_calmly(segment)
        elif self._is_better_ledger_due(segment):
            await self._prepare_better(segment)

    def _notice_placement(self, segment: OpenSegment) -> None:
        self._notice.see(
            segment.keeper.ledger.record.ledger,
            segment.keeper.adherence,
            is_undecided=segment.keeper.is_undecided or self._source.is_undecided,
        )

    def _is_usable(self, prepared: PreparedLedger) -> bool:
        """Whether a ledger that was made ahead may still be used: young enough, and allowed."""
        if prepared.age_s > self._config.prepared_age_s_max:
            return False
        return not self._source.is_forbidden(prepared.ledger.record.fragments[-1])

    # An ensemble that cannot acknowledge, or is placed badly.

    async def _mend(self, segment: OpenSegment) -> None:
        """Replace members until entries can be acknowledged; else move to another ledger."""
        late = segment.writer.instances_late()
        since_s = trio.current_time()
        while segment.keeper.is_urgent and not self._user.is_failed:
            self._user.check_deadline()
            try:
                try:
                    if not await segment.keeper.keep():
                        await trio.sleep(self._config.retry_delay_s)
                    continue
                except NotEnoughNodesError:
                    if trio.current_time() < since_s + self._config.member_patience_s:
                        raise  # They may be back in a moment.
                    prepared = await self._ready_ledger(late)
            except GeologError as error:
                if not error.retriable:
                    raise
                await trio.sleep(self._config.retry_delay_s)
                continue
            if not self._user.is_failed:
                await self._move_on(prepared)
                self.failovers_count += 1
            return

    async def _ready_ledger(self, avoid: list[InstanceId]) -> PreparedLedger:
        """The ledger that was made ahead, if it can be written now, else a new one."""
        prepared, self._next = self._next, None
        if prepared is not None:
            if prepared.writer.can_go_on() and not set(avoid) & prepared.writer.instances():
                return prepared
            self._source.discard_soon(prepared)
        return await self._source.prepare(self._user, avoid=avoid)

    def _is_keeping_due(self, segment: OpenSegment) -> bool:
        return trio.current_time() >= self._keep_not_before_s and segment.keeper.is_due

    async def _keep_calmly(self, segment: OpenSegment) -> None:
        try:
            await segment.keeper.keep()
        except GeologError as error:
            if not error.retriable:
                raise
            # The open ledger goes on as it is; the keeper says when to retry.
            self._keep_not_before_s = trio.current_time() + self._config.retry_delay_s

    def _is_better_ledger_due(self, segment: OpenSegment) -> bool:
        """Whether to look for a better ensemble though this one is complete; with pauses."""
        now_s = trio.current_time()
        if self._switches_seen != self._source.switches:
            self._switches_seen = self._source.switches
            self._better_pause_s = self._config.better_ledger_s
            self._better_not_before_s = now_s  # A placement that failed may succeed now.
        if self._is_well_placed(segment):
            self._better_pause_s = self._config.better_ledger_s
            self._better_not_before_s = now_s + self._better_pause_s
        return now_s >= self._better_not_before_s

    def _is_well_placed(self, segment: OpenSegment) -> bool:
        """Whether the ensemble survives what it must, with no member in a forbidden region."""
        ensemble = segment.keeper.ledger.record.fragments[-1]
        return (
            segment.keeper.adherence is Adherence.STRICT
            and self._source.keeps_promise(ensemble)
            and not self._source.is_forbidden(ensemble)
        )

    async def _prepare_better(self, segment: OpenSegment) -> None:
        """Look for a ledger with a better placement; back off after each failure."""
        self._better_not_before_s = trio.current_time() + self._better_pause_s
        self._better_pause_s = min(
            2 * self._better_pause_s, _BETTER_PAUSES_MAX * self._config.better_ledger_s
        )
        try:
            better = await self._source.prepare_better(
                self._user,
                than=segment.keeper.ledger.record.fragments[-1],
                adherence=segment.keeper.adherence,
                avoid=segment.writer.instances_missing(),
            )
        except GeologError as error:
            if not error.retriable:
                raise
            return
        if better is not None:
            self._drop_next()
            self._next = better
            self.is_rolling = True
            self._wake.set()

    # The next ledger.

    def _is_preparation_due(self, segment: OpenSegment) -> bool:
        return (
            self._next is None
            and (
                self._roll.is_preparation_due(written_bytes=segment.written_bytes)
                or segment.is_full(self._roll)  # By its age.
            )
            and trio.current_time() >= self._prepare_not_before_s
        )

    async def _prepare_ahead(self) -> None:
        try:
            self._next = await self._source.prepare(self._user)
        except GeologError as error:
            if not error.retriable:
                raise
            # The open ledger goes on past its size; retry after a pause.
            self._prepare_not_before_s = trio.current_time() + self._config.prepare_retry_s

    def _drop_next(self) -> None:
        if self._next is not None:
            self._source.discard_soon(self._next)
            self._next = None

    async def _roll_over(self) -> None:
        prepared, self._next = self._next, None
        if prepared is not None and prepared.writer.can_go_on():
            await self._move_on(prepared)
            self.rolls_count += 1
            return
        if prepared is not None:
            self._source.discard_soon(prepared)  # Members have left since.
        assert self.open is not None
        self.is_rolling = False  # The open ledger goes on; another will be made ahead.
        self._user.on_segment_open(self.open)

    # From one segment to the next.

    async def start(self) -> None:
        """Open the first segment of this owner."""
        await self._activate(await self._source.prepare_first(self._user), None)

    async def _move_on(self, prepared: PreparedLedger) -> None:
        """Close the open ledger at its LAC, activate the next, and resend what is above."""
        segment = self.open
        assert segment is not None
        self.is_rolling = True
        segment.writer.stop()  # From here on it acknowledges nothing more.
        last_entry = segment.writer.lac
        await self._activate(prepared, self._closing(segment, last_entry))
        self._source.retire_soon(segment.writer, last_entry)

    async def _activate(self, prepared: PreparedLedger, closing: ClosingSegment | None) -> None:
        """Make a prepared ledger the open one; ask until metadata answers."""
        prepared, ledger, segment = await self._activated(prepared, closing)
        if self._user.is_failed:
            prepared.writer.close()
            return
        if prepared.writer.is_over:  # It was fenced before metadata's answer arrived.
            raise FencedError(f"another writer owns {self._name} now")
        self._better_not_before_s = trio.current_time() + self._config.better_ledger_s
        keeper = self._source.keeper(ledger, prepared.writer)
        self.open = OpenSegment(segment, prepared.writer, keeper)
        self._notice_placement(self.open)
        self.is_rolling = False
        self._user.on_segment_open(self.open)

    async def _activated(
        self, prepared: PreparedLedger, closing: ClosingSegment | None
    ) -> tuple[PreparedLedger, VersionedLedger, VersionedSegment]:
        segment = self._segment_of(prepared)
        while True:
            try:
                self.owner, ledger, opened = await self._changes.activate(
                    self._name,
                    self.owner,
                    closing=closing,
                    opening=prepared.ledger,
                    segment=segment,
                )
            except NoSuchLedgerError:
                expired = prepared.ledger.record.ledger
                _log.info("ledger %s: expired unused; making another", expired)
                prepared.writer.close()
                prepared = await self._source.prepare(self._user)
                segment = self._segment_of(prepared)
            except GeologError as error:
                if not error.retriable:
                    raise
                self._user.check_deadline()
                await trio.sleep(self._config.retry_delay_s)
            else:
                return prepared, ledger, opened

    def _segment_of(self, prepared: PreparedLedger) -> SegmentRecord:
        acknowledged = self._user.acknowledged
        return SegmentRecord(
            segment=self.owner.record.segment_highest + 1,
            ledger=prepared.ledger.record.ledger,
            home_epoch=self._home_epoch,
            first_sequence=acknowledged.sequence_next,
            owner_epoch=self.owner.record.epoch,
            activated_us=self._user.now_us(),
            append_time_us_before=acknowledged.append_time_us,
            transaction_id_before=acknowledged.transaction_id,
            size_bytes_before=acknowledged.size_bytes,
        )

    # Leaving.

    def stop(self, *, is_clean: bool) -> ClosingSegment | None:
        """Stop writing. If all entries are answered, return how to close the open ledger."""
        if self._next is not None:
            self._next.writer.close()
        segment = self.open
        if segment is None:
            return None
        segment.writer.push_lac_nowait()  # Readers need it if the ledger is left open.
        if not is_clean:
            segment.writer.close()
            return None
        segment.writer.stop()
        return self._closing(segment, segment.writer.lac)

    def _closing(self, segment: OpenSegment, last_entry: EntryId) -> ClosingSegment:
        return segment.closing(
            last_entry, self._user.acknowledged, local_us=self._user.local_us()
        )

    async def retire(self, last_entry: EntryId) -> None:
        """Watch over the copies of the last segment, which was closed there."""
        assert self.open is not None
        await self._source.retire(self.open.writer, last_entry)

    async def discard_unused(self) -> None:
        """Forget ledgers that were made ahead and not used."""
        await self._source.discard_early()
        unused, self._next = self._next, None
        if unused is not None:
            await self._source.discard(unused)
