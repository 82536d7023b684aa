"""How many bytes of a link may be unanswered: as many as fill it, and hardly more.

Theory of operation. A link carries window / round trip, up to its bandwidth. The target says
how much it takes at most; all of that at once would fill the queues of a slow link, and what is
live would wait behind a replay. So the window begins small, and doubles while that pays: rounds
are measured in which the window, and nothing else, held the sender back. A round is the time in
which a whole window becomes durable. If none of `ROUNDS_MAX` rounds is `GROW_MIN` times as fast
as one with half the window, the link is full. The window is halved again if none was `KEEP_MIN`
times as fast; and a larger one is tried again after `RETRY_S`, because links change.

The first round after a change is not measured: half of it went out under the old window.

Invariant: the window is between `WINDOW_BYTES_MIN` and what the target takes, or that if less.

Rules: PROTOCOL B8.
"""

import math

WINDOW_BYTES_MIN = 1 << 20
"""The first window, and the smallest that is tried."""

GROW_MIN = 1.25
"""Gain in throughput after which the window is doubled again."""

KEEP_MIN = 1.05
"""Gain in throughput for which a window twice as large is kept."""

ROUNDS_MAX = 3
"""Rounds in which a larger window may show its gain."""

RETRY_S = 10.0
"""How long a link counts as full."""


class LinkWindow:
    """The core of one link's window; see the module's theory of operation."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = min(WINDOW_BYTES_MIN, bytes_max)
        self._rate_before = 0.0
        """Bytes per second with half this window; 0 if not known."""
        self._rate_best = 0.0
        """The highest with this window so far."""
        self._rounds_left = ROUNDS_MAX
        self._is_first_round = True
        self._begun_s: float | None = None
        """When the round began; None if the sender has nothing to wait for."""
        self._durable_bytes = 0
        self._full_until_s = -math.inf

    def __repr__(self) -> str:
        return f"LinkWindow({self._bytes} of {self._bytes_max})"

    @property
    def bytes(self) -> int:
        """How many bytes may be unanswered."""
        return self._bytes

    @property
    def bytes_max(self) -> int:
        """How many the target takes."""
        return self._bytes_max

    def limit(self, bytes_max: int) -> None:
        """The target takes this much from here on."""
        self._bytes_max = bytes_max
        self._set(min(max(self._bytes, WINDOW_BYTES_MIN), bytes_max))

    def on_full(self, now_s: float) -> None:
        """There is more to send, and the window forbids it."""
        if self._begun_s is None:
            self._begun_s, self._durable_bytes = now_s, 0

    def on_idle(self) -> None:
        """Nothing is to be sent, or something other than the window forbids it."""
        self._begun_s = None

    def on_durable(self, length_bytes: int, now_s: float) -> None:
        """So many bytes of the link have become durable."""
        if self._begun_s is None or now_s <= self._begun_s:
            return
        self._durable_bytes += length_bytes
        if self._durable_bytes >= self._bytes:
            rate = self._durable_bytes / (now_s - self._begun_s)
            self._begun_s, self._durable_bytes = now_s, 0
            if self._is_first_round:
                self._is_first_round = False
            elif now_s >= self._full_until_s:
                self._judge(rate, now_s)

    def _judge(self, rate: float, now_s: float) -> None:
        """Decide after a round of this many bytes per second."""
        self._rate_best = max(self._rate_best, rate)
        if rate >= GROW_MIN * self._rate_before:
            self._double(rate)
            return
        self._rounds_left -= 1
        if self._rounds_left:
            return
        self._full_until_s = now_s + RETRY_S
        is_kept = self._rate_best >= KEEP_MIN * self._rate_before
        least_bytes = min(WINDOW_BYTES_MIN, self._bytes_max)
        self._set(self._bytes if is_kept else max(least_bytes, self._bytes // 2))
        self._rate_before = 0.0

    def _double(self, rate: float) -> None:
        if self._bytes < self._bytes_max:
            self._rate_before = rate
            self._set(min(2 * self._bytes, self._bytes_max))

    def _set(self, window_bytes: int) -> None:
        self._bytes = window_bytes
        self._rate_best = 0.0
        self._rounds_left = ROUNDS_MAX
        self._is_first_round = True
        self._begun_s = None
