"""Decides how the home of a stream is moved when it is lost: what the new home begins with.

Theory of operation. The old home may be dead, cut off, or alive after all. Its mirrors have
prefixes of its log, some longer than others. The new home must have the longest that can be
read anywhere, and then say where its own log begins:

1. Mark the stream as being failed over. From then on no home opens a segment, and no relay can
   claim a mirror.
2. For each partition, concurrently: end the log at the old home, if its nodes answer, and take
   the mirror in each region. Each log that was ended or taken is final, and was cut at the
   forks that it had missed. Logs that do not answer in time are out of reach.
3. The best log of a partition is the one whose last entry has the highest home epoch, then
   segment, then entry: sequences alone would prefer a dead branch that is long. If the new
   home's mirror is not the best, it fetches from the best what it lacks. If that fails, the
   next best is taken, but only if that has all that was confirmed: all of the log that could
   not be fetched, unless the operator was told of a lower end. Else the failover is given up.
   The operator may name regions whose logs are left out, come what may.
4. Once the new home has the best of every partition: make it the home, with the fork of each
   partition behind that, in one step that also checks that its mirrors were not claimed since.

The stream's home decides nothing before step 4. If a step fails, or all take too long, the
failover is given up by the same compare-and-set. If the log at the old home was ended in every
partition, nothing that was answered is missing, and writers' sessions go on.

Invariants:
1. The home changes only while the new home's mirror of each partition is final, and ends with
   the best entry of all logs that were within reach.
2. Each fork lies directly behind that entry.
3. `is_whole` only if each partition was compared with the ended log of the old home.
4. No fork lies below what was confirmed of its partition; without that, below the end of a log
   that was ended, and could not be fetched.

Rules: PROTOCOL H19.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Several

import attrs

from geolog.protocol.home_record import Fork
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.switch_over import fork_behind
from geolog.protocol.watermark import Watermark
from topology.errors import GeologError, UnavailableError

Rank = tuple[int, int, int]


@attrs.frozen(kw_only=True)
class EndedLog:
    """A partition's log in one region, which takes nothing more."""

    last: Watermark | None
    """Its last entry; None if it has none."""
    row_highest: int
    """The highest number of a row in its list."""
    begins: Sequence = FIRST_SEQUENCE
    """The sequence at which it begins."""

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing: what ends before its beginning is not part of it."""
        return self.last is None or self.last.sequence_next < self.begins

    @property
    def sequence_next(self) -> Sequence:
        """The sequence behind its last record."""
        if self.last is None or self.is_empty:
            return self.begins
        return self.last.sequence_next

    @property
    def rank(self) -> Rank:
        """Orders logs of one partition: the highest is the best."""
        return rank_of(None if self.is_empty else self.last)


def rank_of(last: Watermark | None) -> Rank:
    """The rank of a log with this last entry."""
    if last is None:
        return (0, 0, -1)
    return (last.home_epoch, last.segment, last.entry)


@attrs.frozen
class MarkLost:
    """Mark the stream as being failed over; `on_marked`."""


@attrs.frozen
class EndHome:
    """End the log at the old home, and read its end; `on_ended` or `on_out_of_reach`."""

    number: int


@attrs.frozen
class TakeCandidate:
    """Take the mirror in a region over, and cut it; `on_ended` or `on_out_of_reach`."""

    number: int
    region: str


@attrs.frozen
class FetchMissing:
    """Bring what the new home's mirror lacks from a region.

    `on_fetched`; `on_not_fetched` if the log there cannot be read, `on_failed` if the new home
    cannot take it.
    """

    number: int
    region: str
    through: Watermark
    """The last entry there."""


@attrs.frozen
class MakeHome:
    """Make the new region the home; `on_flipped`, or `on_reclaimed`."""

    forks: tuple[Fork, ...]
    is_whole: bool
    """Whether nothing that the old home answered is missing."""


@attrs.frozen
class EndFailover:
    """Have the stream stay at its old home, and raise the error; then nothing."""

    error: GeologError


Effect = MarkLost | EndHome | TakeCandidate | FetchMissing | MakeHome | EndFailover


@attrs.define
class _Partition:
    logs: dict[str, EndedLog | None] = attrs.field(factory=dict)
    """By region; None for those out of reach. A region that is missing is still asked."""
    segment_highest: int | None = None
    """The highest segment number of any home until now, once it is known."""
    unfetched: dict[str, tuple[Sequence, GeologError]] = attrs.field(factory=dict)
    """By region: where a log ends that could not be fetched from there, and why."""
    fetching_from: str = ""
    """The region from which the new home's mirror is being completed."""
    is_ready: bool = False


