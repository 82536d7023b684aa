"""Moves the home of a stream that is lost; `FailoverCourse` decides, this shell does.

It runs in the process of the operator, anywhere in the cluster. Its process is shown in
metadata meanwhile: if it ends in the middle, the next relay or owner gives the failover up.

Rules: PROTOCOL H19, H20 and H25.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
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
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.segment_records import SegmentRecords
from geolog.partition.branch_cut import without_dead_branch, without_rows_before_begin
from geolog.partition.home_move import AGAIN_S, END_S_MAX, HomeMove, follow
from geolog.partition.mirror_fetch import CannotFetchError, FetchProgress, fetch_into
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.failover import (
    Effect,
    EndedLog,
    EndFailover,
    EndHome,
    FailoverCourse,
    FetchMissing,
    MakeHome,
    MarkLost,
    TakeCandidate,
)
from geolog.protocol.failover_record import (
    FailoverRecord,
    HeardTail,
    RangeAtRisk,
    RiskTotal,
    latest_tails,
    range_at_risk,
    risk_total,
)
from geolog.protocol.home_record import Fork
from geolog.protocol.isolation_lease import longest_lease_s, wait_of_failover_s
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.watermark import Watermark
from topology.errors import GeologError, InvalidArgumentError, UnavailableError

_log = logging.getLogger(__name__)

_AT_ONCE_MAX = 256
"""Logs that are ended, taken over or fetched at the same time."""

_GONE_AFTER = 8
"""A lost home of which so many logs did not answer is not waited for long any more."""
_GONE_S = 0.5


@attrs.frozen(kw_only=True)
class FailoverConfig:
    """Bounds of one failover."""

    timeout_s: float = 60.0
    """Time for all steps."""

    owner_patience_s: float = 1.0
    """How long owners at the old home may take to close their segments, if they are alive."""

    home_patience_s: float = 4.0
    """How long the old home's nodes may take to give the end of a log."""

    mirror_patience_s: float = 15.0
    """How long the nodes of a mirror may take."""

    fetch_still_s: float = 15.0
    """How long nothing may be read from a region before its log counts as unreadable."""


@attrs.frozen(kw_only=True)
class FailoverReport:
    """A failover that has succeeded."""

    stream: str
    home_before: str
    home: str
    home_epoch: int
    partitions: int
    ranges: tuple[RangeAtRisk, ...]
    """For each partition what the new home may lack."""
    fetched: tuple[tuple[int, str], ...]
    """The partitions that the new home completed from other regions, and from which."""
    out_of_reach: tuple[str, ...]
    """The regions, the old home included, whose logs could not all be compared."""
    may_answer_on: tuple[int, ...]
    """Partitions whose owner at the old home may not know yet that it is to stop when it is cut
    off (`on_isolation="stop"`), so it may go on acknowledging appends."""
    ended_s: float
    """Time from the mark until the new home had the best log of each partition."""
    flipped_s: float
    """Time of the step that made the new region the home."""

    @property
    def is_nothing_lost(self) -> bool:
        """Whether nothing that was answered is missing in the new home."""
        return all(one.is_nothing_lost for one in self.ranges)

    @property
    def at_risk(self) -> RiskTotal:
        """Total that the new home may lack."""
        return risk_total(self.ranges)


@attrs.define(eq=False)
class _Run:
    move: HomeMove
    core: FailoverCourse
    tails: dict[int, HeardTail]
    known: dict[int, int] = attrs.field(factory=dict, init=False)
    """For each partition the sequence behind the last record that metadata knows of."""
    begins_at_home: dict[int, int] = attrs.field(factory=dict, init=False)
    """For each partition where the old home, or the stream before it, begins."""
    began_s: float
    steps: trio.CancelScope
    taken: dict[int, tuple[TakenOver, Watermark | None]] = attrs.field(factory=dict)
    """The new home's mirrors, as they were taken over last, with their last entries."""
    fetched: list[tuple[int, str]] = attrs.field(factory=list)
    fetching: defaultdict[str, FetchProgress] = attrs.field(
        factory=partial(defaultdict, FetchProgress)
    )
    """Entries that were fetched from each region."""
    out_of_reach: Counter[str] = attrs.field(factory=Counter)
    """Logs of each region that did not answer in time."""
    compared: dict[int, set[str]] = attrs.field(factory=dict)
    """For each partition the regions whose mirrors were taken."""
    may_answer_on: Sequence[int] = ()
    ranges: tuple[RangeAtRisk, ...] = ()
    waiting_for: str = ""
    """For leases of the old home, once nothing else is left to do."""
    marked_s: float = 0.0
    flipping_s: float = 0.0
    flipped_s: float = 0.0
    failure: GeologError | None = None


