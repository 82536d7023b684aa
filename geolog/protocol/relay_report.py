"""The report of a region's relay: its links to other regions, and its events.

A coordinator tells it to everyone who asks on its own endpoint. A link is the way from a home
to one target; each relayed partition has a state of its own on it.

Rules: PROTOCOL T1 and T3.
"""

import enum

import attrs

from geolog.protocol.watermark import Watermark


class LinkState(enum.Enum):
    """The state of a stream on its link, from the best to the worst."""

    LIVE = "live"
    """The target has all but the newest records."""
    REPLAYING = "replaying"
    """It is sent what it missed."""
    CONNECTING = "connecting"
    """The home waits for the answer to its question."""
    BEHIND = "behind"
    """The target is several seconds behind the home's tail."""
    PAUSED = "paused"
    """An operator has paused it."""
    DOWN = "down"
    """The target is not connected, or takes nothing. It goes on by itself once the cause is
    over, which may need somebody, as a full quota does: see the alarm."""
    STOPPED = "stopped"
    """It cannot go on by itself, and needs an operator: see the alarm."""


@attrs.frozen(kw_only=True)
class RelayedStreamReport:
    """How far one partition has come on its way to one target."""

    stream: str
    partition: int
    home: str
    target: str
    state: LinkState
    coordinator: str | None = None
    """The member of the home's relay group that tells this; None if none does, and then all
    numbers are None, too."""
    standby: str | None = None
    """The member that would go on; None if there is none."""
    relay_epoch: int | None = None
    sent_records: int | None = None
    """The sequence behind the last record sent; what the target had before counts."""
    durable_records: int | None = None
    """The sequence behind the last record durable in the mirror; None until it is told."""
    tail_records: int | None = None
    """The sequence behind the home's last record."""
    lag_records: int | None = None
    lag_bytes: int | None = None
    lag_s: float | None = None
    """Age of the first record that the target lacks, at most: the larger of that by its append
    time and the time for which the coordinator has known of it."""
    buffered_records: int | None = None
    """Records in the coordinator's buffer."""
    buffered_bytes: int | None = None
    buffer_begin: int | None = None
    """The buffer has everything from this sequence on; None if it has not begun."""
    is_covered: bool = False
    """Whether the buffer has all that the target lacks."""
    replayed_count: int | None = None
    """Entries that this coordinator sent because the target had missed them, and that may have
    been sent before: after a leave in good order there are none."""
    replayed_bytes: int | None = None
    """Bytes of those. A relay that remembers what it sent on the bridge before counts what it
    sends twice; one that took over, all that it sends until the target has caught up."""
    stalls_count: int | None = None
    """Links to the target, and ways to this mirror alone, that this coordinator closed because
    nothing moved while an answer was owed; each is opened again."""
    standby_buffered_records: int | None = None
    """Records in the standby's buffer; None if it did not answer."""
    standby_is_covered: bool | None = None
    """Whether the standby's buffer has all that the target lacks, so that it could go on from
    memory; None if it did not answer."""
    question_s: float | None = None
    """Time in which the target told what it has, on the bridge that is open."""
    replay_s: float | None = None
    """Time from there until it had been sent all that it had missed."""
    round_trip_s: float | None = None
    """Time from a heartbeat of the home until all that was sent before it was durable in the
    target's mirrors, and the home heard of that; None if the target sends none back."""
    duplicates_count: int | None = None
    """Entries of the owner's multicast that the buffer had, and that were dropped."""
    refused_count: int | None = None
    """Entries of the multicast that could not be placed; the reader of the log brings them."""
    heard_epoch: int | None = None
    """The relay epoch of the coordinator that the target itself told its place; None if no
    member of the group knows of one."""
    heard_next: int = 0
    """The first sequence that it lacked then."""
    is_held: bool = False
    """Whether the owner refuses appends because this target is further behind than the stream's
    bound on loss allows, as the owner told this coordinator."""
    life: str = ""
    """The life of the stream; empty if no coordinator tells."""
    additions: int = 0
    """How often the target had been added to the stream's when this was told: a target that is
    removed and added again has another mirror."""
    durable: Watermark | None = None
    """The last entry that is durable in the mirror."""
    alarm: str | None = None
    """Why the channel was last stopped, or why no coordinator tells of it."""


@attrs.frozen(kw_only=True)
class RelayEvent:
    """A change that a coordinator noticed."""

    number: int
    """Counts the events of one coordinator, from 1."""
    time_us: int
    """By the home's clock."""
    kind: str
    """`state`, or `alarm`."""
    home: str
    target: str
    stream: str
    partition: int
    before: str
    """The state before; empty for an alarm."""
    after: str
    """The state now; the text of an alarm."""
    coordinator: str
    relay_epoch: int


@attrs.frozen(kw_only=True)
class RelayReport:
    """All that one coordinator tells at a time."""

    region: str
    coordinator: str
    standby: str | None
    relay_epoch: int
    streams: tuple[RelayedStreamReport, ...]
    is_resting: bool = False
    """Whether it leaves: all that it sent is durable, and it sends nothing more."""
    is_of_buffers: bool = False
    """Whether a member tells this that does not coordinate: of its buffers alone."""
    events: tuple[RelayEvent, ...] = ()
    """Events that this listener was not told yet; the oldest may be gone."""
