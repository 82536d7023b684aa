"""Where a `regional` stream is at home, and where the logs of earlier homes end.

Theory of operation. A regional stream has one home at a time. Each home has an epoch of its
own; the first is 1. Everything that an owner changes in the list of segments at home, every
growth and every trim checks the version of this record in the same step, so a home that was
moved away changes nothing any more. A later home's log begins at its fork in the log of the
home before it: what an earlier home wrote beyond the fork belongs to no lineage that goes on.

Rules: PROTOCOL H1.
"""

import enum

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
    segment: int
    entry: SegmentEntry
    """Number of the first entry that is not of the lineage any more."""
    sequence: Sequence
    """The first sequence of the new home."""


@attrs.frozen(kw_only=True)
class HomeRecord:
    """The home of one `regional` stream."""

    region: str
    home_epoch: int
    state: HomeState = HomeState.SETTLED
    forks: tuple[tuple[Fork, ...], ...] = ()
    """For each partition the forks of the epochs after the first, rising; may be shorter."""

    def check_settled_in(self, home_epoch: int, what: object) -> None:
        """FencedError unless the stream is at home in this epoch; `what` is named in it."""
        if self.home_epoch != home_epoch:
            raise FencedError(
                f"the home of {what} is {self.region} now, in home epoch {self.home_epoch};"
                f" this owner is of home epoch {home_epoch}"
            )
        if self.state is HomeState.MOVING:
            raise FencedError(f"the home of {what} is moving away from {self.region}")
