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
   next best is taken.
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

Rules: PROTOCOL H19.
"""

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
    def sequence_next(self) -> Sequence:
        """The sequence behind its last record."""
        return self.begins if self.last is None else self.last.sequence_next

    @property
    def rank(self) -> Rank:
        """Orders logs of one partition: the highest is the best."""
        return rank_of(self.last)


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
    """Bring what the new home's mirror lacks from a region; `on_fetched`, or `on_ended`."""

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
    is_fetching: bool = False
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
    ) -> None:
        """home_epoch: of the home that is lost. others: the other regions that have mirrors."""
        self._name = name
        self._home = home
        self._to = to
        self._mirrors = (to, *others)
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
        self._partitions[number].logs[region] = ended
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
        one.is_fetching = False
        one.logs[self._to] = ended
        return self._compare(number)

    def on_not_fetched(
        self, number: int, region: str, ended: EndedLog, error: GeologError
    ) -> list[Effect]:
        """The fetch from there failed; the new home's mirror was ended again."""
        one = self._partitions[number]
        one.is_fetching = False
        one.logs[self._to] = ended
        return self.on_out_of_reach(number, region, error)

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

    def on_late(self, after_s: float) -> list[Effect]:
        """The time for all steps is over."""
        behind = [n for n, one in enumerate(self._partitions) if not one.is_ready]
        why = (
            f"{len(behind)} of {len(self._partitions)} partitions are not ready in {self._to}"
            if behind
            else "metadata did not answer"
        )
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
        if self._is_over or one.is_fetching or one.segment_highest is None:
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
            one.is_fetching = True
            return [FetchMissing(number, region, best.last)]
        if mine.last is None and mine.begins > FIRST_SEQUENCE:
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

    def _fork(self, one: _Partition) -> Fork:
        mine = one.logs[self._to]
        assert mine is not None
        assert one.segment_highest is not None
        return fork_behind(
            mine.last,
            home_epoch=self._home_epoch + 1,
            sequence=mine.sequence_next,
            segment_highest=one.segment_highest,
            row_highest=mine.row_highest,
        )
