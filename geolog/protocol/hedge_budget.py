"""The budget of extra requests: a share of the first requests of the last ten seconds.

Theory of operation. Hedging helps while few requests are late. When everything is slow, each
extra request makes everything slower. So the extra requests of the last `WINDOW_S` seconds may
not exceed a share of the first requests of the same time, or a small number that lets a reader
with few requests hedge at all. Bytes from another region cost more, and have a smaller
budget of their own. An extra request needs room in both.

Time is cut into slots of one second, and both sides of the account leave the window slot by
slot. So a quiet hour saves up for ten seconds, and no longer.

Invariant: over all slots of the window, what was taken is at most `share` of what was earned,
or `floor_per_s` for each second of the window if that is more.

Rules: PROTOCOL R19.
"""

import math

import attrs

WINDOW_S = 10
"""How long a first request is worth something, and an extra one is remembered, in seconds."""


@attrs.frozen(kw_only=True)
class HedgeBudgetConfig:
    """How much hedging may cost."""

    requests_share: float = 0.03
    """Extra requests, as a share of first requests."""

    requests_per_s: float = 1.0
    """Extra requests a second that are allowed in any case."""

    remote_bytes_share: float = 0.02
    """Bytes of extra requests to other regions, as a share of all bytes read."""

    remote_bytes_per_s: float = 256 * 1024
    """Bytes a second of extra requests to other regions that are allowed in any case."""


class ExtraAccount:
    """An account over the last `WINDOW_S` seconds: a share of what is earned may be taken."""

    def __init__(self, *, share: float, floor_per_s: float) -> None:
        self._share = share
        self._floor = floor_per_s * WINDOW_S
        self._slot = -1
        self._earned = [0.0] * WINDOW_S
        self._taken = [0.0] * WINDOW_S
        self._slot_end_s = -math.inf

    def earn(self, amount: float, now_s: float) -> None:
        """Something was spent anyway: a share of it may be spent on top."""
        if now_s >= self._slot_end_s:
            self._go_to(now_s)
        self._earned[self._slot % WINDOW_S] += amount

    def has(self, amount: float, now_s: float) -> bool:
        """Whether this much may be taken."""
        if now_s >= self._slot_end_s:
            self._go_to(now_s)
        allowed = max(self._floor, self._share * sum(self._earned))
        return sum(self._taken) + amount <= allowed

    def take(self, amount: float, now_s: float) -> None:
        """Take this much."""
        assert self.has(amount, now_s), "more was taken than there is"
        self._taken[self._slot % WINDOW_S] += amount

    def _go_to(self, now_s: float) -> None:
        slot = math.floor(now_s)
        for passed in range(max(self._slot + 1, slot - WINDOW_S + 1), slot + 1):
            self._earned[passed % WINDOW_S] = 0.0
            self._taken[passed % WINDOW_S] = 0.0
        self._slot = slot
        self._slot_end_s = slot + 1


class HedgeBudget:
    """The cost allowed to the extra requests of a process, over all its readers."""

    def __init__(self, config: HedgeBudgetConfig) -> None:
        self._requests = ExtraAccount(
            share=config.requests_share, floor_per_s=config.requests_per_s
        )
        self._remote_bytes = ExtraAccount(
            share=config.remote_bytes_share, floor_per_s=config.remote_bytes_per_s
        )
        self.refused_count = 0
        """Extra requests that there was no budget for."""

    def on_first_request(self, now_s: float) -> None:
        """A question was asked for the first time."""
        self._requests.earn(1, now_s)

    def on_bytes(self, size_bytes: int, now_s: float) -> None:
        """An answer of this size came."""
        self._remote_bytes.earn(size_bytes, now_s)

    def take(self, now_s: float, *, remote_bytes: int) -> bool:
        """Whether an extra request may go out; if so, it is paid for.

        remote_bytes: expected size of the answer if it comes from another region, otherwise 0.
        """
        if not self._requests.has(1, now_s) or not self._remote_bytes.has(remote_bytes, now_s):
            self.refused_count += 1
            return False
        self._requests.take(1, now_s)
        self._remote_bytes.take(remote_bytes, now_s)
        return True
