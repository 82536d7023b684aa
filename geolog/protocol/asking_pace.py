"""Paces repeated questions to a peer that does not answer.

Theory of operation. Each failure doubles the pause before the next question, up to a bound. A
random factor shortens the pause by up to a half, so that peers that started asking together
drift apart. An answer resets the pace. When the peer is known to be back, the next question
falls due at a random moment within the first pause, because every waiter learns of the return
at the same instant.
"""

import math
import random

_SHORTEST_SHARE = 0.5
_DOUBLINGS_MAX = 30


class AskingPace:
    """When to ask next: at `due_s`, which lies in the past while questions are answered."""

    def __init__(self, *, pause_s_first: float, pause_s_max: float, rng: random.Random) -> None:
        self._pause_s_first = pause_s_first
        self._pause_s_max = pause_s_max
        self._rng = rng
        self._failures_count = 0
        self.due_s = -math.inf

    def __repr__(self) -> str:
        return f"AskingPace({self._failures_count} failures, due at {self.due_s:g})"

    def on_failed(self, *, now_s: float) -> None:
        """A question failed."""
        doublings_count = min(self._failures_count, _DOUBLINGS_MAX)
        pause_s = min(self._pause_s_first * 2**doublings_count, self._pause_s_max)
        self._failures_count += 1
        self.due_s = now_s + pause_s * self._rng.uniform(_SHORTEST_SHARE, 1.0)

    def on_back(self, *, now_s: float) -> None:
        """The peer can be reached again."""
        self.due_s = min(self.due_s, now_s + self._rng.uniform(0.0, self._pause_s_first))

    def on_answered(self) -> None:
        """The peer answered."""
        self._failures_count = 0
        self.due_s = -math.inf
