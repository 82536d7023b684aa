"""One partition's entries on their way to one target: what to send next, and from where.

Theory of operation. A channel first asks for the mirror's watermark; until that is told it
sends nothing. Its position is the last entry sent, at first the watermark. The entry to send
next is the one behind the position: from the buffer if that covers the position, else from the
log, which is read until it is well inside the buffer: at its edge, the next entry that comes
would push the channel out again. So a new coordinator replays from its buffer what it can,
takes the rest from the log, and then is live; it never guesses. Nothing is sent twice on a
channel, and nothing is skipped: if the entry behind the position cannot be supplied, the
channel stops, with an alarm (law 20).

Entries that a read of the log brings after it was told to stop are not taken: another read may
be under way by then, from another place.

Entries that were sent wait until the target tells that they are durable. A target that tells of
an entry that it was not sent is broken: the channel stops, too (law 19).

Invariants:

1. Entries are sent in the order of the log, each right behind the position.
2. `durable` never goes back, and is never behind the position.

Rules: PROTOCOL B3, B4 and B7.
"""

import enum
from collections import deque

import attrs

from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.watermark import Watermark
from relay.protocol.bridge_messages import RelayedEntry
from relay.protocol.standby_buffer import StandbyBuffer


@attrs.frozen(eq=False)
class FetchAfter:
    """Read the log behind this position, and give what is found to `on_fetched`."""

    position: Watermark | None
    first_sequence: Sequence = FIRST_SEQUENCE
    """Without a position: begin with the segment that has this one."""


@attrs.frozen
class StopFetching:
    """Stop reading the log: the buffer has the rest."""


@attrs.frozen
class StopChannel:
    """Give the channel up, and raise an alarm."""

    code: int
    error: str


@attrs.frozen
class AllSent:
    """Another relay left in good order: it sent everything up to here, and nothing more."""

    position: Watermark | None


OutgoingEffect = FetchAfter | StopFetching | StopChannel

_CONFLICT = 409
_GONE = 410


class ChannelState(enum.Enum):
    """How far a channel has come."""

    ASKING = "asking"
    REPLAYING = "replaying"
    """It sends what its target missed."""
    LIVE = "live"
    STOPPED = "stopped"


@attrs.frozen
class _Unanswered:
    watermark: Watermark
    length_bytes: int
    append_time_us: int