@attrs.frozen(kw_only=True)
class HomeFailover:
    """Moves homes of streams that are lost."""

    who: str
    """This process's name in owner records."""
    takeover: Takeover
    partition: PartitionConfig
    config: FailoverConfig = attrs.field(factory=FailoverConfig)

    async def move(
        self,
        stream: StreamRecord,
        to: str,
        tails: Sequence[HeardTail],
        tell: Callable[[str], None] = lambda _step: None,
        *,
        confirmed: Mapping[int, int] | None = None,
        without: Sequence[str] = (),
    ) -> FailoverReport:
        """Make region `to` the home of a stream, without the old home if it does not answer.

        tails: what targets heard of the old home last. tell: hears what is done now. confirmed:
        for each partition the sequence at which the operator was told that the new home goes
        on; it does not go on before that. without: regions whose logs are left out. If it
        fails, the stream stays at its home: UnavailableError, or OutcomeUnknownError if
        metadata does not tell. InvalidArgumentError or SealedError if it cannot move there;
        HomeMoveConflictError if another process moves it.
        """
        check_can_move(stream, to, is_failover=True)
        assert stream.home is not None
        await self.takeover.owners.be_present()
        core = FailoverCourse(
            str(stream.name),
            home=stream.home,
            to=to,
            others=[one for one in stream.relay_to if one != to],
            home_epoch=stream.home_epoch,
            partitions=stream.partitions,
            confirmed=confirmed,
            without=without,
        )
        move = HomeMove(stream=stream, to=to, who=self.who, takeover=self.takeover)
        patience = trio.move_on_after(self.config.timeout_s)
        run = _Run(move, core, latest_tails(tails), trio.current_time(), patience)
        perform = partial(self._perform, run, tell)
        tell("comparing logs")
        try:
            with patience:
                await follow(core.begin(), perform, _AT_ONCE_MAX)
            if patience.cancelled_caught:
                late = core.on_late(self.config.timeout_s, waiting_for=run.waiting_for)
                await follow(late, perform, _AT_ONCE_MAX)
        except BaseException:
            if not core.has_moved:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S_MAX):
                    await move.stay()
            raise
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + END_S_MAX):
                await move.give_back(list(move.claims))
        if run.failure is not None:
            raise run.failure
        after = move.after
        assert after is not None
        assert after.home is not None
        return FailoverReport(
            stream=str(stream.name),
            home_before=stream.home,
            home=after.home,
            home_epoch=after.home_epoch,
            partitions=after.partitions,
            ranges=run.ranges,
            fetched=tuple(sorted(run.fetched)),
            out_of_reach=tuple(sorted(run.out_of_reach)),
            may_answer_on=tuple(run.may_answer_on),
            ended_s=run.flipping_s - run.began_s,
            flipped_s=run.flipped_s - run.flipping_s,
        )

    async def _perform(
        self, run: _Run, tell: Callable[[str], None], effect: Effect
    ) -> list[Effect]:
        core, move = run.core, run.move
        if isinstance(effect, EndFailover):
            run.failure = await move.gave_up(effect.error)
            run.flipped_s = trio.current_time()
            run.steps.cancel(reason="the failover was given up")
            return []
        try:
            match effect:
                case MarkLost():
                    await self._check_leases(move)
                    await move.mark(is_failover=True)
                    run.marked_s = trio.current_time()
                    return core.on_marked()
                case EndHome(number):
                    return await self._end_home(run, number)
                case TakeCandidate(number, region):
                    return await self._take(run, number, region)
                case FetchMissing():
                    tell(f"fetching from {effect.region}")
                    return await self._fetch(run, effect)
                case MakeHome():
                    await self._outlive_leases(run, tell)
                    tell(f"making {move.to} the home")
                    return await self._flip(run, effect)
                case _:
                    assert_never(effect)
        except GeologError as error:
            return core.on_failed(error)

    async def _check_leases(self, move: HomeMove) -> None:
        """InvalidArgumentError if leases at home outlast the time for all steps."""
        owners = self.takeover.partitions.owners
        names = move.stream.partition_names()
        found = await all_of(
            [partial(owners.read_latest, one) for one in names], at_once_max=_AT_ONCE_MAX
        )
        setting_s = move.stream.isolation_lease_s
        lease_s = longest_lease_s(setting_s, [one.record for one in found])
        wait_s, timeout_s = wait_of_failover_s(lease_s), self.config.timeout_s
        if lease_s > 0 and wait_s >= timeout_s:
            raise InvalidArgumentError(
                f"owners of {move.stream.name} in {move.stream.home} may answer inside a lease"
                f" of {lease_s:g} s, which a failover waits for, and it was given"
                f" {timeout_s:g} s: give it more than {wait_s:.3g} s (--within). Nothing was"
                " changed"
            )

    async def _outlive_leases(self, run: _Run, tell: Callable[[str], None]) -> None:
        """Wait while owners of the old home may answer inside of their leases."""
        move = run.move
        setting_s = move.stream.isolation_lease_s
        lease_s = longest_lease_s(setting_s, move.owners_at_home.values())
        until_s = run.marked_s + wait_of_failover_s(lease_s)
        left_s = until_s - trio.current_time()
        if lease_s <= 0 or left_s <= 0:
            return
        run.waiting_for = f"leases of {lease_s:g} s in {move.stream.home} were not over yet"
        tell(f"waiting {left_s:.1f} s until leases in {move.stream.home} are over")
        await trio.sleep_until(until_s)
        run.waiting_for = ""

    async def _end_home(self, run: _Run, number: int) -> list[Effect]:
        """End the log at the old home, if its nodes answer in time."""
        core, move, home = run.core, run.move, run.move.stream.home
        assert home is not None
        effects = core.on_segment_highest(number, await move.segment_highest(number))
        name = move.stream.partition(number)
        run.known[number] = await last_known_sequence(self.takeover.partitions.segments, name)
        trim = await self.takeover.partitions.trims.read_latest(name)
        run.begins_at_home[number] = trim.followed
        failed: GeologError = UnavailableError(f"{home} did not answer")
        with trio.move_on_after(self._patience_s(run, home, self.config.home_patience_s)):
            try:
                last = await move.end_home(number, patience_s=self.config.owner_patience_s)
                ended = EndedLog(last=last, row_highest=0, begins=trim.first_sequence)
                return [*effects, *core.on_ended(number, home, ended)]
            except HomeMoveConflictError:
                raise  # Another process has ended this failover: the home is not out of reach.
            except GeologError as error:
                failed = error
        run.out_of_reach[home] += 1
        return [*effects, *core.on_out_of_reach(number, home, failed)]

    def _patience_s(self, run: _Run, region: str, patience_s: float) -> float:
        """How long to wait for a log in a region."""
        is_home = region == run.move.stream.home
        return patience_of(patience_s, run.out_of_reach[region], is_home=is_home)

    async def _take(self, run: _Run, number: int, region: str) -> list[Effect]:
        failed: GeologError = UnavailableError(f"{region} did not answer")
        with trio.move_on_after(self._patience_s(run, region, self.config.mirror_patience_s)):
            try:
                return run.core.on_ended(number, region, await self._taken(run, number, region))
            except GeologError as error:
                failed = error
        run.out_of_reach[region] += 1
        return run.core.on_out_of_reach(number, region, failed)

    async def _taken(self, run: _Run, number: int, region: str) -> EndedLog:
        """A mirror as it ends, once it is taken over and cut at the forks that it missed."""
        partitions = self.takeover.partitions
        taken = await run.move.claim(number, region)
        name = run.move.mirror(number, region)
        taken, last = await without_dead_branch(
            name, taken, self.takeover, _forks_of(run.move, number), region=region
        )
        trim = await partitions.trims.read(name)
        last = await without_rows_before_begin(name, taken, last, trim, self.takeover)
        run.compared.setdefault(number, set()).add(region)
        if region == run.move.to:
            run.taken[number] = taken, last
        return EndedLog(
            last=last,
            row_highest=taken.owner.record.segment_highest,
            begins=trim.first_sequence,
        )

    async def _fetch(self, run: _Run, fetch: FetchMissing) -> list[Effect]:
        """Complete the new home's mirror from another region's log, and end it again."""
        move, number = run.move, fetch.number
        mirror = move.mirror(number)
        failed: CannotFetchError | None = None
        taken, last = run.taken.pop(number)
        try:
            await fetch_into(
                mirror,
                taken,
                last,
                source=move.mirror(number, fetch.region),
                through=fetch.through,
                stream=move.stream,
                forks=_forks_of(run.move, number),
                takeover=self.takeover,
                config=self.partition,
                progress=run.fetching[fetch.region],
                still_s=self.config.fetch_still_s,
            )
            run.fetched.append((number, fetch.region))
        except CannotFetchError as error:
            _log.warning("%s: could not be completed from %s: %s", mirror, fetch.region, error)
            failed = error
        except GeologError as error:
            return run.core.on_failed(
                UnavailableError(
                    f"{mirror} cannot take what it lacks from {fetch.region}: {error}. The home"
                    " is unchanged"
                )
            )
        finally:
            move.claims.pop(mirror, None)  # Its writer has released it.
        ended = await self._taken(run, number, move.to)
        if failed is None:
            return run.core.on_fetched(number, ended)
        run.out_of_reach[fetch.region] += 1
        return run.core.on_not_fetched(number, fetch.region, ended, failed)

    async def _flip(self, run: _Run, flip: MakeHome) -> list[Effect]:
        moves, move = self.takeover.partitions.home_moves, run.move
        assert move.marked is not None
        if move.stream.isolation_lease_s is not None:
            run.may_answer_on = _told_nothing(move, run.core)
        run.flipping_s = trio.current_time()
        run.ranges = tuple(
            range_at_risk(
                number,
                from_sequence=fork.sequence,
                tail=run.tails.get(number),
                known=run.known.get(number, 0),
                is_end_known=run.core.is_ended_at_home(number),
                older_records=max(0, run.core.begins(number) - run.begins_at_home[number]),
                compared=run.compared.get(number, ()),
                from_us=_last_append_us(run, number),
                passed_s=run.flipping_s - run.began_s,
            )
            for number, fork in enumerate(flip.forks)
        )
        owners = {
            name: owner
            for name, owner in move.claims.items()
            if move.stream.region_of(name) == move.to
        }
        while True:
            try:
                move.after = await moves.finish(
                    move.marked,
                    flip.forks,
                    owners,
                    record_of=partial(self._record, run),
                    is_whole=flip.is_whole,
                )
            except MirrorsReclaimedError as error:
                return run.core.on_reclaimed([name.number for name in error.names])
            except GeologError as error:
                if not error.retriable or isinstance(error, HomeMoveConflictError):
                    raise
                await trio.sleep(AGAIN_S)
                continue
            run.flipped_s = trio.current_time()
            return run.core.on_flipped()

    def _record(self, run: _Run, after: StreamRecord) -> FailoverRecord:
        stream = run.move.stream
        assert stream.home is not None
        assert after.home is not None
        return FailoverRecord(
            home_epoch=after.home_epoch,
            home_before=stream.home,
            home=after.home,
            decided_us=self.takeover.now_us(),
            who=self.who,
            ranges=run.ranges,
        )


