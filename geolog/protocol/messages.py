"""The messages between a ledger client and a storage node, as values.

`geolog.wire.codec` turns them into frames and back; the cores use them as they are. Adds are
numbered per connection, from 1 (`ordinal`), and answered cumulatively. `AddsSynced(k)` says
that adds 1 to k of this connection are on disk, except those that an `AddRefused` named;
`AddsReceived(k)` says that they are in the node's memory. Every other request carries a number
of its own (`request`), which its answer repeats.

A request that may change a node, or that may be answered with an absence, names the instance it
is meant for, so that a replacement at the same address never answers for its predecessor.

A client that no longer wants an answer says so with `Cancel`. The request still gets its one
last message, and only then does the client forget its number.

Rules: PROTOCOL N17.
"""

import enum

import attrs

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId


class Answer(enum.IntEnum):
    """A node's answer about one entry. Only ABSENT, from an intact node, counts as absence."""

    HAVE = 1
    ABSENT = 2
    CORRUPT = 3
    UNKNOWN = 4


class Reason(enum.IntEnum):
    """Why a node refuses a request."""

    FENCED = 1
    """A higher epoch was seen, or the ledger is fenced: the sender is no longer its writer."""
    WRONG_INSTANCE = 2
    """Meant for another node, one that was at this address before."""
    WRONG_CLUSTER = 3
    NO_SUCH_LEDGER = 4
    """The ledger was never opened here, or was deleted."""
    CONFLICT = 5
    """Other bytes are stored here for the same entry."""
    DAMAGED = 6
    """The bytes do not match their checksum."""
    TOO_LARGE = 7
    BUSY = 8
    """The node's limit on bytes in flight is reached: send again later."""
    READ_ONLY = 9
    STOPPING = 10
    UNSUPPORTED = 11
    """The node does not know the protocol version or the message."""
    CANCELLED = 12
    """The client cancelled the request. It says nothing about the ledger."""


@attrs.frozen
class Hello:
    """First message on each connection, from the client."""

    request: int
    protocol_version: int
    cluster: str


@attrs.frozen
class HelloAnswer:
    """First message from the node: its identity, and how much may be in flight."""

    request: int
    protocol_version: int
    instance: InstanceId
    location: str
    in_flight_bytes_max: int


@attrs.frozen
class Refused:
    """Refusal of any request except an add."""

    request: int
    reason: Reason
    epoch_highest: Epoch
    message: str


@attrs.frozen
class Add:
    """Store one entry. `body_crc` is the CRC32C of `body`, which is one encoded entry."""

    ordinal: int
    ledger: LedgerId
    entry: EntryId
    epoch: Epoch
    lac: EntryId
    is_recovery: bool
    wants_received: bool
    """Whether to send `AddsReceived` for it too, before it is on disk."""
    instance: InstanceId
    body: bytes | memoryview = attrs.field(repr=False)
    body_crc: int = attrs.field(repr=False)


@attrs.frozen
class AddsSynced:
    """All adds of this connection up to `through`, except refused ones, are on disk."""

    through: int


@attrs.frozen
class AddsReceived:
    """All adds of this connection up to `through`, except refused ones, are in memory.

    Sent only up to an add that asked for it. It promises nothing durable.
    """

    through: int


@attrs.frozen
class AddRefused:
    """The add with this ordinal is not stored, and nothing of it will be."""

    ordinal: int
    reason: Reason
    epoch_highest: Epoch


@attrs.frozen
class OpenLedger:
    """Make the ledger known to the node under `epoch`. Only a fence does so too."""

    request: int
    ledger: LedgerId
    epoch: Epoch
    instance: InstanceId


@attrs.frozen
class LedgerOpened:
    """The ledger is durably known."""

    request: int


@attrs.frozen
class Fence:
    """Durably refuse every add except those of recovery under this epoch or a higher one."""

    request: int
    ledger: LedgerId
    epoch: Epoch
    instance: InstanceId


@attrs.frozen
class Fenced:
    """The fence is on disk; with the highest LAC and entry that the node has seen."""

    request: int
    lac: EntryId
    entry_highest: EntryId


