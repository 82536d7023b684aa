"""Messages between a client and a write proxy, whatever their encoding.

Theory of operation. The proxy speaks first: `SessionHello`. On an append path each append
gets one `Ack` or `ErrorAnswer`, in order. On a read path the proxy sends records and gaps, as
far as the client's `Credit` allows, and then `ReadEnd`; the client sends a `CursorCommit` for
what it is done with, if the path names a cursor. A draining proxy says `Goaway`; it
still answers every append that it has taken.
"""

from collections.abc import Mapping

import attrs

from geolog.protocol.ids import DLSN
from topology.errors import Outcome

AppendId = int | str
"""Chosen by the client; its answer repeats it."""


@attrs.frozen(kw_only=True)
class SessionHello:
    """First message of a proxy, once the path is accepted."""

    session: str
    region: str
    owner: str | None
    """The process that owns the partition; None if the path names several partitions."""
    epoch: int | None
    """The owner's epoch; None likewise."""
    writer_epoch: int | None
    """The epoch of the named writer's session; None before one is open."""
    writer_seq: int | None
    """The writer's highest seq in the log, -1 for none; None before its session is open."""
    max_frame_bytes: int
    credit_bytes: int
    """Bytes of appends that the client may have unanswered."""


@attrs.frozen
class RecordContent:
    """The fields of a record that its writer gives."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    transaction_id: int | None = None
    local_only: bool = False
    """Whether the record must not leave the region of the stream's home."""


@attrs.frozen(kw_only=True)
class AppendRequest:
    """Records to append, in order."""

    id: AppendId | None
    records: tuple[RecordContent, ...]
    is_list: bool = False
    """Whether they came as a list: the answer then has a position for each."""
    writer: str | None = None
    seq: int | None = None
    """The seq of the first record; each further record has the next."""
    ack: str | None = None
    expect_sequence: int | None = None
    timeout_s: float | None = None
    """Refuse the append if the proxy cannot begin it within this time of its arrival."""


@attrs.frozen(kw_only=True)
class AckPosition:
    """Where one record is."""

    dlsn: DLSN
    epoch: int
    sequence: int
    partition: int
    duplicate: bool


@attrs.frozen(kw_only=True)
class Ack:
    """Answer to an append that succeeded, with the position of each of its records."""

    id: AppendId | None
    positions: tuple[AckPosition, ...]
    is_list: bool = False
    provisional: bool = False
    """Whether the records are in memory only, as the append's ack level allows."""
    valid_ms: int | None = None
    """It counts only if it comes this soon after the sending of the append; None: always."""


@attrs.frozen(kw_only=True)
class ErrorAnswer:
    """Answer to a request that failed; without an id, the reason why the session ends."""

    id: AppendId | None
    code: int
    error: str
    outcome: Outcome
    retriable: bool
    location: str | None = None
    """Address to go to: the partition's owner."""
    retry_after_s: float | None = None


@attrs.frozen
class Credit:
    """The client takes this many more records."""

    records: int


@attrs.frozen
class CursorCommit:
    """The client is done with a partition's records up to this one; the path names a cursor."""

    sequence: int
    partition: int | None = None
    """None if the path names one partition, or the stream has only one."""
    id: AppendId | None = None
    """Ask for an answer once the commit is stored."""


@attrs.frozen
class CursorLeave:
    """The client reads no more: store its commits, give the cursor up, and close."""


@attrs.frozen
class CursorCommitted:
    """Answer to a commit with an id: it is stored."""

    id: AppendId


@attrs.frozen
class Goaway:
    """The proxy drains: connect to another one; what was sent here is still answered."""


@attrs.frozen
class ReadEnd:
    """Everything up to the end of the range was sent."""