def _told_nothing(move: HomeMove, core: FailoverCourse) -> list[int]:
    """Partitions whose owners may go on answering without a lease: they are not fenced."""
    return [
        number
        for number, owner in sorted(move.owners_at_home.items())
        if owner.may_answer_always and not core.is_ended_at_home(number)
    ]


def patience_of(patience_s: float, silent_count: int, *, is_home: bool) -> float:
    """How long to wait for a log in a region of which so many gave no answer in time.

    Not long at a home that is lost. Elsewhere single logs may be slow, and the records of a
    better one that is passed over are left behind.
    """
    return min(patience_s, _GONE_S) if is_home and silent_count >= _GONE_AFTER else patience_s


def _last_append_us(run: _Run, number: int) -> int | None:
    """When the last record of the new home's log was appended, by the clock of its home."""
    if number not in run.taken:
        return None
    return run.taken[number][0].state.append_time_us or None


def _forks_of(move: HomeMove, number: int) -> tuple[Fork, ...]:
    assert move.marked is not None
    return move.marked.home.record.forks_of(number)


async def last_known_sequence(segments: SegmentRecords, home: PartitionName) -> int:
    """The sequence behind the last record of a log that metadata knows of; 0 if of none."""
    async with aclosing(segments.numbers_back(home)) as numbers:
        async for number in numbers:
            for found in await segments.at(home, [number]):
                last = found.record.last_sequence
                return found.record.first_sequence if last is None else last + 1
    return 0
