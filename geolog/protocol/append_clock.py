"""The append times of entries: the owner's wall clock, limited by the metadata store's clock.

Theory of operation. Reads by time rely on append times, which never decrease. So a process with
a clock ahead would push forward the times of everything that others append after it. Each owner
writes to the metadata store. The answers carry the store's time, and the owner's monotonic
clock tells how long ago that was. A wall clock that is more than `AHEAD_US_MAX` ahead is not
believed: entries get that limit instead. A wall clock that is behind is believed.

A host that slept seems to be ahead, because its monotonic clock stood still. So the owner asks
the store again before it warns, and warns only with the answer. A failed question is repeated
after `RETRY_S`. While the host's clock is held back, the owner asks every `ASK_AGAIN_S`. The
owner reports a difference once, and again when it has changed by more than the limit. It also
reports the return to agreement. It cannot know which of the two clocks is wrong.

Rules: PROTOCOL S2.
"""

import attrs

AHEAD_US_MAX = 300_000_000
"""How far append times may be ahead of the metadata store's clock: five minutes."""

ASK_AGAIN_S = 60.0
"""Pause after an answer while the host's clock is held back and that was reported."""

RETRY_S = 1.0
"""Pause after a question that failed or had no clear answer."""


@attrs.frozen
class AskStore:
    """Ask the store for its time, then call `AppendClock.on_asked` with the outcome."""


@attrs.frozen
class ClockAhead:
    """Warn: the wall clock is this far ahead, and entries do not get its time."""

    ahead_us: int


@attrs.frozen
class ClockRight:
    """Report that the wall clock is believed again."""


ClockEffect = AskStore | ClockAhead | ClockRight


@attrs.define
class AppendClock:
    """The core of append times; one for each owner of a partition.

    Invariants: an append time is at most `AHEAD_US_MAX` ahead of the metadata store's clock,
    and equals the wall clock unless that is further ahead. It warns only if the store was asked
    after the clock was found ahead, and has answered.
    """

    _reported_us: int = 0
    """The reported difference; 0 while the clock is believed."""
    _is_asking: bool = False
    _is_sure: bool = False
    """Whether the store has answered since the clock was last read."""
    _answered_s: float = float("-inf")
    _ended_s: float = float("-inf")
    """When the last question was answered or failed."""

    def read(
        self, *, local_us: int, metadata_us: int, now_s: float
    ) -> tuple[int, list[ClockEffect]]:
        """The time for an entry, given both clocks, and the effects to perform."""
        is_sure, self._is_sure = self._is_sure, False
        ahead_us = local_us - metadata_us
        if ahead_us > AHEAD_US_MAX:
            return metadata_us + AHEAD_US_MAX, self._on_ahead(ahead_us, now_s, is_sure=is_sure)
        if self._reported_us and ahead_us <= AHEAD_US_MAX // 2:  # Half: it must not flap.
            self._reported_us = 0
            return local_us, [ClockRight()]
        return local_us, []

    def _on_ahead(self, ahead_us: int, now_s: float, *, is_sure: bool) -> list[ClockEffect]:
        is_news = abs(ahead_us - self._reported_us) > AHEAD_US_MAX
        if is_news and is_sure:
            self._reported_us = ahead_us
            return [ClockAhead(ahead_us)]
        is_due = is_news or now_s >= self._answered_s + ASK_AGAIN_S
        if self._is_asking or not is_due or now_s < self._ended_s + RETRY_S:
            return []
        self._is_asking = True
        return [AskStore()]

    def on_asked(self, *, is_answered: bool, now_s: float) -> None:
        """The store has answered, or the question failed. Read the clock again."""
        self._is_asking = False
        self._is_sure = is_answered
        self._ended_s = now_s
        if is_answered:
            self._answered_s = now_s
