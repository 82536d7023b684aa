"""A partition's segments, one after another: the shell around `SegmentSuccession`.

A single task performs its steps, so a ledger's ensemble, its end and its successor are decided
in one place. With metadata away, steps that need it are tried again, and the open ledger goes
on past its size.

Rules: PROTOCOL O6.
"""

from typing import assert_never

import trio

from geolog.catalog.metadata_session import MetadataSession
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.segment_changes import ClosingSegment, SegmentChanges
from geolog.partition.ledger_allocator import LedgerAllocator
from geolog.partition.next_ledger import NextLedger
from geolog.partition.open_segment import OpenSegment
from geolog.partition.placement_notice import PlacementNotice
from geolog.partition.prepared_ledger import PreparedLedger
from geolog.partition.segment_activation import SegmentActivation
from geolog.partition.segment_facts import pace_of, view_of
from geolog.partition.segment_user import SegmentUser
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.roll import RollPolicy
from geolog.protocol.segment_succession import (
    DropPrepared,
    GoOn,
    Keep,
    LookForBetter,
    Mend,
    MendOutcome,
    MoveOn,
    Pause,
    Prepare,
    Rest,
    SegmentSuccession,
    Sending,
    Step,
)
from geolog.protocol.stream_state import PartitionName, StreamRecord
from topology.errors import GeologError, NotEnoughNodesError


class SegmentRoller:
    """Opens, rolls and closes the segments of one partition under one owner epoch.

    Invariants: `open` is None until the first segment is active; nothing new is sent to it
    while `is_rolling`.
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
        roll: RollPolicy,
    ) -> None:
        self._user = user
        self._session = session
        self._source = source
        self._activation = SegmentActivation(
            name, owner, user, changes=changes, source=source, config=config
        )
        self._core = SegmentSuccession(
            roll,
            pace_of(config),
            source.switches,
        )
        self._notice = PlacementNotice(name, stream.placement)
        self._next = NextLedger(source, user)
        self._wake = trio.Event()
        self.open: OpenSegment | None = None

    @property
    def owner(self) -> VersionedOwner:
        """The owner record as this owner last stored it."""
        return self._activation.owner

    @property
    def is_rolling(self) -> bool:
        """Whether entries wait for the next ledger, or for the first."""
        return self._core.is_rolling

    def wake(self) -> None:
        """Look again soon: something changed that may need a decision."""
        self._wake.set()

    def may_send(self) -> bool:
        """Whether the next entry may go to the open segment; if not, a roll has begun."""
        segment = self.open
        if segment is None or self._user.is_failed:
            return False
        has_prepared = self._next.prepared is not None
        if self._core.goes_on_surely(has_prepared=has_prepared):
            return True  # Most entries: without a look at the clock.
        sending = self._core.on_entry(
            written_bytes=segment.written_bytes,
            has_prepared=has_prepared,
            is_metadata_reachable=self._session.is_reachable,
            now_s=trio.current_time(),
        )
        if sending is Sending.ROLL_BEGINS:
            self._wake.set()
        return sending is Sending.GOES_ON

    def end_row(self) -> None:
        """Go on in another ledger: the next entry cannot go to the open one."""
        self._core.on_row_over()
        self._wake.set()

    def on_sent(self) -> None:
        """Entries were sent: the next ledger may be due."""
        segment = self.open
        if segment is not None and self._core.is_look_due(
            written_bytes=segment.written_bytes, has_prepared=self._next.prepared is not None
        ):
            self._wake.set()

    async def run(self) -> None:
        """Perform steps until the user has failed."""
        while not self._user.is_failed:
            segment = self.open
            assert segment is not None, "the first segment is not open yet"
            self._notice.see(
                segment.keeper.ledger.record.ledger,
                segment.keeper.adherence,
                is_undecided=segment.keeper.is_undecided or self._source.is_undecided,
            )
            view = view_of(
                segment, self._next.prepared, self._source, has_unanswered=self._user.has_sent
            )
            step = self._core.next_step(view, now_s=trio.current_time())
            await self._perform(step, segment)

    async def _perform(self, step: Step, segment: OpenSegment) -> None:
        match step:
            case Rest(pause_s):
                with trio.move_on_after(pause_s):
                    await self._wake.wait()
                self._wake = trio.Event()
            case Pause(pause_s):
                await trio.sleep(pause_s)
            case DropPrepared():
                self._next.drop()
            case Mend():
                await self._mend(segment)
            case Prepare(avoid):
                await self._prepare(avoid)
            case MoveOn():
                await self._move_on(segment)
            case GoOn():
                self._user.on_segment_open(segment)
            case Keep():
                await self._keep(segment)
            case LookForBetter():
                await self._look_for_better(segment)
            case never:
                assert_never(never)

    async def _mend(self, segment: OpenSegment) -> None:
        self._user.check_deadline()
        outcome = MendOutcome.NOT_CHANGED
        try:
            if await segment.keeper.keep():
                outcome = MendOutcome.CHANGED
        except NotEnoughNodesError:
            outcome = MendOutcome.NO_NODES
        except GeologError as error:
            _raise_unless_retriable(error)
        self._core.on_mended(outcome, now_s=trio.current_time())

    async def _keep(self, segment: OpenSegment) -> None:
        try:
            await segment.keeper.keep()
        except GeologError as error:
            _raise_unless_retriable(error)
            self._core.on_not_kept(now_s=trio.current_time())

    async def _prepare(self, avoid: tuple[InstanceId, ...]) -> None:
        try:
            await self._next.prepare(avoid)
        except GeologError as error:
            _raise_unless_retriable(error)
            self._core.on_not_prepared(now_s=trio.current_time())
        else:
            self._core.on_prepared()

    async def _look_for_better(self, segment: OpenSegment) -> None:
        try:
            if await self._next.prepare_better(segment):
                self._core.on_better_prepared()
        except GeologError as error:
            _raise_unless_retriable(error)

    # From one segment to the next.

    async def start(self) -> None:
        """Open the first segment of this owner."""
        await self._activate(await self._source.prepare_first(self._user), None)

    async def _move_on(self, segment: OpenSegment) -> None:
        """Close the open ledger at its LAC, activate the next, and resend what is above."""
        prepared = self._next.take()
        segment.writer.stop()  # From here on it acknowledges nothing more.
        last_entry = segment.writer.lac
        await self._activate(prepared, self._closing(segment, last_entry))
        self._source.retire_soon(segment.writer, last_entry)

    async def _activate(self, prepared: PreparedLedger, closing: ClosingSegment | None) -> None:
        opened = await self._activation.activate(prepared, closing)
        if opened is not None:
            self.open = opened
            self._core.on_opened(now_s=trio.current_time())
            self._user.on_segment_open(opened)

    # Leaving.

    def stop(self, *, is_clean: bool) -> ClosingSegment | None:
        """Stop writing. If all entries are answered, return how to close the open ledger."""
        self._next.close()
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
        await self._next.discard()


def _raise_unless_retriable(error: GeologError) -> None:
    if not error.retriable:
        raise error
