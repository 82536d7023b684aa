"""Moves the home of a stream by plan; `SwitchOver` decides, this shell does.

It runs in the process of the operator, anywhere in the cluster. Its process is shown in
metadata meanwhile: if it ends in the middle, the next owner gives the move up.

Rules: PROTOCOL H16.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import all_of, both
from geolog.catalog.home_moves import (
    HomeMoveConflictError,
    MarkedMove,
    MirrorsReclaimedError,
    check_can_move,
)
from geolog.catalog.partition_owners import VersionedOwner
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.seam import Freshness
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.takeover import Takeover
from geolog.protocol.ids import FIRST_SEQUENCE
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from geolog.protocol.switch_over import (
    AwaitMirror,
    Effect,
    EndAtHome,
    Flip,
    GiveUp,
    HomeEnded,
    MarkMoving,
    MirrorEnded,
    ReturnMirror,
    SwitchOver,
    TakeMirror,
)
from geolog.protocol.watermark import Watermark
from topology.errors import (
    ConflictError,
    FencedError,
    GeologError,
    OutcomeUnknownError,
    SealedError,
    UnavailableError,
)

_log = logging.getLogger(__name__)

_AT_ONCE_MAX = 32
"""Partitions that are looked at, closed or taken over at the same time."""

_LOOK_S = 0.05
_AGAIN_S = 0.2
_END_S_MAX = 10.0
"""How long giving up, or giving mirrors back, may wait for metadata."""

NEAR_RECORDS = 10_000
"""A mirror that is at most so many records behind its home is near: the move begins."""

EndOf = Callable[[PartitionName], Awaitable[PartitionEnd]]
"""Finds where a log ends now."""


@attrs.frozen(kw_only=True)
class SwitchConfig:
    """Bounds of one planned move."""

    timeout_s: float = 30.0
    """Time to catch up before the move, and again time from the mark to the flip."""

    owner_patience_s: float = 3.0
    """How long owners at home may take to close their segments; then they are taken over."""


@attrs.frozen(kw_only=True)
class SwitchOverReport:
    """A planned move that has succeeded, and how long its steps took."""

    stream: str
    home_before: str
    home: str
    home_epoch: int
    partitions: int
    records: int
    """Sequence numbers that its partitions have given, in all."""
    caught_up_s: float
    """Time for which the mirror caught up while appends went on."""
    closed_s: float
    """Time from the mark until the log at home was final: appends wait from here on."""
    drained_s: float
    """Time from there until the mirror had everything and was compared."""
    flipped_s: float
    """Time of the step that made the new region the home."""

    @property
    def pause_s(self) -> float:
        """Time for which no home took appends."""
        return self.closed_s + self.drained_s + self.flipped_s


@attrs.define(eq=False)
class _Run:
    stream: StreamRecord
    to: str
    core: SwitchOver
    move_id: str
    began_s: float
    steps: trio.CancelScope
    """All steps before giving up."""
    marked: MarkedMove | None = None
    claims: dict[int, VersionedOwner] = attrs.field(factory=dict)
    ended_s: float = 0.0
    """When the last partition was final at home."""
    flipping_s: float = 0.0
    flipped_s: float = 0.0
    records: int = 0
    failure: GeologError | None = None
    after: StreamRecord | None = None

    def mirror(self, number: int) -> PartitionName:
        return self.stream.log_in(self.to, number)


@attrs.frozen(kw_only=True)
class HomeSwitch:
    """Moves homes of streams by plan."""

    who: str
    """This process's name in owner records."""
    takeover: Takeover
    end_of: EndOf
    config: SwitchConfig = attrs.field(factory=SwitchConfig)

    async def move(
        self, stream: StreamRecord, to: str, tell: Callable[[str], None] = lambda _step: None
    ) -> SwitchOverReport:
        """Make region `to` the home of the stream, without losing a record.

        tell: hears what is done now. If it fails, the stream stays at its home: then
        UnavailableError says what was waited for; OutcomeUnknownError if metadata does not
        tell. InvalidArgumentError, SealedError or ConflictError if it cannot move there;
        HomeMoveConflictError if another process moves it.
        """
        await self.check_can_move(stream, to)
        began_s = trio.current_time()
        tell("catching up")
        await self._approach(stream, to)
        await self.takeover.owners.be_present()
        caught_up_s = trio.current_time()
        core = SwitchOver(
            str(stream.name), to=to, home_epoch=stream.home_epoch, partitions=stream.partitions
        )
        patience = trio.move_on_after(self.config.timeout_s)
        move_id = self.takeover.owners.new_claim_id()
        run = _Run(stream, to, core, move_id, caught_up_s, patience)
        tell("closing at home")
        try:
            with patience:
                await self._follow(run, core.begin(), tell)
            if patience.cancelled_caught:
                await self._follow(run, core.on_late(self.config.timeout_s), tell)
        except BaseException:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_S_MAX):
                await self._abandon(run)
            raise
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_S_MAX):
                await self._give_back(run, list(run.claims))
        if run.failure is not None:
            raise run.failure
        assert run.after is not None
        assert run.after.home is not None
        assert stream.home is not None
        return SwitchOverReport(
            stream=str(stream.name),
            home_before=stream.home,
            home=run.after.home,
            home_epoch=run.after.home_epoch,
            partitions=run.after.partitions,
            records=run.records,
            caught_up_s=caught_up_s - began_s,
            closed_s=run.ended_s - run.began_s,
            drained_s=run.flipping_s - run.ended_s,
            flipped_s=run.flipped_s - run.flipping_s,
        )

    # Before the move.

    async def check_can_move(self, stream: StreamRecord, to: str) -> None:
        """Raise why the stream cannot get its home there, whatever its link does.

        InvalidArgumentError, SealedError; ConflictError if a mirror there lacks records.
        """
        check_can_move(stream, to)
        names = [stream.log_in(to, number) for number in range(stream.partitions)]
        trims = self.takeover.partitions.trims
        found = await all_of(
            [partial(trims.read_latest, one) for one in names], at_once_max=_AT_ONCE_MAX
        )
        for name, trim in zip(names, found, strict=True):
            if trim.gap is not None:
                raise ConflictError(
                    f"the mirror of {stream.name}#{name.number} in {to} lacks records"
                    f" {trim.gap.first} to {trim.gap.end - 1}, which its home has dropped: a"
                    " home there would lack them for good"
                )

    async def _approach(self, stream: StreamRecord, to: str) -> None:
        """Wait until all mirrors are near, while appends go on. UnavailableError."""
        behind: dict[int, int] = {}
        with trio.move_on_after(self.config.timeout_s):
            await all_of(
                [
                    partial(self._approach_one, stream, to, number, behind)
                    for number in range(stream.partitions)
                ],
                at_once_max=_AT_ONCE_MAX,
            )
            return
        if not behind:
            raise UnavailableError(
                f"the end of {stream.name}, or of its mirror in {to}, could not be found within"
                f" {self.config.timeout_s:g} s. Nothing was changed"
            )
        number, records = max(behind.items(), key=lambda one: one[1])
        raise UnavailableError(
            f"the mirror of {stream.name}#{number} in {to} is {records:,} records behind after"
            f" {self.config.timeout_s:g} s: let it catch up (geolog relay status"
            f" {stream.name}), and switch over then. Nothing was changed"
        )

    async def _approach_one(
        self, stream: StreamRecord, to: str, number: int, behind: dict[int, int]
    ) -> None:
        home, mirror = stream.partition(number), stream.log_in(to, number)
        while True:
            with suppress(UnavailableError):
                end = await self.end_of(home)
                lag = end.sequence - (await self.end_of(mirror)).sequence
                behind[number] = lag
                if lag <= NEAR_RECORDS:
                    del behind[number]
                    return
            await trio.sleep(_AGAIN_S)

    # The move.

    async def _follow(
        self, run: _Run, effects: list[Effect], tell: Callable[[str], None]
    ) -> None:
        """Perform these, concurrently if they are several, and all that follows from them."""
        while len(effects) == 1:
            effects = await self._perform(run, effects[0], tell)
        if effects:
            await all_of(
                [partial(self._follow, run, [one], tell) for one in effects],
                at_once_max=_AT_ONCE_MAX,
            )

    async def _perform(
        self, run: _Run, effect: Effect, tell: Callable[[str], None]
    ) -> list[Effect]:
        core = run.core
        if isinstance(effect, GiveUp):
            await self._give_up(run, effect.error)
            run.steps.cancel(reason="the move was given up")
            return []
        try:
            match effect:
                case MarkMoving():
                    moves = self.takeover.partitions.home_moves
                    mover = self.takeover.owners.presence
                    run.marked = await moves.begin(
                        run.stream, run.to, mover=mover, move_id=run.move_id
                    )
                    return core.on_marked()
                case EndAtHome(number):
                    ended = await self._end_at_home(run, number)
                    run.ended_s = trio.current_time()
                    run.records += ended.sequence_next
                    tell(f"draining to {run.to}")
                    return core.on_home_ended(number, ended)
                case AwaitMirror(number, last):
                    await self._await_mirror(run.mirror(number), last)
                    return core.on_mirror_near(number)
                case TakeMirror(number):
                    return core.on_mirror_ended(number, await self._take(run, number))
                case ReturnMirror(number):
                    await self._give_back(run, [number])
                    await trio.sleep(_AGAIN_S)
                    return core.on_returned(number)
                case Flip():
                    return await self._flip(run, effect)
                case _:
                    assert_never(effect)
        except GeologError as error:
            return core.on_failed(error)

    async def _end_at_home(self, run: _Run, number: int) -> HomeEnded:
        """Wait until the log at home is final; take it over if its owner does not close it."""
        partitions = self.takeover.partitions
        name = run.stream.partition(number)
        with trio.move_on_after(self.config.owner_patience_s):
            while not await self._is_closed(name):
                changed = trio.Event()
                await partitions.owners.read(name, changed=changed)
                with trio.move_on_after(_LOOK_S):
                    await changed.wait()
        while not await self._is_closed(name):
            _log.warning("%s: its owner does not close it, so it is taken over", name)
            with suppress(FencedError):
                taken = await self.takeover.take_over(name, self.who)
                await self.takeover.owners.release(taken.owner)
        assert run.marked is not None
        home = run.marked.home.record
        owner, last = await both(
            partial(partitions.owners.read, name),
            partial(last_watermark, name, self.takeover, freshness=Freshness.NEARBY),
        )
        if owner.record.is_sealed:  # By somebody who died before the stream was.
            raise SealedError(f"{name} is sealed: finish that first (geolog stream seal)")
        return HomeEnded(
            last,
            owner.record.segment_highest + home.segment_offset(number, home.home_epoch),
            FIRST_SEQUENCE if last is None else last.sequence_next,
        )

    async def _is_closed(self, name: PartitionName) -> bool:
        """Whether the last row is completed; none can follow, for the stream is moving.

        A nearby server has all rows that were opened before: it has this process's mark.
        """
        last = await self._last_row(name)
        return last is None or last.is_completed

    async def _last_row(self, name: PartitionName) -> SegmentRecord | None:
        segments = self.takeover.partitions.segments
        found = await segments.last(name, freshness=Freshness.NEARBY)
        return None if found is None else found.record

    async def _await_mirror(self, mirror: PartitionName, last: Watermark | None) -> None:
        """Wait until the mirror seems to end with this entry: it is compared afterwards."""
        while last is not None:
            with suppress(UnavailableError, NoSuchLedgerError):
                row = await self._last_row(mirror)
                if row is not None and row.segment == last.segment:
                    end = row.last_entry
                    if end is None:
                        ledger = (await self.takeover.ledgers.read(row.ledger)).record
                        end = await self.takeover.reader().lac_nearby(ledger)
                    if end is not None and row.numbering.in_ledger(last.entry) <= end:
                        return
            await trio.sleep(_LOOK_S)

    async def _take(self, run: _Run, number: int) -> MirrorEnded:
        """Take the mirror over from its relay, and complete its last row."""
        mirror = run.mirror(number)
        while True:
            try:
                taken = await self.takeover.take_over(mirror, self.who, mirror_in=run.to)
            except GeologError as error:
                if not (error.retriable or isinstance(error, FencedError)):
                    raise
                await trio.sleep(_AGAIN_S)
                continue
            run.claims[number] = taken.owner
            last = await last_watermark(mirror, self.takeover, freshness=Freshness.NEARBY)
            return MirrorEnded(last, taken.owner.record.segment_highest)

    async def _flip(self, run: _Run, flip: Flip) -> list[Effect]:
        partitions = self.takeover.partitions
        assert run.marked is not None
        run.flipping_s = trio.current_time()
        owners = {run.mirror(number): owner for number, owner in run.claims.items()}
        while True:
            try:
                run.after = await partitions.home_moves.finish(run.marked, flip.forks, owners)
            except MirrorsReclaimedError as error:
                return run.core.on_reclaimed([name.number for name in error.names])
            except GeologError as error:
                if not error.retriable or isinstance(error, HomeMoveConflictError):
                    raise
                await trio.sleep(_AGAIN_S)
                continue
            run.flipped_s = trio.current_time()
            return run.core.on_flipped()

    # The end.

    async def _give_up(self, run: _Run, error: GeologError) -> None:
        """Have the stream stay, unless the flip has happened although its answer was lost."""
        run.failure = OutcomeUnknownError(
            f"metadata does not answer, so whether {run.stream.name} has moved to {run.to} is"
            f" not known (geolog stream describe {run.stream.name}): {error}"
        )
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _END_S_MAX):
            has_stayed = await self._stay(run)
            if run.marked is not None and not has_stayed:
                run.after = await self._moved(run)
            run.failure = error if run.after is None else None

    async def _stay(self, run: _Run) -> bool:
        """Give the move up; False if it was ended before, either way, or never began."""
        while True:
            try:
                moves = self.takeover.partitions.home_moves
                return await moves.give_up(run.stream, run.move_id)
            except GeologError as error:
                if not error.retriable:
                    return False  # The stream is gone.
                await trio.sleep(_AGAIN_S)

    async def _moved(self, run: _Run) -> StreamRecord | None:
        """The stream's settings if its home is the new one."""
        assert run.marked is not None
        stream = run.stream
        home = await self.takeover.partitions.homes.read_latest(stream.name, stream.life)
        epoch = stream.home_epoch + 1
        if home is None or (home.record.region, home.record.home_epoch) != (run.to, epoch):
            return None
        run.flipped_s = trio.current_time()
        return run.marked.stream.moved()

    async def _abandon(self, run: _Run) -> None:
        """Nobody waits for the move any more: have the stream stay, if it has not moved."""
        if not run.core.has_moved:
            await self._stay(run)

    async def _give_back(self, run: _Run, numbers: list[int]) -> None:
        """Let others own these mirrors again: relays, or the owners of the new home."""
        for number in numbers:
            owner = run.claims.pop(number, None)
            if owner is not None:
                try:
                    with suppress(GeologError):
                        await self.takeover.owners.release(owner)
                finally:
                    self.takeover.owners.release_nowait(owner)
