"""The time that entries get: the owner's wall clock, held to the metadata store's.

Theory of operation. Reads by time and retention by age go by append times, and they never
decrease: one process with a clock ahead would stamp all that others append after it. Each owner
writes to the metadata store, whose answers say what time it is there, and its monotonic clock
says how long ago that was. A wall clock that is further ahead than `AHEAD_US_MAX` is not
believed: entries get that limit instead. One that is behind is believed.

A clock that is ahead is told once, then again when it has moved by more than the limit, and so
is its return.

Rules: PROTOCOL S2.
"""

import attrs

AHEAD_US_MAX = 300_000_000
"""How far append times may be ahead of the metadata store's clock: five minutes."""


@attrs.frozen
class ClockAhead:
    """Warn: the wall clock is this far ahead, and entries do not get its time."""

    ahead_us: int


@attrs.frozen
class ClockRight:
    """Say that the wall clock is believed again."""


ClockNotice = ClockAhead | ClockRight


@attrs.define
class AppendClock:
    """The core; one for each owner of a partition.

    Invariants: a time it gives is at most `AHEAD_US_MAX` ahead of the metadata store's, and is
    the wall clock's unless that is further ahead.
    """

    _told_us: int = 0
    """How far ahead the clock was when that was last told; 0 while it is believed."""

    @property
    def is_held_back(self) -> bool:
        """Whether the wall clock was found ahead, and not yet found right again."""
        return self._told_us > 0

    def read(self, *, local_us: int, metadata_us: int) -> tuple[int, ClockNotice | None]:
        """The time for an entry, given both clocks, and what is to be told of them."""
        ahead_us = local_us - metadata_us
        if ahead_us > AHEAD_US_MAX:
            if abs(ahead_us - self._told_us) <= AHEAD_US_MAX:
                return metadata_us + AHEAD_US_MAX, None
            self._told_us = ahead_us
            return metadata_us + AHEAD_US_MAX, ClockAhead(ahead_us)
        if self._told_us and ahead_us <= AHEAD_US_MAX // 2:  # Not at each step over the limit.
            self._told_us = 0
            return local_us, ClockRight()
        return local_us, None
