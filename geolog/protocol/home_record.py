"""Where a `regional` stream is at home, and where the logs of earlier homes end.

Theory of operation. A regional stream has one home at a time. Each home has an epoch of its
own; the first is 1. Everything that an owner changes in the list of segments at home, every
growth and every trim checks the version of this record in the same step, so a home that was
moved away changes nothing any more. A later home's log begins at its fork in the log of the
home before it: what an earlier home wrote beyond the fork belongs to no lineage that goes on.

A home that moves is `moving` first: it closes what is open, and opens nothing more. Its mover
makes the record `settled` again, at the new home or at the old one, in one compare-and-set; so
a move that is given up has not happened. If the mover dies, anybody may give up for it.

A home that was lost does not close anything: the move is a failover then. It does not wait for
the old home, and its fork may lie before records that the old home has answered. While it is
under way, no relay can claim a mirror, so what the mirrors have is final.

An epoch ends at its branch point: the lowest fork of any later epoch. Entries of it beyond that
are a dead branch, wherever they are found, and however many forks their log has missed.

A log keeps its list when its region becomes the home. So at a later home a segment's number is
that of its row and an offset, which is chosen so that no earlier home has used the number.

Rules: PROTOCOL H1, H18 to H20 and H23.
"""

import enum
from collections.abc import Iterable
from collections.abc import Sequence as Several
from itertools import zip_longest

import attrs

from geolog.protocol.ids import SegmentEntry, Sequence
from topology.errors import FencedError


class HomeState(enum.Enum):
    """Whether the home takes appends."""

    SETTLED = "settled"
    MOVING = "moving"
    """Another region is becoming the home: nothing is appended meanwhile."""


@attrs.frozen(kw_only=True)
class Fork:
    """Where the log of a home epoch begins in the log before it, in one partition."""

    home_epoch: int
    """Of the home that begins."""
    segment: int
    """Of the last entry before it; 0 if there is none."""
    entry: SegmentEntry
    """Number of the first entry, in that segment, that is not of the lineage any more."""
    sequence: Sequence
    """The first sequence of the new home."""
    segment_offset: int = 0
    """A segment's number at the new home is that of its row, and this."""
    segment_next: int = 0
    """The lowest number that a segment of the new home may have."""

    def is_before(self, segment: int, entry: SegmentEntry) -> bool:
        """Whether that entry, of an earlier home, is not of the lineage any more."""
        return (self.segment, self.entry) <= (segment, entry)


def branch_point(forks: Iterable[Fork], home_epoch: int) -> Fork | None:
    """Where a partition's log of a home epoch ends; None if no later home has begun.

    forks: of the partition. The lowest fork of any later epoch; of equal ones the last.
    """
    later = [one for one in forks if one.home_epoch > home_epoch]
    return min(later, key=lambda one: (one.segment, one.entry, -one.home_epoch), default=None)


def fork_before_place(forks: Iterable[Fork], segment: int, entry: SegmentEntry) -> Fork | None:
    """Where a partition's log goes on, if that entry is part of a dead branch; else None.

    forks: of the partition. The numbers of segments tell homes apart.
    """
    passed = [
        one for one in forks if one.is_before(segment, entry) and segment < one.segment_next
    ]
    return min(passed, key=lambda one: (one.segment, one.entry, -one.home_epoch), default=None)


def forks_between(
    forks: Several[Several[Fork]], after: int, through: int
) -> tuple[tuple[Fork, ...], ...]:
    """For each partition the forks of the epochs behind `after`, up to `through`."""
    return tuple(
        tuple(one for one in each if after < one.home_epoch <= through) for each in forks
    )


def forks_joined(
    parts: Iterable[Several[Several[Fork]]],
) -> tuple[tuple[Fork, ...], ...]:
    """For each partition all of its forks; they rise from part to part."""
    return tuple(
        tuple(one for each in of_each for one in each)
        for of_each in zip_longest(*parts, fillvalue=())
    )


@attrs.frozen
class Lineage:
    """The home epochs of the segments of one partition."""

    first: int
    """Of the first segments."""
    forks: tuple[tuple[int, int], ...] = ()
    """Rising: the last segment before another home, and the home epoch of those behind it."""

    @classmethod
    def of(cls, home_epoch: int, forks: tuple[tuple[int, int], ...]) -> "Lineage":
        """Of a log in this home epoch, with these forks behind it."""
        return cls(forks[0][1] - 1 if forks else home_epoch, forks)

    def home_epoch_of(self, segment: int) -> int:
        """The home epoch in which a segment of the log was written."""
        found = self.first
        for last_before, home_epoch in self.forks:
            if segment <= last_before:
                break
            found = home_epoch
        return found


