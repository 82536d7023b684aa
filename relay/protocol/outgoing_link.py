"""All channels to one target: which of them sends next, and how much may be unanswered.

Theory of operation. The target tells a window, the bytes that it takes before they are durable.
It is shared by all channels of the link: as much as the link holds is in flight (`LinkWindow`),
and never more than the target asked for. Live channels go first, so that a long replay of one
stream does not delay what is new in another; within each kind they take turns, one entry each.
A cap on the bandwidth is a bucket of bytes that fills with time.

A link on which the target owes an answer, and that made no progress for a while, is stuck: it
is closed and dialled again. A connection may look alive and deliver nothing. Canaries are owed,
too, so a link without records is found out as well. Bytes that arrive are progress, as the
target tells: on a slow link a large entry takes longer than any patience.

A mirror that cannot be written must not hold up the others of its region. The target says
which canary has arrived, so the home knows whose entries wait for a mirror, and not for the
link. A channel of which that has been so for `stalled_s` gets nothing more to send, and what it
owes does not count in the window. After `stuck_s` it ends alone, and is asked again. While
others have something to send, or are owed answers, a channel may own a quarter of what the
target takes, and else three quarters: what is left is for those that come next.

Messages hold as many entries as the connection takes in a moment (`MessageSize`), and so do
heartbeats of the ends of logs.

Rules: PROTOCOL B7 to B9, B11, B12 and G4.
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

    stalled_s: float = 2.0
    """Send nothing more to a mirror that made nothing durable for this long."""

    ahead_bytes_max: int = 32 << 20
    """Bytes that may be read from the log before they are sent, for all partitions together.
    Beyond it, partitions wait for their turn to be read."""


_PARTS = 4
"""Parts of the window: one of several channels may own one, or all but one."""

ASKED_PATIENCE = 3
"""A question may take so many times `stuck_s`: a mirror may have to be recovered first."""


class LinkBucket:
    """Bytes that may be sent now, under a cap; a tenth of a second's worth is saved up.

    One bucket serves all bridges to a target, one after the other: a new bridge is no way
    around the cap.
    """

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
        """So many bytes are sent."""
        self._free_bytes -= length_bytes


MESSAGE_BYTES_LEAST = 16 << 10
"""The first size of messages that entries share, and the least."""

_QUICK_S, _SLOW_S = 0.1, 0.5


class MessageSize:
    """How many bytes one message may have: what the connection takes in a moment.

    All that is sent later waits behind a message, and counts as taken only once all of it has
    arrived. An entry that is larger is sent alone.
    """

    def __init__(self, bytes_max: int, *, bytes_least: int = MESSAGE_BYTES_LEAST) -> None:
        self._bytes_max = bytes_max
        self._bytes_least = min(bytes_least, bytes_max)
        self._bytes = self._bytes_least

    @property
    def bytes(self) -> int:
        """Bytes after which nothing further joins the message."""
        return self._bytes

    def on_sent(self, took_s: float, *, is_full: bool) -> None:
        """The connection took a message in this time; whether it had all that it may have."""
        if took_s > _SLOW_S:
            self._bytes = max(self._bytes_least, self._bytes // 2)
        elif took_s < _QUICK_S and is_full:
            self._bytes = min(2 * self._bytes, self._bytes_max)


@attrs.define
class _Owed:
    """Answers that the target owes on one channel."""

    bytes: int = 0
    """Unanswered, as counted by the link: a channel that stops forgets its own."""
    is_asked: bool = True
    """Whether it owes the answer to the question."""
    since_s: float = 0.0
    """Since when it has owed something, without any progress."""
    arrived_s: float | None = None
    """When it was first known that what is owed has arrived; None if that is not known."""
    is_stalled: bool = False

    @property
    def is_owed(self) -> bool:
        return self.is_asked or self.bytes > 0


@attrs.frozen
class LinkLook:
    """Channels whose mirrors take nothing."""

    stalled: list[tuple[int, list[OutgoingEffect]]]
    """Those that are sent nothing more from now on, and what follows."""
    stuck: list[int]
    """Those that are to end."""


class OutgoingLink:
    """The channels of one link, by number."""

    def __init__(self, window_bytes: int, bounds: LinkBounds, *, now_s: float) -> None:
        self._window = LinkWindow(window_bytes)
        self._bounds = bounds
        cap = bounds.bytes_per_s_max
        self._bucket = None if cap is None else LinkBucket(cap, now_s)
        self._channels: dict[int, OutgoingChannel] = {}
        self._ready_live: deque[int] = deque()
        self._ready_late: deque[int] = deque()
        self._ready: set[int] = set()
        self._owed: dict[int, _Owed] = {}
        self._unanswered_bytes = 0
        self._stalled_bytes = 0
        self._asking_count = 0
        self._canaries = SentCanaries()
        self._progress_s = now_s
        self._is_resting = False
        self.held_back_s = 0.0
        """How long the cap holds back what is ready, as of the last `take`; 0: it does not."""

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
        self._owed[number] = _Owed(since_s=now_s)
        self._asking_count += 1

    def end(self, number: int) -> None:
        """Remove a channel; nothing is owed on it any more."""
        if self._channels.pop(number, None) is not None:
            owed = self._owed.pop(number)
            self._unanswered_bytes -= owed.bytes
            self._stalled_bytes -= owed.bytes if owed.is_stalled else 0
            self._asking_count -= owed.is_asked

    def go_on_with(self, bucket: LinkBucket) -> None:
        """Take from the bucket that the bridge before had."""
        self._bucket = bucket

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
        channel, owed = self._channels[number], self._owed[number]
        self._asking_count -= owed.is_asked
        owed.is_asked = False
        effects = channel.on_told(watermark, first_sequence=first_sequence)
        self._count(number)
        self._note_progress(number, now_s)
        return effects

    def on_durable(
        self, number: int, watermark: Watermark, *, now_s: float
    ) -> list[OutgoingEffect]:
        """The target has a channel's entries up to here durably."""
        channel = self._channels[number]
        effects = channel.on_durable(watermark)
        durable_bytes = self._owed[number].bytes - channel.unanswered_bytes
        if durable_bytes:
            self._progress_s = now_s
            self._window.on_durable(durable_bytes, now_s)
        self._count(number)
        if durable_bytes:
            self._note_progress(number, now_s)
        return effects

    def _count(self, number: int) -> None:
        owed = self._owed[number]
        more_bytes = self._channels[number].unanswered_bytes - owed.bytes
        self._unanswered_bytes += more_bytes
        self._stalled_bytes += more_bytes if owed.is_stalled else 0
        owed.bytes += more_bytes

    def _note_progress(self, number: int, now_s: float) -> None:
        """The target has answered on this channel."""
        owed = self._owed[number]
        self._stalled_bytes -= owed.bytes if owed.is_stalled else 0
        owed.is_stalled, owed.arrived_s, owed.since_s = False, None, now_s
        self.on_ready(number)

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
        is_idle = not self._asking_count and not self._unanswered_bytes
        if self._canaries.came_back(mark_us, now_s) and is_idle:
            self._progress_s = now_s

    def on_partial(self, *, now_s: float) -> None:
        """More of a message has arrived, of which the rest is on its way."""
        self._progress_s = now_s

    def on_canary_arrived(self, mark_us: int, *, now_s: float) -> None:
        """A canary has arrived, and waits there for what was sent before it."""
        sent_s = self._canaries.sent_s(mark_us)
        if sent_s is None:
            return
        self._progress_s = now_s  # The link is whole: what is owed waits for mirrors.
        for owed in self._owed.values():
            if owed.is_owed and owed.arrived_s is None and owed.since_s < sent_s:
                owed.arrived_s = now_s

    def on_look(self, *, now_s: float) -> LinkLook:
        """Look for mirrors that take nothing."""
        found = LinkLook([], [])
        for number, owed in self._owed.items():
            if owed.arrived_s is None:
                continue
            still_s = now_s - owed.arrived_s
            if still_s >= self._bounds.stalled_s and not owed.is_stalled:
                owed.is_stalled = True
                self._stalled_bytes += owed.bytes
                found.stalled.append((number, self._channels[number].on_stalled()))
            patience = ASKED_PATIENCE if owed.is_asked else 1
            if still_s >= patience * self._bounds.stuck_s:
                found.stuck.append(number)
        return found

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
        self.held_back_s = 0.0
        while self._ready and not self._is_resting and self._has_room(now_s):
            number = (self._ready_live or self._ready_late).popleft()
            self._ready.remove(number)
            channel = self._channels.get(number)
            if channel is None or not self._may_send(number):
                continue  # `_note_progress` makes it ready again.
            entry = channel.next_entry()
            if entry is None:
                continue
            self._note_asked(now_s)
            if not self._owed[number].is_owed:
                self._owed[number].since_s = now_s
            effects = channel.on_sent(entry)
            self._count(number)
            if self._bucket is not None:
                self._bucket.take(entry.length_bytes)
            self.on_ready(number)
            return SendEntry(number, entry), effects
        if not self._ready:
            self._window.on_idle()
        return None

    def _may_send(self, number: int) -> bool:
        """Whether the channel gets more of the window now: it leaves some to others."""
        owed = self._owed[number]
        if len(self._channels) == 1:
            return not owed.is_stalled
        is_alone = not self._ready and owed.bytes == self._unanswered_bytes
        parts = _PARTS - 1 if is_alone else 1
        return not owed.is_stalled and owed.bytes * _PARTS < parts * self._window.bytes_max

    def _has_room(self, now_s: float) -> bool:
        moving_bytes = self._unanswered_bytes - self._stalled_bytes
        if (
            moving_bytes >= self._window.bytes
            or self._unanswered_bytes >= self._window.bytes_max
        ):
            self._window.on_full(now_s)
            return False
        wait_s = 0.0 if self._bucket is None else self._bucket.wait_s(now_s)
        if wait_s > 0:
            self.held_back_s = wait_s
            self._window.on_idle()
            return False
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether the target owes an answer."""
        is_owed = self._asking_count > 0 or self._unanswered_bytes > 0
        return is_owed or self._canaries.is_waiting

    def _note_asked(self, now_s: float) -> None:
        """The time without progress begins with the first question."""
        if not self.is_waiting:
            self._progress_s = now_s

    def is_stuck(self, *, now_s: float) -> bool:
        """Whether nothing moves although the target owes an answer."""
        return self.is_waiting and now_s - self._progress_s >= self._bounds.stuck_s
