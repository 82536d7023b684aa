"""What a reader gives: batches, and records as views of (batch, row)."""

import enum
from collections.abc import Iterator

import attrs

from geolog.protocol.ids import DLSN, Position
from geolog.wire.batch import Batch


@attrs.frozen(eq=False)
class RecordBatch:
    """A run of records with consecutive sequences, as the writer sealed them."""

    stream: str
    partition: int
    epoch: int
    segment: int
    entry: int
    first_slot: int
    first_sequence: int
    timestamp_us: int
    served_region: str
    batch: Batch = attrs.field(repr=False)
    first_row: int = 0
    """Rows before it lie outside what was asked for."""
    end_row: int = -1

    def __len__(self) -> int:
        return self.end_row - self.first_row

    def __iter__(self) -> Iterator["Record"]:
        return (Record(self, row) for row in range(self.first_row, self.end_row))

    @property
    def end_sequence(self) -> int:
        """The sequence behind the last record."""
        return self.first_sequence + self.end_row

    def values(self) -> list[bytes]:
        """The values of all records."""
        return [self.batch.value(row) for row in range(self.first_row, self.end_row)]


class GapReason(enum.Enum):
    """Why records that there were cannot be read."""

    TRIMMED = "trimmed"
    """They were truncated, or are past their retention."""
    DIVERGED = "diverged"
    """They were appended by a home that was given up, and are not in the log that goes on."""
    EVICTED = "evicted"
    """They were dropped before they could be relayed."""


@attrs.frozen
class Gap:
    """A run of sequences that a reader does not give, where it would have given them."""

    stream: str
    partition: int
    reason: GapReason
    from_sequence: int | None
    """The first that is missing; None where it was named by a DLSN that is gone."""
    to_sequence: int
    """The first that is there again, or will be."""


class Record:
    """One record."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: RecordBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __repr__(self) -> str:
        return f"<Record {self.stream} {self.dlsn} sequence={self.sequence}>"

    @property
    def stream(self) -> str:
        """NAMESPACE/NAME."""
        return self._batch.stream

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._batch.partition

    @property
    def epoch(self) -> int:
        """The home epoch under which it was appended."""
        return self._batch.epoch

    @property
    def dlsn(self) -> DLSN:
        """Segment, entry, slot."""
        batch = self._batch
        return DLSN(batch.segment, batch.entry, batch.first_slot + self._row)

    @property
    def sequence(self) -> int:
        """Dense number in the partition."""
        return self._batch.first_sequence + self._row

    @property
    def position(self) -> Position:
        """What a checkpoint keeps."""
        return Position(self.epoch, self.sequence)

    @property
    def transaction_id(self) -> int | None:
        """The application's own number."""
        return self._batch.batch.transaction_id(self._row)

    @property
    def timestamp_us(self) -> int:
        """When the owner took it in; microseconds since 1970, UTC; never decreasing."""
        return self._batch.timestamp_us

    @property
    def created_us(self) -> int:
        """When the application appended it, by its own clock."""
        return self._batch.batch.created_us(self._row)

    @property
    def key(self) -> bytes | None:
        """The key, if it has one."""
        return self._batch.batch.key(self._row)

    @property
    def value(self) -> bytes:
        """The value."""
        return self._batch.batch.value(self._row)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers; empty if it has none."""
        return self._batch.batch.headers(self._row)

    @property
    def origin(self) -> str | None:
        """The region it was relayed from; None where it was written."""
        return None

    @property
    def served_region(self) -> str:
        """The region of the replica that it was read from."""
        return self._batch.served_region

    @property
    def hedged(self) -> bool:
        """Whether a second replica was asked for it, and answered first."""
        return False
