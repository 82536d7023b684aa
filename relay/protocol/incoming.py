"""One partition's entries as they come to its mirror's region.

Theory of operation. The home opens a channel with a question. The target takes its mirror over
(epoch, fence, recovery), and only then knows what the mirror has durably: that is the answer.
From there entries come in order, each right behind the one before it; the chain is checked
here, and again, against the mirror's own last entry, by the mirror. The home is told what is
durable in the mirror, and nothing else: received is not durable (law 19).

Anything out of line ends the channel, and leaves the mirror as it is. The home then asks again,
and the answer sets both sides right.

Rules: PROTOCOL B3 and B4.
"""

import attrs

from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.watermark import Watermark
from relay.protocol.bridge_messages import (
    AskWatermark,
    ChannelEnded,
    DurableTold,
    RelayedEntry,
    WatermarkTold,
)
from topology.errors import GeologError


@attrs.frozen(eq=False)
class PushEntry:
    """Append this entry to the mirror."""

    entry: RelayedEntry


@attrs.frozen
class Tell:
    """Send this to the home."""

    message: WatermarkTold | DurableTold | ChannelEnded


IncomingEffect = PushEntry | Tell

_CONFLICT = 409


class IncomingChannel:
    """One partition from its home; it begins with the question."""

    def __init__(self, asked: AskWatermark) -> None:
        self._asked = asked
        self._is_told = False
        self._is_over = False
        self._last: Watermark | None = None
        self._durable: Watermark | None = None
        self.received_count = 0
        self.received_bytes = 0

    def __repr__(self) -> str:
        return f"IncomingChannel({self._asked.channel}, at {self._last})"

    @property
    def last(self) -> Watermark | None:
        """The last entry received, or what the mirror had."""
        return self._last

    @property
    def durable(self) -> Watermark | None:
        """The last entry that the home was told to be durable."""
        return self._durable

    @property
    def is_settled(self) -> bool:
        """Whether the home's question is answered, and everything received is durable."""
        return self._is_told and self._last == self._durable

    @property
    def is_over(self) -> bool:
        """Whether nothing more is taken."""
        return self._is_over

    def on_mirror_opened(
        self, watermark: Watermark | None, *, first_sequence: Sequence = FIRST_SEQUENCE
    ) -> list[IncomingEffect]:
        """The mirror is ours, and this is its last durable entry.

        first_sequence: where it is to begin if it is empty.
        """
        if self._is_over:
            return []
        assert not self._is_told
        self._is_told = True
        self._last = self._durable = watermark
        return [Tell(WatermarkTold(self._asked.channel, watermark, first_sequence))]

    def on_mirror_sealed(self, watermark: Watermark | None) -> list[IncomingEffect]:
        """The mirror is sealed, as its home is, and ends here; the channel rests."""
        return [] if self._is_told else self.on_mirror_opened(watermark)

    def on_entry(self, entry: RelayedEntry) -> list[IncomingEffect]:
        """An entry came."""
        if self._is_over:
            return []
        if not self._is_told:
            return self._end(_CONFLICT, "an entry came before the watermark was told")
        found = entry.watermark
        if found.home_epoch > self._asked.home_epoch:
            return self._end(
                _CONFLICT,
                f"{found} is of a later home epoch than {self._asked.home_epoch}, the"
                " channel's",
            )
        if entry.previous != self._last:
            return self._end(_CONFLICT, f"{found} follows {entry.previous}, not {self._last}")
        self._last = found
        self.received_count += 1
        self.received_bytes += entry.length_bytes
        return [PushEntry(entry)]

    def on_durable(self, watermark: Watermark) -> list[IncomingEffect]:
        """The mirror has everything up to here durably."""
        if self._is_over or not self._is_told:
            return []
        before, last = self._durable, self._last
        assert last is not None
        assert watermark <= last, f"{watermark} was never pushed, only {last}"
        if before is not None and watermark <= before:
            return []
        self._durable = watermark
        return [Tell(DurableTold(self._asked.channel, watermark))]

    def on_mirror_failed(self, error: GeologError) -> list[IncomingEffect]:
        """The mirror cannot be opened, or takes nothing more."""
        return [] if self._is_over else self._end(error.code, str(error))

    def on_ended(self) -> None:
        """The home has given the channel up."""
        self._is_over = True

    def _end(self, code: int, error: str) -> list[IncomingEffect]:
        self._is_over = True
        return [Tell(ChannelEnded(self._asked.channel, code, error))]
