"""How often somebody is asked again who does not answer.

Theory of operation. Each failure doubles the pause before the next question, up to a bound, and
chance shortens it by up to a half: those who began to ask together soon ask apart. An answer
ends all that. When it is known that there is somebody again to ask, the next question is due
within the first pause, at a moment of chance, for everybody who waits hears that at once.
"""

import math
import random

_SHORTEST_SHARE = 0.5
_DOUBLINGS_MAX = 30


class AskingPace:
    """When to ask next: `due_s`, in the past as long as all is answered."""

    def __init__(self, *, pause_s_first: float, pause_s_max: float, rng: random.Random) -> None:
        self._pause_s_first = pause_s_first
        self._pause_s_max = pause_s_max
        self._rng = rng
        self._failures_count = 0
        self.due_s = -math.inf

    def __repr__(self) -> str:
        return f"AskingPace({self._failures_count} failures, due at {self.due_s:g})"

    def on_failed(self, *, now_s: float) -> None:
        """It was asked, and did not answer."""
        doublings_count = min(self._failures_count, _DOUBLINGS_MAX)
        pause_s = min(self._pause_s_first * 2**doublings_count, self._pause_s_max)
        self._failures_count += 1
        self.due_s = now_s + pause_s * self._rng.uniform(_SHORTEST_SHARE, 1.0)

    def on_back(self, *, now_s: float) -> None:
        """It can be asked again."""
        self.due_s = min(self.due_s, now_s + self._rng.uniform(0.0, self._pause_s_first))

    def on_answered(self) -> None:
        """It has answered."""
        self._failures_count = 0
        self.due_s = -math.inf
