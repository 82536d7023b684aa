"""Sizes read requests: enough answers to each that waiting for the first hardly counts.

A reader sends the next request only when the last one is fully answered, so the link idles for
one round trip in between. A request for as many answers as the link carries in `SHARE` round
trips keeps it busy for all but a ninth of the time. So read-ahead grows with the
bandwidth-delay product.
"""

import math

import attrs

from geolog.protocol.ids import InstanceId

ANSWERS_MIN = 4

ANSWERS_MAX = 32
"""Together with the size of one answer, this bounds the bytes in flight from one replica."""

SHARE = 8
"""How many round trips' worth of answers to request."""


@attrs.define
class ReadWindow:
    """How many answers to request from one replica.

    Invariant: ANSWERS_MIN <= answers <= ANSWERS_MAX.
    """

    answers: int = ANSWERS_MIN

    def on_answered(self, *, delay_s: float, took_s: float, count: int) -> None:
        """A request got `count` answers: the first after `delay_s`, the rest in `took_s`."""
        if count < ANSWERS_MIN:
            return  # Too few to measure a rate.
        each_s = max(took_s / (count - 1), 1e-9)
        wanted = math.ceil(SHARE * delay_s / each_s)
        # At most double: one late answer proves little.
        self.answers = max(ANSWERS_MIN, min(wanted, 2 * self.answers, ANSWERS_MAX))


@attrs.define
class ReadWindows:
    """The windows of all replicas that a process reads from.

    Invariant: at most `replicas_max`; beyond that, the replica unused for longest starts over.
    """

    replicas_max: int = 1024
    _windows: dict[InstanceId, ReadWindow] = attrs.field(factory=dict)

    def __len__(self) -> int:
        return len(self._windows)

    def of(self, instance: InstanceId) -> ReadWindow:
        """The replica's window, which all its readers share."""
        window = self._windows.pop(instance, None)
        if window is None:
            window = ReadWindow()
            if len(self._windows) >= self.replicas_max:
                del self._windows[next(iter(self._windows))]
        self._windows[instance] = window  # Behind all others: the first is unused longest.
        return window