class FailoverCourse:
    """The failover of one stream. Effects of one event may be performed concurrently."""

    def __init__(
        self,
        name: str,
        *,
        home: str,
        to: str,
        others: Several[str],
        home_epoch: int,
        partitions: int,
        confirmed: Mapping[int, int] | None = None,
        without: Several[str] = (),
    ) -> None:
        """home_epoch: of the home that is lost. others: the other regions that have mirrors.

        confirmed: for partitions the sequence at which the operator was told that the new home
        goes on, at least. without: regions whose logs are left out, the old home's among them.
        """
        self._name = name
        self._home = home
        self._to = to
        self._mirrors = (to, *(one for one in others if one not in without))
        self._confirmed = dict(confirmed or {})
        self._without = tuple(without)
        self._home_epoch = home_epoch
        self._partitions = [_Partition() for _ in range(partitions)]
        self._is_over = False
        self.has_moved = False
        """Whether the new region is the home."""

    def __repr__(self) -> str:
        ready = sum(one.is_ready for one in self._partitions)
        return f"FailoverCourse({self._name} to {self._to}, {ready} of {len(self._partitions)})"

    @property
    def is_whole(self) -> bool:
        """Whether the old home's log was ended in every partition, so that nothing is lost."""
        return all(map(self.is_ended_at_home, range(len(self._partitions))))

    def is_ended_at_home(self, number: int) -> bool:
        """Whether the old home's log of this partition was ended, so that its end is known."""
        return self._partitions[number].logs.get(self._home) is not None

    def begins(self, number: int) -> Sequence:
        """The sequence at which the new home's log of a partition begins, once it was taken."""
        mine = self._partitions[number].logs[self._to]
        assert mine is not None
        return mine.begins

    def begin(self) -> list[Effect]:
        """Begin to fail over."""
        return [MarkLost()]

    def on_marked(self) -> list[Effect]:
        """No home opens a segment, and no relay claims a mirror any more."""
        if self._is_over:
            return []
        effects: list[Effect] = []
        for number in range(len(self._partitions)):
            effects.append(EndHome(number))
            effects += [TakeCandidate(number, region) for region in self._mirrors]
        return effects

    def on_segment_highest(self, number: int, segment_highest: int) -> list[Effect]:
        """The highest segment number that a home has opened, read after the mark."""
        self._partitions[number].segment_highest = segment_highest
        return self._compare(number)

    def on_ended(self, number: int, region: str, ended: EndedLog) -> list[Effect]:
        """The log in that region takes nothing more, and ends so."""
        self._partitions[number].logs[region] = None if region in self._without else ended
        return self._compare(number)

    def on_out_of_reach(self, number: int, region: str, error: GeologError) -> list[Effect]:
        """The log in that region could not be ended or read in time."""
        if region == self._to:
            return self.on_failed(
                UnavailableError(
                    f"the mirror of {self._name}#{number} in {self._to} is out of reach, so it"
                    f" cannot become the home: {error}"
                )
            )
        self._partitions[number].logs[region] = None
        return self._compare(number)

    def on_fetched(self, number: int, ended: EndedLog) -> list[Effect]:
        """The new home's mirror has got all that it was to fetch, and ends so."""
        one = self._partitions[number]
        one.fetching_from = ""
        one.logs[self._to] = ended
        return self._compare(number)

    def on_not_fetched(
        self, number: int, region: str, ended: EndedLog, error: GeologError
    ) -> list[Effect]:
        """The log there could not be read to its end; the new home's mirror was ended again."""
        one = self._partitions[number]
        log = one.logs[region]
        assert log is not None
        one.fetching_from = ""
        one.logs[self._to] = ended
        one.unfetched[region] = (log.sequence_next, error)
        one.logs[region] = None
        return self._compare(number)

    def on_reclaimed(self, numbers: list[int]) -> list[Effect]:
        """Other processes have taken these mirrors of the new home; it has not changed."""
        if self._is_over:
            return []
        for number in numbers:
            one = self._partitions[number]
            one.is_ready = False
            del one.logs[self._to]
        return [TakeCandidate(number, self._to) for number in numbers]

    def on_flipped(self) -> list[Effect]:
        """The new region is the home."""
        self.has_moved = self._is_over = True
        return []

    def on_failed(self, error: GeologError) -> list[Effect]:
        """A step has failed for good, or another process ended the failover."""
        if self._is_over:
            return []
        self._is_over = True
        return [EndFailover(error)]

    def on_late(self, after_s: float, *, waiting_for: str = "") -> list[Effect]:
        """The time for all steps is over. waiting_for: all that was left to wait for."""
        behind = [one for one in self._partitions if not one.is_ready]
        sources = sorted({one.fetching_from for one in behind if one.fetching_from})
        why = (
            f"{len(behind)} of {len(self._partitions)} partitions are not ready in {self._to}"
            if behind
            else waiting_for or "metadata did not answer"
        )
        if sources:
            why += f", which fetches what it lacks from {', '.join(sources)}"
        return self.on_failed(
            UnavailableError(
                f"{self._name} was not failed over to {self._to} within {after_s:g} s: {why}."
                " Its home is unchanged"
            )
        )

    def _compare(self, number: int) -> list[Effect]:
        """FetchMissing what the new home lacks, or flip if that was the last partition."""
        one = self._partitions[number]
        asked = {self._home, *self._mirrors}
        if self._is_over or one.fetching_from or one.segment_highest is None:
            return []
        if not asked <= one.logs.keys():
            return []
        mine = one.logs[self._to]
        assert mine is not None
        region, best = max(
            ((region, log) for region, log in one.logs.items() if log is not None),
            key=lambda found: (found[1].rank, found[0] == self._to),
        )
        if region != self._to and best.rank > mine.rank:
            assert best.last is not None
            one.fetching_from = region
            return [FetchMissing(number, region, best.last)]
        if mine.sequence_next < self._least(number):
            return self.on_failed(self._too_low(number, mine.sequence_next))
        if mine.is_empty and mine.begins > FIRST_SEQUENCE:
            return self.on_failed(
                UnavailableError(
                    f"the mirror of {self._name}#{number} in {self._to} begins at sequence"
                    f" {mine.begins} and has nothing yet, so it cannot become the home: choose"
                    " another region"
                )
            )
        one.is_ready = True
        if not all(each.is_ready for each in self._partitions):
            return []
        return [MakeHome(tuple(map(self._fork, self._partitions)), self.is_whole)]

    def _least(self, number: int) -> int:
        """The sequence below which the new home must not go on."""
        unfetched = self._partitions[number].unfetched.values()
        ends = max((end for end, _ in unfetched), default=FIRST_SEQUENCE)
        return self._confirmed.get(number, ends)

    def _too_low(self, number: int, sequence: int) -> GeologError:
        """The error for a log that would go on below what was confirmed."""
        one = self._partitions[number]
        away = sorted(
            region
            for region, log in one.logs.items()
            if log is None and region not in self._without
        )
        why = "; ".join(
            f"the log in {region} could not be read to its end, {end}: {error}"
            for region, (end, error) in sorted(one.unfetched.items())
        )
        away_told = f"out of reach: {', '.join(away) or 'none'}"
        told = f"before {self._least(number)}" + (
            ", where it was confirmed to go on" if number in self._confirmed else ""
        )
        return UnavailableError(
            f"{self._name} was not failed over to {self._to}: #{number} would go on at sequence"
            f" {sequence}, {told} ({why or away_told})."
            " Its home is unchanged. Try again once the nodes there answer, choose another"
            f" region, or accept the loss and leave a region out (--without"
            f" {away[0] if away else 'REGION'})"
        )

    def _fork(self, one: _Partition) -> Fork:
        mine = one.logs[self._to]
        assert mine is not None
        assert one.segment_highest is not None
        return fork_behind(
            None if mine.is_empty else mine.last,
            home_epoch=self._home_epoch + 1,
            sequence=mine.sequence_next,
            segment_highest=one.segment_highest,
            row_highest=mine.row_highest,
        )
