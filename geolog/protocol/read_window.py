"""How many answers one question asks for: enough that the wait for the first hardly counts.

A question is asked when the answers to the one before it have all come, so between two of them
the link is idle for a round trip. With as many answers as the link carries in `SHARE` of those
it is busy for all but a ninth of the time: read-ahead grows with bandwidth times delay.
"""

import math

import attrs

ANSWERS_MIN = 4

ANSWERS_MAX = 32
"""With the bytes of one answer, the bound on what is under way from one replica."""

SHARE = 8
"""Times that the link is busy for each time that it waits."""


@attrs.define
class ReadWindow:
    """What is known of the way to one replica.

    Invariant: ANSWERS_MIN <= answers <= ANSWERS_MAX.
    """

    answers: int = ANSWERS_MIN

    def on_answered(self, *, delay_s: float, took_s: float, count: int) -> None:
        """A question had `count` answers: the first after `delay_s`, all `took_s` after it."""
        if count < ANSWERS_MIN:
            return  # Too few to tell how fast they come.
        each_s = max(took_s / (count - 1), 1e-9)
        wanted = math.ceil(SHARE * delay_s / each_s)
        # At most twice as many as before: one answer that was late proves little.
        self.answers = max(ANSWERS_MIN, min(wanted, 2 * self.answers, ANSWERS_MAX))
