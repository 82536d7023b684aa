"""All channels to one target: which of them sends next, and how much may be unanswered.

Theory of operation. The target tells a window, the bytes that it takes before they are durable.
It is shared by all channels of the link: as much as the link holds is in flight (`LinkWindow`),
and never more than the target asked for. Live channels go first, so that a long replay of one
stream does not delay what is new in another; within each kind they take turns, one entry each.
A cap on the bandwidth is a bucket of bytes that fills with time.

A link on which the target owes an answer, and that made no progress for a while, is stuck: it
is closed and dialled again. A connection may look alive and deliver nothing. Canaries are owed,
too, so a link without records is found out as well.

Rules: PROTOCOL B7 to B9, B11 and G4.
"""

from collections import deque

import attrs

from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.watermark import Watermark
from relay.protocol.bridge_messages import SendEntry
from relay.protocol.canary import SentCanaries
from relay.protocol.link_window import LinkWindow
from relay.protocol.outgoing import ChannelState, OutgoingChannel, OutgoingEffect


@attrs.frozen(kw_only=True)
class LinkBounds:
    """Bounds of a link to one target."""

    bytes_per_s_max: float | None = None
    """Cap on the bandwidth of entries; None for none."""

    stuck_s: float = 10.0
    """Close a link on which nothing moved for this long, while the target owed an answer."""


