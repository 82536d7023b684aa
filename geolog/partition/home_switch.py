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

from geolog.background import all_of
from geolog.catalog.home_moves import (
    HomeMoveConflictError,
    MirrorsReclaimedError,
    check_can_move,
)
from geolog.catalog.segment_list import SegmentList
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.seam import Freshness
from geolog.partition.home_move import AGAIN_S, END_S_MAX, HomeMove, follow
from geolog.partition.local_only_rows import local_only_of_home
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.takeover import Takeover
from geolog.protocol.ids import FIRST_SEQUENCE
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import PartitionName, StreamRecord
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
    GeologError,
    UnavailableError,
)

_log = logging.getLogger(__name__)

_AT_ONCE_MAX = 32
"""Partitions that are looked at, closed or taken over at the same time."""

_LOOK_S = 0.05

_COUNTED_S = 5.0
"""How long counting what is left behind may take, once the home has moved."""

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
    local_only: int | None
    """Records that stay in the region of the old home; None if metadata does not tell."""
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
    move: HomeMove
    core: SwitchOver
    began_s: float
    steps: trio.CancelScope
    """All steps before giving up."""
    ended_s: float = 0.0
    """When the last partition was final at home."""
    flipping_s: float = 0.0
    flipped_s: float = 0.0
    records: int = 0
    failure: GeologError | None = None


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
        move = HomeMove(stream=stream, to=to, who=self.who, takeover=self.takeover)
        run = _Run(move, core, caught_up_s, patience)
        perform = partial(self._perform, run, tell)
        tell("closing at home")
        try:
            with patience:
                await follow(core.begin(), perform, _AT_ONCE_MAX)
            if patience.cancelled_caught:
                late = core.on_late(self.config.timeout_s)
                await follow(late, perform, _AT_ONCE_MAX)
        except BaseException:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S_MAX):
                await self._abandon(run)
            raise
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S_MAX):
                await move.give_back(list(move.claims))
        if run.failure is not None:
            raise run.failure
        after = move.after
        assert after is not None
        assert after.home is not None
        assert stream.home is not None
        return SwitchOverReport(
            stream=str(stream.name),
            home_before=stream.home,
            home=after.home,
            home_epoch=after.home_epoch,
            partitions=after.partitions,
            records=run.records,
            local_only=await self._local_only(stream),
            caught_up_s=caught_up_s - began_s,
            closed_s=run.ended_s - run.began_s,
            drained_s=run.flipping_s - run.ended_s,
            flipped_s=run.flipped_s - run.flipping_s,
        )

    async def _local_only(self, stream: StreamRecord) -> int | None:
        """How many records the home that has moved away leaves behind."""
        names = [stream.partition(number) for number in range(stream.partitions)]
        count = partial(self._local_only_of, home_epoch=stream.home_epoch)
        with trio.move_on_after(_COUNTED_S), suppress(GeologError):
            found = await all_of(
                [partial(count, one) for one in names], at_once_max=_AT_ONCE_MAX
            )
            return sum(found)
        return None

    async def _local_only_of(self, name: PartitionName, *, home_epoch: int) -> int:
        rows = SegmentList(name, self.takeover.partitions)
        return (await local_only_of_home(rows, home_epoch)).count

    # Before the move.

    async def check_can_move(self, stream: StreamRecord, to: str) -> None:
        """Raise why the stream cannot get its home there, whatever its link does.

        InvalidArgumentError, SealedError; ConflictError if a mirror there lacks records;
        TooLargeError if the step in metadata may be too large.
        """
        check_can_move(stream, to)
        await self.takeover.partitions.home_moves.check_fits(stream, to, who=self.who)
        names = [stream.log_in(to, number) for number in range(stream.partitions)]
        trims = self.takeover.partitions.trims
        found = await all_of(
            [partial(trims.read_latest, one) for one in names], at_once_max=_AT_ONCE_MAX
        )
        # A mirror follows its home's trim, so the home's is read behind it.
        homes = [stream.partition(one.number) for one in names]
        at_home = await all_of(
            [partial(trims.read_latest, one) for one in homes], at_once_max=_AT_ONCE_MAX
        )
        for name, trim, begins in zip(names, found, at_home, strict=True):
            if trim.dropping_through:
                raise ConflictError(
                    f"the mirror of {stream.name}#{name.number} in {to} is being begun again:"
                    " let its relay go on, and move the home once it has caught up"
                )
            if trim.gap is not None:
                raise ConflictError(
                    f"the mirror of {stream.name}#{name.number} in {to} lacks records"
                    f" {trim.gap.first} to {trim.gap.end - 1}, which its home has dropped: a"
                    " home there would lack them for good"
                )
            if trim.first_sequence > begins.first_sequence:
                raise ConflictError(
                    f"the mirror of {stream.name}#{name.number} in {to} begins at sequence"
                    f" {trim.first_sequence}, and its home has records from"
                    f" {begins.first_sequence} on: a home there would lack them for good"
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
            await trio.sleep(AGAIN_S)

    # The move.

    async def _perform(
        self, run: _Run, tell: Callable[[str], None], effect: Effect
    ) -> list[Effect]:
        core, move = run.core, run.move
        if isinstance(effect, GiveUp):
            run.failure = await move.gave_up(effect.error)
            if run.failure is None:
                run.flipped_s = trio.current_time()
            run.steps.cancel(reason="the move was given up")
            return []
        try:
            match effect:
                case MarkMoving():
                    await move.mark()
                    return core.on_marked()
                case EndAtHome(number):
                    ended = await self._end_at_home(run, number)
                    run.ended_s = trio.current_time()
                    run.records += ended.sequence_next
                    tell(f"draining to {move.to}")
                    return core.on_home_ended(number, ended)
                case AwaitMirror(number, last):
                    await self._await_mirror(move, move.mirror(number), last)
                    return core.on_mirror_near(number)
                case TakeMirror(number):
                    return core.on_mirror_ended(number, await self._take(run, number))
                case ReturnMirror(number):
                    await move.give_back([move.mirror(number)])
                    await trio.sleep(AGAIN_S)
                    return core.on_returned(number)
                case Flip():
                    return await self._flip(run, effect)
                case _:
                    assert_never(effect)
        except GeologError as error:
            return core.on_failed(error)

    async def _end_at_home(self, run: _Run, number: int) -> HomeEnded:
        """Wait until the log at home is final; take it over if its owner does not close it."""
        last = await run.move.end_home(number, patience_s=self.config.owner_patience_s)
        return HomeEnded(
            last,
            await run.move.segment_highest(number),
            FIRST_SEQUENCE if last is None else last.sequence_next,
        )

    async def _await_mirror(
        self, move: HomeMove, mirror: PartitionName, last: Watermark | None
    ) -> None:
        """Wait until the mirror seems to end with this entry: it is compared afterwards."""
        while last is not None:
            with suppress(UnavailableError, NoSuchLedgerError):
                row = await move.last_row(mirror)
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
        taken = await run.move.claim(number, run.move.to)
        mirror = run.move.mirror(number)
        last = await last_watermark(mirror, self.takeover, freshness=Freshness.NEARBY)
        return MirrorEnded(last, taken.owner.record.segment_highest)

    async def _flip(self, run: _Run, flip: Flip) -> list[Effect]:
        moves, move = self.takeover.partitions.home_moves, run.move
        assert move.marked is not None
        run.flipping_s = trio.current_time()
        while True:
            try:
                move.after = await moves.finish(move.marked, flip.forks, move.claims)
            except MirrorsReclaimedError as error:
                return run.core.on_reclaimed([name.number for name in error.names])
            except GeologError as error:
                if not error.retriable or isinstance(error, HomeMoveConflictError):
                    raise
                await trio.sleep(AGAIN_S)
                continue
            run.flipped_s = trio.current_time()
            return run.core.on_flipped()

    async def _abandon(self, run: _Run) -> None:
        """Nobody waits for the move any more: have the stream stay, if it has not moved."""
        if not run.core.has_moved:
            await run.move.stay()
