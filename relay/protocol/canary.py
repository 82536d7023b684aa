"""Canaries: what shows that a link is whole although no record goes over it.

Theory of operation. Each heartbeat of a home is a canary. The target sends it back once all
that was sent before it, on every channel, is durable in its mirrors or was given up, and all
that was asked before it is answered. So one takes as long as a record would that is appended
now: from the home's relay into the mirror, and back. One that does not come back shows a link
that only looks alive. It is known by the time in it, which is the home's, and which the home
alone compares.

A target sends one back before it takes the next: where mirrors are slow, the canaries between
are left out. Of one that cannot go back at once, the target says that it has arrived: a
heartbeat with the negative of its time. So the home knows that the link is whole, and which
entries wait for a mirror. While a message takes long to arrive, the target says every
`PARTIAL_S` that more of it has come: a heartbeat with the time 0. Both tell homes of older
versions nothing: they know no such time. Targets of older versions send none of them, or no
canary either, and then nothing is known.

Rules: PROTOCOL B9 and B11.
"""

from collections import deque

from geolog.protocol.watermark import Watermark

_NOTHING = object()

PARTIAL_S = 2.0
"""How long a message may take to arrive before the target says that more of it has come."""

PARTIAL_MARK = 0
"""The time in a heartbeat of a target that says so."""

_OUT_MAX = 64
"""Canaries that are remembered; of more, the oldest are forgotten."""


class SentCanaries:
    """The home's side: canaries that are out, and how long the last one took."""

    def __init__(self) -> None:
        self._out: deque[tuple[int, float]] = deque(maxlen=_OUT_MAX)
        self._is_answering = False
        self.round_trip_s: float | None = None
        """How long the last one took that came back."""

    def __repr__(self) -> str:
        return f"SentCanaries({len(self._out)} out)"

    @property
    def is_waiting(self) -> bool:
        """Whether one is out, of a target that sends them back."""
        return self._is_answering and bool(self._out)

    def sent_s(self, mark_us: int) -> float | None:
        """When the one with this time in it went out; None if it is not out."""
        return next((sent_s for out_us, sent_s in self._out if out_us == mark_us), None)

    def sent(self, mark_us: int, now_s: float) -> None:
        """One goes out, with this time in it."""
        self._out.append((mark_us, now_s))

    def came_back(self, mark_us: int, now_s: float) -> bool:
        """One came back; whether it was out. Those sent before it are not waited for."""
        if all(mark_us != out_us for out_us, _ in self._out):
            return False
        while True:
            out_us, sent_s = self._out.popleft()
            if out_us == mark_us:
                break
        self._is_answering = True
        self.round_trip_s = now_s - sent_s
        return True


class TakenCanary:
    """The target's side: the canary that waits, and what it waits for."""

    def __init__(self) -> None:
        self._mark_us: int | None = None
        self._owed: dict[int, Watermark | None] = {}

    def __repr__(self) -> str:
        return f"TakenCanary({self._mark_us}, behind {len(self._owed)} channels)"

    def take(self, mark_us: int, owed: dict[int, Watermark | None]) -> int | None:
        """One came; the time to send back now, if nothing is owed.

        owed: the last entry of each channel that has entries which are not durable; None for a
        channel whose question is not answered.
        """
        if self._mark_us is not None:
            return None
        self._mark_us, self._owed = mark_us, dict(owed)
        return self._done()

    def on_told(self, channel: int) -> int | None:
        """The question of a channel is answered; the time to send back now, if any."""
        if self._owed.get(channel, _NOTHING) is None:
            del self._owed[channel]
        return self._done()

    def on_durable(self, channel: int, watermark: Watermark) -> int | None:
        """A channel has everything up to here durably; the time to send back now, if any."""
        owed = self._owed.get(channel, _NOTHING)
        if isinstance(owed, Watermark) and owed <= watermark:
            del self._owed[channel]
        return self._done()

    def on_ended(self, channel: int) -> int | None:
        """A channel has ended; the time to send back now, if any."""
        self._owed.pop(channel, None)
        return self._done()

    def _done(self) -> int | None:
        if self._owed:
            return None
        mark_us, self._mark_us = self._mark_us, None
        return mark_us