class _Bucket:
    """Bytes that may be sent now, under a cap; a tenth of a second's worth is saved up."""

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_bytes = 0.0
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long until something may be sent; at most 0 for at once."""
        saved_bytes_max = self._bytes_per_s / 10
        gained_bytes = (now_s - self._at_s) * self._bytes_per_s
        self._free_bytes = min(saved_bytes_max, self._free_bytes + gained_bytes)
        self._at_s = now_s
        return -self._free_bytes / self._bytes_per_s

    def take(self, length_bytes: int) -> None:
        self._free_bytes -= length_bytes


class OutgoingLink:
    """The channels of one link, by number."""

    def __init__(self, window_bytes: int, bounds: LinkBounds, *, now_s: float) -> None:
        self._window = LinkWindow(window_bytes)
        self._bounds = bounds
        cap = bounds.bytes_per_s_max
        self._bucket = None if cap is None else _Bucket(cap, now_s)
        self._channels: dict[int, OutgoingChannel] = {}
        self._ready_live: deque[int] = deque()
        self._ready_late: deque[int] = deque()
        self._ready: set[int] = set()
        self._owed_bytes: dict[int, int] = {}
        """Unanswered bytes by channel, as counted here: one that stops forgets its own."""
        self._unanswered_bytes = 0
        self._asking: set[int] = set()
        self._canaries = SentCanaries()
        self._progress_s = now_s
        self._is_resting = False

    def __repr__(self) -> str:
        return (
            f"OutgoingLink({len(self._channels)} channels, {self._unanswered_bytes} of"
            f" {self._window.bytes} bytes unanswered)"
        )

    @property
    def unanswered_bytes(self) -> int:
        """Bytes sent that the target has not told to be durable."""
        return self._unanswered_bytes

    @property
    def window_bytes(self) -> int:
        """How many they may be now."""
        return self._window.bytes

    def channel(self, number: int) -> OutgoingChannel | None:
        """The channel of this number, if it is open."""
        return self._channels.get(number)

    def open(self, number: int, channel: OutgoingChannel, *, now_s: float) -> None:
        """Add a channel, which asks for its watermark."""
        assert number not in self._channels, f"channel {number} is open"
        self._note_asked(now_s)
        self._channels[number] = channel
        self._owed_bytes[number] = 0
        self._asking.add(number)

    def end(self, number: int) -> None:
        """Remove a channel; nothing is owed on it any more."""
        if self._channels.pop(number, None) is not None:
            self._unanswered_bytes -= self._owed_bytes.pop(number)
            self._asking.discard(number)

    def on_window(self, window_bytes: int) -> None:
        """The target takes this much from here on."""
        self._window.limit(window_bytes)

    def on_told(
        self,
        number: int,
        watermark: Watermark | None,
        *,
        first_sequence: Sequence = FIRST_SEQUENCE,
        now_s: float,
    ) -> list[OutgoingEffect]:
        """The watermark of a channel's mirror; where it is to begin if it is empty."""
        self._progress_s = now_s
        channel = self._channels[number]
        self._asking.discard(number)
        effects = channel.on_told(watermark, first_sequence=first_sequence)
        self._count(number)
        self.on_ready(number)
        return effects

    def on_durable(
        self, number: int, watermark: Watermark, *, now_s: float
    ) -> list[OutgoingEffect]:
        """The target has a channel's entries up to here durably."""
        channel = self._channels[number]
        effects = channel.on_durable(watermark)
        durable_bytes = self._owed_bytes[number] - channel.unanswered_bytes
        if durable_bytes:
            self._progress_s = now_s
            self._window.on_durable(durable_bytes, now_s)
        self._count(number)
        return effects

    def _count(self, number: int) -> None:
        owed_bytes = self._channels[number].unanswered_bytes
        self._unanswered_bytes += owed_bytes - self._owed_bytes[number]
        self._owed_bytes[number] = owed_bytes

    @property
    def round_trip_s(self) -> float | None:
        """How long the last canary took to come back; None if none did."""
        return self._canaries.round_trip_s

    def on_canary_sent(self, mark_us: int, *, now_s: float) -> None:
        """A canary goes out."""
        self._note_asked(now_s)
        self._canaries.sent(mark_us, now_s)

    def on_canary_back(self, mark_us: int, *, now_s: float) -> None:
        """A canary came back. Where an answer is due, that alone is progress."""
        is_idle = not self._asking and not self._unanswered_bytes
        if self._canaries.came_back(mark_us, now_s) and is_idle:
            self._progress_s = now_s

    def rest(self) -> None:
        """Give out no further entries: another relay will send them."""
        self._is_resting = True

    def on_ready(self, number: int) -> None:
        """The channel may have something to send."""
        channel = self._channels.get(number)
        if channel is None or number in self._ready:
            return
        is_live = channel.state is ChannelState.LIVE
        (self._ready_live if is_live else self._ready_late).append(number)
        self._ready.add(number)

    def take(self, *, now_s: float) -> tuple[SendEntry, list[OutgoingEffect]] | None:
        """The next entry to send, and what follows; None if there is none, or no room."""
        while self._ready and not self._is_resting and self._has_room(now_s):
            number = (self._ready_live or self._ready_late).popleft()
            self._ready.remove(number)
            channel = self._channels.get(number)
            entry = None if channel is None else channel.next_entry()
            if channel is None or entry is None:
                continue
            self._note_asked(now_s)
            effects = channel.on_sent(entry)
            self._count(number)
            if self._bucket is not None:
                self._bucket.take(entry.length_bytes)
            self.on_ready(number)
            return SendEntry(number, entry), effects
        if not self._ready:
            self._window.on_idle()
        return None

    def _has_room(self, now_s: float) -> bool:
        if self._unanswered_bytes >= self._window.bytes:
            self._window.on_full(now_s)
            return False
        if self.wait_s(now_s=now_s) > 0:
            self._window.on_idle()
            return False
        return True

    def wait_s(self, *, now_s: float) -> float:
        """How long the cap forbids sending; at most 0 for not at all."""
        return 0.0 if self._bucket is None else self._bucket.wait_s(now_s)

    @property
    def is_waiting(self) -> bool:
        """Whether the target owes an answer."""
        return bool(self._asking) or self._unanswered_bytes > 0 or self._canaries.is_waiting

    def _note_asked(self, now_s: float) -> None:
        """The time without progress begins with the first question."""
        if not self.is_waiting:
            self._progress_s = now_s

    def is_stuck(self, *, now_s: float) -> bool:
        """Whether nothing moves although the target owes an answer."""
        return self.is_waiting and now_s - self._progress_s >= self._bounds.stuck_s