@attrs.frozen(kw_only=True)
class HomeRecord:
    """The home of one `regional` stream."""

    region: str
    home_epoch: int
    state: HomeState = HomeState.SETTLED
    moving_to: str = ""
    """The region that becomes the home; empty while it is settled."""
    mover: str = ""
    """Path of the ephemeral node of the process that moves it, likewise."""
    move_id: str = ""
    """Unique to this move, likewise: so its mover knows whether a lost request was stored."""
    is_failover: bool = False
    """Whether the home that moves is lost: then the move does not wait for it."""
    forks: tuple[tuple[Fork, ...], ...] = ()
    """For each partition the forks of the epochs after the first, rising; may be shorter."""
    forks_apart: tuple[int, ...] = ()
    """Rising. Forks up to the last of these epochs are stored apart, in a document for each of
    them: that has those of the epochs up to it which no earlier document has. They never
    change."""

    def check_settled_in(self, home_epoch: int, what: object) -> None:
        """FencedError unless it takes appends in this epoch; `what` is named in it."""
        self.check_home_in(home_epoch, what)
        if self.state is HomeState.MOVING:
            raise FencedError(
                f"the home of {what} is moving from {self.region} to {self.moving_to}"
            )

    def check_home_in(self, home_epoch: int, what: object) -> None:
        """FencedError unless the stream is at home in this epoch, moving or not."""
        if self.home_epoch != home_epoch:
            raise FencedError(
                f"the home of {what} is {self.region} now, in home epoch {self.home_epoch};"
                f" this owner is of home epoch {home_epoch}"
            )

    def lineage(self, number: int) -> "Lineage":
        """The home epochs that the log of one partition has gone through."""
        forks = tuple((one.segment, one.home_epoch) for one in self.forks_of(number))
        return Lineage.of(self.home_epoch, forks)

    def segment_offset(self, number: int, home_epoch: int) -> int:
        """The number to add to a row's in this home epoch to get the segment's."""
        return next(
            (
                one.segment_offset
                for one in self.forks_of(number)
                if one.home_epoch == home_epoch
            ),
            0,  # The first home, or a partition that was added at a later one.
        )

    def forks_of(self, number: int) -> tuple[Fork, ...]:
        """The forks of one partition, rising."""
        return self.forks[number] if number < len(self.forks) else ()

    @property
    def at_hand(self) -> tuple[tuple[Fork, ...], ...]:
        """For each partition the forks that are stored in the record itself."""
        if not self.forks_apart:
            return self.forks
        return forks_between(self.forks, self.forks_apart[-1], self.home_epoch)

    def set_apart(self) -> tuple["HomeRecord", "ForksRecord"]:
        """The record with none of its forks at hand, and the document that has those."""
        apart = (*self.forks_apart, self.home_epoch)
        return attrs.evolve(self, forks_apart=apart), ForksRecord(self.at_hand)

    def moving(
        self, to: str, mover: str, move_id: str, *, is_failover: bool = False
    ) -> "HomeRecord":
        """The record while that process moves the home to that region."""
        return attrs.evolve(
            self,
            state=HomeState.MOVING,
            moving_to=to,
            mover=mover,
            move_id=move_id,
            is_failover=is_failover,
        )

    def stayed(self) -> "HomeRecord":
        """The record after a move that was given up."""
        return attrs.evolve(
            self,
            state=HomeState.SETTLED,
            moving_to="",
            mover="",
            move_id="",
            is_failover=False,
        )

    def moved(self, forks: tuple[Fork, ...]) -> "HomeRecord":
        """The record at the new home, whose log begins at these forks."""
        assert self.state is HomeState.MOVING, f"{self} moves nowhere"
        return HomeRecord(
            region=self.moving_to,
            home_epoch=self.home_epoch + 1,
            forks=tuple((*self.forks_of(number), one) for number, one in enumerate(forks)),
            forks_apart=self.forks_apart,
        )


@attrs.frozen
class ForksRecord:
    """Forks that are stored apart from the home record."""

    forks: tuple[tuple[Fork, ...], ...]
    """For each partition those of some consecutive epochs, rising; may be shorter."""
