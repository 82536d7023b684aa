"""Messages of `/v1/session`: one socket to a proxy, with a channel for each partition.

Theory of operation. The client opens channels, numbers them, and sends sealed batches on them.
Each batch gets one answer on its channel, in order: where it is, that it was refused, or, if
the log has its seqs already, the first place of each record. A channel has credit of its own:
the client never has more bytes unanswered on it than the proxy allowed, or one batch, so that
the proxy need not stop reading, and a slow stream delays no other (PROTOCOL S30). A channel
that cannot go on is closed by the proxy, with the reason and where to go; what was unanswered
on it is then in doubt.
"""

import attrs

from geolog.protocol.ids import DLSN
from geolog.protocol.stream_state import FIRST_HOME_EPOCH
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from topology.errors import Outcome


@attrs.frozen(kw_only=True)
class ToldError:
    """An error as it travels."""

    code: int
    error: str
    outcome: Outcome = "refused"
    kind: str = ""
    """Names a class of errors that the code alone does not tell."""
    retry_after_s: float | None = None
    """For code 429: how long to wait before the next attempt."""


@attrs.frozen
class DescribeRequest:
    """Asks for the facts of a stream that a writer needs."""

    request: int
    stream: str


@attrs.frozen(kw_only=True)
class StreamTold:
    """Answer to a `DescribeRequest`."""

    request: int
    life: str
    partitions: int
    home_epoch: int
    session_epoch: int = FIRST_HOME_EPOCH
    """The home epoch in which sessions of writers begin; see `SessionHome`."""


@attrs.frozen
class OpenChannel:
    """Opens a channel to one partition of one life of a stream."""

    channel: int
    stream: str
    life: str
    partition: int
    avoid: tuple[str, ...] = ()
    """Addresses of proxies that the client could not use just now: it is not sent there to
    take the partition over, only if they own it."""


@attrs.frozen(kw_only=True)
class ChannelOpened:
    """The channel takes batches."""

    channel: int
    epoch: int
    """The epoch of the partition's owner."""
    home_epoch: int
    """The stream's home epoch."""
    session_epoch: int = FIRST_HOME_EPOCH
    """The home epoch in which sessions of writers begin; see `SessionHome`."""
    forks: tuple[tuple[int, int], ...] = ()
    """Of the partition's `Lineage`."""
    transaction_id: int | None
    """Highest transaction id in the log, if any record has one."""
    credit_bytes: int
    """Bytes of batches that the client may have unanswered."""


@attrs.frozen
class AskStanding:
    """Asks where a named writer stands; with a fence, begins its session first."""

    channel: int
    request: int
    writer_id: bytes
    fence: WriterFence | None


@attrs.frozen
class StandingTold:
    """Answer to `AskStanding`."""

    channel: int
    request: int
    standing: WriterStanding


@attrs.frozen
class RequestRefused:
    """Answer to a request other than a batch that failed."""

    channel: int
    """0 for a request of no channel."""
    request: int
    error: ToldError
    epoch: int | None = None
    """For a refused fence: the epoch of the session that the partition has."""


@attrs.frozen
class SendBatch:
    """A sealed batch to append. Numbers rise by one on each channel, from 0."""

    channel: int
    number: int
    terms: BatchTerms
    sealed: SealedBatch


@attrs.frozen
class BatchPlaced:
    """The batch is in the log."""

    channel: int
    number: int
    segment: int
    entry: int
    slot: int
    """Slot of its first record in the entry."""
    first_sequence: int
    valid_ms: int | None = None
    """The answer counts only if it comes within this time of the sending of the batch; None:
    always."""


@attrs.frozen
class FirstPlaceTold:
    """Where the log had a record already."""

    dlsn: DLSN
    sequence: int
    valid_ms: int | None = None
    """As of `BatchPlaced`."""


@attrs.frozen
class BatchCompared:
    """The log had seqs of the batch: nothing was appended, and each record has its answer."""

    channel: int
    number: int
    rows: tuple[FirstPlaceTold | ToldError, ...]


@attrs.frozen
class BatchRefused:
    """Nothing of the batch was appended, unless the error's outcome says otherwise."""

    channel: int
    number: int
    error: ToldError


@attrs.frozen
class CloseChannel:
    """The client needs the channel no more."""

    channel: int


@attrs.frozen(kw_only=True)
class ChannelClosed:
    """The channel cannot go on. Batches that were not taken are certainly not in the log."""

    channel: int
    error: ToldError
    location: str | None = None
    """The address of the proxy that has the partition now, if known."""
    answered_count: int = 0
    """Batches that were answered; those taken behind them may be in the log."""
    taken_count: int = 0
    """Batches that were taken."""


@attrs.frozen
class SessionGoaway:
    """The proxy drains: open no more channels here; those that are open close one by one."""