class OutgoingChannel:
    """One partition to one target; `next_entry` and `on_sent` take entries from it."""

    def __init__(self, buffer: StandbyBuffer, *, handed: AllSent | None = None) -> None:
        """handed: all that the relay before this one has sent; None if that is not known."""
        self._buffer = buffer
        self._handed = handed
        self._state = ChannelState.ASKING
        self._position: Watermark | None = None
        self._durable: Watermark | None = None
        self._told: Watermark | None = None
        self._first_sequence = FIRST_SEQUENCE
        self._fetched: deque[RelayedEntry] = deque()
        self._fetched_bytes = 0
        self._fetch: FetchAfter | None = None
        self._unanswered: deque[_Unanswered] = deque()
        self._why_stopped: StopChannel | None = None
        self._is_told = False
        self._is_compared = False
        self._is_stalled = False
        self.unanswered_bytes = 0
        self.sent_count = 0
        self.replayed_count = 0
        """Entries sent before the channel was live, and perhaps before by another relay."""
        self.replayed_bytes = 0
        """Bytes of those."""

    def __repr__(self) -> str:
        return f"OutgoingChannel({self._state.value}, at {self._position})"

    @property
    def state(self) -> ChannelState:
        """How far it has come."""
        return self._state

    @property
    def position(self) -> Watermark | None:
        """The last entry sent."""
        return self._position

    @property
    def durable(self) -> Watermark | None:
        """The last entry that the target has told to be durable."""
        return self._durable

    @property
    def told(self) -> Watermark | None:
        """The last entry that the target had when it was asked."""
        return self._told

    @property
    def all_sent(self) -> AllSent | None:
        """All that was sent by now, by this relay or the one before it; None: not known."""
        handed, position = self._handed, self._position
        if not self._is_told:
            return handed
        if handed is None or handed.position is None:
            return AllSent(position)
        return AllSent(max(position, handed.position) if position else handed.position)

    def unanswered_behind(self, watermark: Watermark | None) -> list[int]:
        """Bytes of each entry behind this one that was sent, and is not told to be durable."""
        return [
            one.length_bytes
            for one in self._unanswered
            if watermark is None or one.watermark > watermark
        ]

    @property
    def is_compared(self) -> bool:
        """Whether the home is known to have the entry that the mirror told as its last."""
        return self._is_compared

    @property
    def behind_since_us(self) -> int | None:
        """When the first entry was appended that the target lacks; None if it lacks none.

        By the home's clock, which gave entries their times: no other clock is compared.
        """
        if self._unanswered:
            return self._unanswered[0].append_time_us
        entry = self.next_entry()
        return None if entry is None else entry.encoded.header.append_time_us

    @property
    def why_stopped(self) -> StopChannel | None:
        """Why it sends nothing more."""
        return self._why_stopped

    @property
    def fetched_count(self) -> int:
        """Entries read from the log and not sent yet."""
        return len(self._fetched)

    @property
    def fetched_bytes(self) -> int:
        """Bytes of those."""
        return self._fetched_bytes

    def on_told(
        self, watermark: Watermark | None, *, first_sequence: Sequence = FIRST_SEQUENCE
    ) -> list[OutgoingEffect]:
        """The mirror's watermark is known: go on behind it.

        first_sequence: where an empty mirror is to begin.
        """
        if self._state is not ChannelState.ASKING:
            return self._stop(_CONFLICT, "the target told its watermark twice")
        self._state, self._is_told, self._is_stalled = ChannelState.REPLAYING, True, False
        self._position = self._durable = self._told = watermark
        self._first_sequence = first_sequence
        self._is_compared = watermark is None
        return self._supply()

    def on_stalled(self) -> list[OutgoingEffect]:
        """The mirror takes nothing: read nothing for it until it does, and keep nothing."""
        self._is_stalled = True
        return self._stop_fetching()

    def on_buffered(self) -> list[OutgoingEffect]:
        """The buffer has changed."""
        return self._supply()

    def on_compared(self, fetch: FetchAfter) -> None:
        """This read of the log has found the entry at its position to be the same."""
        if fetch is self._fetch:
            self._is_compared = True

    def on_fetched(
        self, fetch: FetchAfter, entries: list[RelayedEntry]
    ) -> list[OutgoingEffect]:
        """Take entries that this read of the log has brought, in order."""
        if fetch is not self._fetch:
            return []
        self._is_compared = True
        self._fetched.extend(entries)
        self._fetched_bytes += sum(entry.length_bytes for entry in entries)
        return self._supply()

    def on_gone(
        self, fetch: FetchAfter, reason: str, code: int = _GONE
    ) -> list[OutgoingEffect]:
        """This read of the log cannot supply the entry behind what it has brought.

        code: of the error; the channel ends with it.
        """
        if fetch is not self._fetch:
            return []
        if not self._fetched and self._is_covered:
            return self._go_on_from_buffer()
        return self._stop(code, reason)

    def next_entry(self) -> RelayedEntry | None:
        """The entry to send next, if there is one now."""
        if self._state not in (ChannelState.REPLAYING, ChannelState.LIVE):
            return None
        if self._fetch is not None:
            return self._fetched[0] if self._fetched else None
        return self._buffer.after(self._position)

    def on_sent(self, entry: RelayedEntry) -> list[OutgoingEffect]:
        """The entry that `next_entry` gave was sent."""
        assert entry.previous == self._position or self._position is None
        if self._fetched:
            assert self._fetched[0] is entry
            self._fetched.popleft()
            self._fetched_bytes -= entry.length_bytes
        self._position = entry.watermark
        append_time_us = entry.encoded.header.append_time_us
        self._unanswered.append(
            _Unanswered(entry.watermark, entry.length_bytes, append_time_us)
        )
        self.unanswered_bytes += entry.length_bytes
        self.sent_count += 1
        if self._state is ChannelState.REPLAYING and not self._is_new(entry):
            self.replayed_count += 1
            self.replayed_bytes += entry.length_bytes
        return self._supply()

    def on_durable(self, watermark: Watermark) -> list[OutgoingEffect]:
        """The target has everything up to here durably."""
        position = self._position
        if position is None or watermark > position:
            return self._stop(
                _CONFLICT, f"the target calls {watermark} durable, but was sent {position} last"
            )
        bytes_before = self.unanswered_bytes
        while self._unanswered and self._unanswered[0].watermark <= watermark:
            self.unanswered_bytes -= self._unanswered.popleft().length_bytes
        if self._durable is None or self._durable < watermark:
            self._durable = watermark
        if not self._is_stalled or self.unanswered_bytes == bytes_before:
            return []
        self._is_stalled = False
        return self._supply()

    def on_ended(self, code: int, error: str) -> None:
        """The target has given the channel up."""
        self._why_stopped = StopChannel(code, error)
        self._leave()

    def _is_new(self, entry: RelayedEntry) -> bool:
        """Whether no other relay has sent the entry before."""
        if self._handed is None:
            return False
        return self._handed.position is None or entry.watermark > self._handed.position

    def _supply(self) -> list[OutgoingEffect]:
        """Say where the next entries come from, if that has changed."""
        if self._is_stalled or self._state not in (ChannelState.REPLAYING, ChannelState.LIVE):
            return []
        is_at_edge = self._fetch is not None and self._is_at_edge
        if self._is_covered and not is_at_edge:
            return self._go_on_from_buffer()
        self._state = ChannelState.REPLAYING
        if self._fetch is not None:
            return []
        first = self._first_sequence if self._begins_later else FIRST_SEQUENCE
        self._fetch = FetchAfter(self._position, first)
        return [self._fetch]

    @property
    def _is_covered(self) -> bool:
        """Whether the buffer has everything behind the position."""
        return not self._begins_later and self._buffer.covers(self._position)

    @property
    def _is_at_edge(self) -> bool:
        """Whether the position is in the older half of the buffer, by bytes."""
        return 2 * self._buffer.bytes_behind(self._position) > self._buffer.bytes_count

    @property
    def _begins_later(self) -> bool:
        """Whether the next entry is not the first of the log, where a buffer may begin."""
        return self._position is None and self._first_sequence > 0

    def _go_on_from_buffer(self) -> list[OutgoingEffect]:
        self._is_compared = True  # A buffer knows a place by its checksum.
        if self._buffer.after(self._position) is None:
            self._state = ChannelState.LIVE
        return self._stop_fetching()

    def _stop_fetching(self) -> list[OutgoingEffect]:
        """Read no more, and drop what was read."""
        self._fetched.clear()
        self._fetched_bytes = 0
        if self._fetch is None:
            return []
        self._fetch = None
        return [StopFetching()]

    def _stop(self, code: int, error: str) -> list[OutgoingEffect]:
        stop = StopChannel(code, error)
        self._why_stopped = stop
        effects = self._stop_fetching()
        self._leave()
        return [*effects, stop]

    def _leave(self) -> None:
        self._state = ChannelState.STOPPED
        self._fetch = None
        self._fetched.clear()
        self._fetched_bytes = 0
        self._unanswered.clear()
        self.unanswered_bytes = 0
