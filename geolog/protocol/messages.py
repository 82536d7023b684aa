"""What a ledger client and a storage node say to each other, as values.

`geolog.wire.codec` turns them into frames and back; the cores take them and give them as they
are. Adds are numbered by connection, from 1 (`ordinal`), and answered cumulatively:
`AddsSynced(k)` says that adds 1 to k of this connection are on disk, but for those that an
`AddRefused` named. Every other request carries a number of its own (`request`), which its
answer repeats.

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
    instance: InstanceId
    body: bytes | memoryview = attrs.field(repr=False)
    body_crc: int = attrs.field(repr=False)


@attrs.frozen
class AddsSynced:
    """All adds of this connection up to `through`, but for refused ones, are on disk."""

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

    The answer holds at most `bytes_max`, but at least one entry. With `fence_epoch` it is a
    recovery read: it fences first, as `Fence` does. An epoch of 0 is none.
    """

    request: int
    ledger: LedgerId
    first: EntryId
    count_max: int
    bytes_max: int
    fence_epoch: Epoch
    instance: InstanceId


@attrs.frozen
class EntryAnswer:
    """One entry of a `ReadAnswer`; `body` is empty unless the answer is HAVE."""

    answer: Answer
    body: bytes | memoryview = attrs.field(repr=False, default=b"")


@attrs.frozen
class ReadAnswer:
    """Answers for entries `first` on: at least one, fewer than asked where bytes ran out."""

    request: int
    lac: EntryId
    first: EntryId
    entries: tuple[EntryAnswer, ...]


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
    | AddRefused
    | OpenLedger
    | LedgerOpened
    | Fence
    | Fenced
    | Read
    | ReadAnswer
    | Probe
    | ProbeAnswer
    | PushLac
    | StatusRequest
    | Status
)
