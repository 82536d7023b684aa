"""Messages of a bridge: one connection from a target region to a home region, for all streams.

Theory of operation. The target's coordinator dials and says hello; the home's coordinator
welcomes it, or refuses. The home opens a channel for each partition that the target mirrors: it
asks for the watermark, the last entry that the mirror has durably. The answer says where to go
on. From there the home sends every entry of its log, in order, each with the place of the entry
before it; the target tells what has become durable. Unanswered bytes of all channels together
stay below the window that the target has told: that is its pull. Heartbeats tell where the
home's log ends, so that the lag of a mirror can be known although it hears of nothing else; the
target sends them back, which shows that the whole way is open. A side that leaves in good order
says so.

Rules: PROTOCOL B1, B2 and B8.
"""

import attrs

from geolog.partition.mirror_entry import SegmentBegin
from geolog.protocol.ids import FIRST_SEQUENCE, Sequence
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry

BRIDGE_VERSION = 1
"""The version of this protocol."""

NO_COMPRESSION = "none"
"""Entries travel as they were sealed; writers have compressed their batches."""


@attrs.frozen(kw_only=True)
class BridgeHello:
    """First words of the target's coordinator."""

    cluster: str
    region: str
    relay_epoch: int
    """The epoch of the coordinator in its own region."""
    version_first: int = BRIDGE_VERSION
    version_last: int = BRIDGE_VERSION
    compressions: tuple[str, ...] = (NO_COMPRESSION,)
    """Compressions that it understands, best first."""
    window_bytes: int
    """Bytes of entries that it takes before they are durable."""


@attrs.frozen(kw_only=True)
class BridgeWelcome:
    """The home's answer to a hello: the bridge is open."""

    cluster: str
    region: str
    relay_epoch: int
    version: int = BRIDGE_VERSION
    compression: str = NO_COMPRESSION


@attrs.frozen(kw_only=True)
class AskWatermark:
    """Opens a channel, from the home, and asks for the last durable entry of the mirror."""

    channel: int
    stream: str
    life: str
    partition: int
    home_epoch: int


@attrs.frozen
class WatermarkTold:
    """The answer: the mirror's last durable entry; None if it is empty."""

    channel: int
    watermark: Watermark | None
    first_sequence: Sequence = FIRST_SEQUENCE
    """Where an empty mirror is to begin: at the first entry of the segment that has it."""


@attrs.frozen(eq=False)
class RelayedEntry:
    """One entry of the home's log, as sealed, and where it stands."""

    watermark: Watermark
    """Of a mirror that ends with it."""
    previous: Watermark | None
    """The entry before it in the home's log, across segments; None where a mirror may start."""
    begin: SegmentBegin | None
    """Given with the first entry of a segment."""
    encoded: EncodedEntry

    @property
    def length_bytes(self) -> int:
        """Bytes of the entry."""
        return self.encoded.length_bytes


@attrs.frozen(eq=False)
class SendEntry:
    """Carries an entry on a channel."""

    channel: int
    entry: RelayedEntry


@attrs.frozen
class DurableTold:
    """The mirror has everything up to this entry durably."""

    channel: int
    watermark: Watermark


@attrs.frozen
class WindowTold:
    """The target takes this many bytes before they are durable, from here on."""

    window_bytes: int


@attrs.frozen
class TailTold:
    """Where the home's log ends, as far as its coordinator knows."""

    channel: int
    sequence_next: Sequence
    append_time_us: int
    """Of the last entry, by the home's clock."""
    size_bytes: int
    """Bytes of the log's entries that the target has not told to be durable."""


@attrs.frozen
class BridgeHeartbeat:
    """Says that the sender lives; from the home, also where its logs end.

    A target sends one back to the home, or says that it has come: see `canary`.
    """

    now_us: int
    """The home's clock; the target compares it with times of the same clock only."""
    tails: tuple[TailTold, ...] = ()
    """Of some of the channels, if there are very many: they take turns."""


@attrs.frozen
class ChannelEnded:
    """The sender gives the channel up, and says why."""

    channel: int
    code: int
    error: str


@attrs.frozen
class BridgeLeaving:
    """The sender leaves in good order: everything it has sent can still be answered."""


@attrs.frozen
class BridgeRefused:
    """Why the sender closes the bridge."""

    code: int
    error: str


FromTarget = (
    BridgeHello
    | WatermarkTold
    | DurableTold
    | WindowTold
    | BridgeHeartbeat
    | ChannelEnded
    | BridgeLeaving
    | BridgeRefused
)
FromHome = (
    BridgeWelcome
    | AskWatermark
    | SendEntry
    | BridgeHeartbeat
    | ChannelEnded
    | BridgeLeaving
    | BridgeRefused
)
BridgeMessage = FromTarget | FromHome