@attrs.frozen
class Read:
    """Read entries `first` to `first + count_max - 1`.

    One answer holds at most `bytes_max`, but at least one entry. Up to `answers_max` answers
    follow each other, in entry order; the last one is marked. A `fence_epoch` other than 0
    makes it a recovery read, which first fences as `Fence` does. With `is_from_disk` the node
    reads from the disk, past every cache that it can bypass, once everything that it was given
    before is on disk. So a verification sees what would be left if the node restarted.
    """

    request: int
    ledger: LedgerId
    first: EntryId
    count_max: int
    bytes_max: int
    answers_max: int
    fence_epoch: Epoch
    instance: InstanceId
    is_from_disk: bool = False


@attrs.frozen
class EntryAnswer:
    """One entry of a `ReadAnswer`; `body` is empty unless the answer is HAVE."""

    answer: Answer
    body: bytes | memoryview = attrs.field(repr=False, default=b"")


@attrs.frozen
class ReadAnswer:
    """Answers for entries from `first`; may be fewer than requested.

    To a `Read` there is at least one; to a `Follow` none if its time is over or the ledger
    fenced.
    """

    request: int
    lac: EntryId
    first: EntryId
    entries: tuple[EntryAnswer, ...]
    is_last: bool = attrs.field(default=True, kw_only=True)
    """Whether this is the last answer to the request."""
    is_fenced: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Follow:
    """Answer once the LAC is at `first` or above, with the entries from `first` to the LAC.

    Answer without entries when `wait_ms` are over or the ledger is fenced. It never fences, and
    never returns an entry above the LAC. With `count_max` 0 it asks for the LAC alone.
    """

    request: int
    ledger: LedgerId
    first: EntryId
    count_max: int
    bytes_max: int
    wait_ms: int
    instance: InstanceId


@attrs.frozen
class Probe:
    """Like `Read`, but for the answers alone. With `count_max` 0 it asks only for the LAC."""

    request: int
    ledger: LedgerId
    first: EntryId
    count_max: int
    instance: InstanceId


@attrs.frozen
class ProbeAnswer:
    """Answers for `count_max` entries from `first`, and the node's state of the ledger."""

    request: int
    lac: EntryId
    entry_highest: EntryId
    is_fenced: bool
    epoch_highest: Epoch
    answers: tuple[Answer, ...]


@attrs.frozen
class Cancel:
    """The client no longer wants answers to its own request with this number.

    Meant for a request that is `Cancellable`. The node drops what it has not read yet, and
    ends the request with its normal last answer or with `Refused(CANCELLED)`: one of them,
    once. It is not answered itself. If no such request is open, it means nothing.
    """

    request: int
    """The number of that request."""


@attrs.frozen
class PushLac:
    """The writer's LAC, sent when no add will carry it soon. Not answered."""

    ledger: LedgerId
    epoch: Epoch
    lac: EntryId
    instance: InstanceId


@attrs.frozen
class SettleDoubt:
    """Everything that damage may have taken from the node is accounted for or copied back.

    The sender has seen in metadata that every ledger below `ledgers_below` is deleted, or was
    never this node's, or is CLOSED, fenced here, and intact here as far as it is this node's.
    (It may have been fenced before: a lost fence is taken again.) The node refuses if
    `ledgers_below` is below its own bound (`doubt_below` in its status). It also refuses if it
    has restarted since `start_number` was read, because it may have found more damage than was
    examined.
    """

    request: int
    ledgers_below: LedgerId
    start_number: int
    """From the node's status, read before anything was examined."""
    instance: InstanceId


@attrs.frozen
class DoubtSettled:
    """Durably: damage found so far no longer counts."""

    request: int


@attrs.frozen
class StatusRequest:
    """Ask a node for its status."""

    request: int


@attrs.frozen
class Status:
    """A node's status: a JSON object as text, for people and the command."""

    request: int
    document: str


Cancellable = Read | Follow | Probe
"""Requests that a client may cancel: giving them up changes nothing at the node."""

Message = (
    Hello
    | HelloAnswer
    | Refused
    | Add
    | AddsSynced
    | AddsReceived
    | AddRefused
    | OpenLedger
    | LedgerOpened
    | Fence
    | Fenced
    | Read
    | ReadAnswer
    | Follow
    | Probe
    | ProbeAnswer
    | Cancel
    | PushLac
    | SettleDoubt
    | DoubtSettled
    | StatusRequest
    | Status
)
