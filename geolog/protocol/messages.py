"""What a ledger client and a storage node say to each other, as values.

`geolog.wire.codec` turns them into frames and back; the cores take them and give them as they
are. Adds are numbered by connection, from 1 (`ordinal`), and answered cumulatively:
`AddsSynced(k)` says that adds 1 to k of this connection are on disk, but for those that an
`AddRefused` named; `AddsReceived(k)` that they are in the node's memory. Every other request
carries a number of its own (`request`), which its answer repeats.

Each request that may change a node, or whose answer may be an absence, names the instance that
it is meant for: a node that was replaced at the same address never answers for its predecessor.
"""

import enum

import attrs

from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId


class Answer(enum.IntEnum):
    """What a node says of one entry. Only ABSENT, from an intact node, counts as absence."""

    HAVE = 1
    ABSENT = 2
    CORRUPT = 3
    UNKNOWN = 4


class Reason(enum.IntEnum):
    """Why a node refuses."""

    FENCED = 1
    """A higher epoch was seen, or the ledger is fenced: the sender is not its writer any more.
    """
    WRONG_INSTANCE = 2
    """Meant for another node: the one that was at this address before."""
    WRONG_CLUSTER = 3
    NO_SUCH_LEDGER = 4
    """The ledger was never opened here."""
    CONFLICT = 5
    """The same entry with other bytes is stored here."""
    DAMAGED = 6
    """The bytes do not match their checksum."""
    TOO_LARGE = 7
    BUSY = 8
    """The node's bound on bytes in flight is reached: send again later."""
    READ_ONLY = 9
    STOPPING = 10
    UNSUPPORTED = 11
    """The protocol version, or the message, is not known here."""


@attrs.frozen
class Hello:
    """First on each connection, from the client."""

    request: int
    protocol_version: int
    cluster: str


@attrs.frozen
class HelloAnswer:
    """First on each connection, from the node: who it is, and how much may be in flight."""

    request: int
    protocol_version: int
    instance: InstanceId
    location: str
    in_flight_bytes_max: int


@attrs.frozen
class Refused:
    """Answer to any request but an add."""

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
    """Whether `AddsReceived` is wanted for it too, before it is on disk."""
    instance: InstanceId
    body: bytes | memoryview = attrs.field(repr=False)
    body_crc: int = attrs.field(repr=False)


@attrs.frozen
class AddsSynced:
    """All adds of this connection up to `through`, but for refused ones, are on disk."""

    through: int


@attrs.frozen
class AddsReceived:
    """All adds of this connection up to `through`, but for refused ones, are in memory.

    Said only up to an add that asked for it. Nothing durable follows from it.
    """

    through: int


@attrs.frozen
class AddRefused:
    """The add of that ordinal is not stored; nothing of it will be."""

    ordinal: int
    reason: Reason
    epoch_highest: Epoch


@attrs.frozen
class OpenLedger:
    """Make the ledger known to the node under `epoch`; the only way but a fence."""

    request: int
    ledger: LedgerId
    epoch: Epoch
    instance: InstanceId


@attrs.frozen
class LedgerOpened:
    """The ledger is known, durably."""

    request: int


@attrs.frozen
class Fence:
    """Refuse, durably, every add that is not the recovery's of this epoch or a higher one."""

    request: int
    ledger: LedgerId
    epoch: Epoch
    instance: InstanceId


@attrs.frozen
class Fenced:
    """The fence is on disk. With the highest LAC and entry that the node has seen."""

    request: int
    lac: EntryId
    entry_highest: EntryId


@attrs.frozen
class Read:
    """Read entries `first` to `first + count_max - 1`.

    One answer holds at most `bytes_max`, but at least one entry. Up to `answers_max` of them
    follow each other, entry after entry; the last says so. With `fence_epoch` it is a recovery
    read: it fences first, as `Fence` does. An epoch of 0 is none. With `is_from_disk` the bytes
    come from the disk, past every cache that the node can pass, after all that it was given
    before is there: so a verification sees what would be left if the node started again.
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
    """Answers for entries `first` on: fewer than asked where the node finds it enough.

    To a `Read` at least one; to a `Follow` none when its time was over, or the ledger fenced.
    """

    request: int
    lac: EntryId
    first: EntryId
    entries: tuple[EntryAnswer, ...]
    is_last: bool = attrs.field(default=True, kw_only=True)
    """Whether no other answer to the same request follows."""
    is_fenced: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class Follow:
    """Answer as soon as the LAC is at `first` or above, with the entries from there to it.

    Else when `wait_ms` are over, or the ledger is fenced: with no entries. It never fences, and
    never shows an entry above the LAC.
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
    """As `Read`, but for the answers alone. With `count_max` 0 it asks only for the LAC."""

    request: int
    ledger: LedgerId
    first: EntryId
    count_max: int
    instance: InstanceId


@attrs.frozen
class ProbeAnswer:
    """Answers for `count_max` entries from `first`, and what the node knows of the ledger."""

    request: int
    lac: EntryId
    entry_highest: EntryId
    is_fenced: bool
    epoch_highest: Epoch
    answers: tuple[Answer, ...]


@attrs.frozen
class PushLac:
    """The writer's LAC, when no add carries it soon. Not answered."""

    ledger: LedgerId
    epoch: Epoch
    lac: EntryId
    instance: InstanceId


@attrs.frozen
class SettleDoubt:
    """All that damage may have taken from the node is known or copied back to it.

    Whoever says so has seen in metadata, for every ledger below `ledgers_below`, that it is
    deleted, was never this node's, or is CLOSED, fenced here, and intact here as far as it is
    this node's (it may have been before: a fence that was lost is taken again). `ledgers_below`
    is at least the node's own bound (`doubt_below` in its status), else it refuses. It refuses
    as well if it has started since: it may have been damaged more than was looked at.
    """

    request: int
    ledgers_below: LedgerId
    start_number: int
    """Of its status, read before anything was looked at."""
    instance: InstanceId


@attrs.frozen
class DoubtSettled:
    """No damage found so far counts any more, durably."""

    request: int


@attrs.frozen
class StatusRequest:
    """Ask a node how it is."""

    request: int


@attrs.frozen
class Status:
    """How a node is: a JSON object as text, for people and the command."""

    request: int
    document: str


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
    | PushLac
    | SettleDoubt
    | DoubtSettled
    | StatusRequest
    | Status
)
