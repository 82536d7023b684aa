"""The results of a reader: batches, records as views of (batch, row), and gaps."""

import enum
from collections.abc import Iterator

import attrs

from geolog.protocol.ids import DLSN, Position
from geolog.wire.batch import Batch
from geolog.wire.entry import WriterStamp


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
    """Rows before this one are outside the range of the read."""
    end_row: int = -1
    hedged: bool = False
    """Whether an extra request, to a further replica, was answered first."""
    origin: str | None = None
    """The home that the records were relayed from, if they were read from a mirror."""
    is_local_only: bool = False
    """Whether the records must not leave the region in which they were appended."""
    stamp: WriterStamp | None = attrs.field(default=None, repr=False)
    """The named writer of the batch, and the seqs of all its rows; None without a name, and if
    a proxy has read it."""

    def __len__(self) -> int:
        return self.end_row - self.first_row

    def __iter__(self) -> Iterator["Record"]:
        return (Record(self, row) for row in range(self.first_row, self.end_row))

    @property
    def end_sequence(self) -> int:
        """The sequence after the last record."""
        return self.first_sequence + self.end_row

    def values(self) -> list[bytes]:
        """The values of all records, faster than one by one."""
        return self.batch.values(self.first_row, self.end_row)


class GapReason(enum.Enum):
    """Why records that once existed cannot be read here."""

    TRIMMED = "trimmed"
    """They were truncated, or are past their retention."""
    DIVERGED = "diverged"
    """They were appended in a former home that was failed over, behind where the later home
    begins. Reading goes on there, in the later home."""
    EVICTED = "evicted"
    """They were dropped before they could be relayed."""
    LOCAL_ONLY = "local-only"
    """They were appended in another region, and must not leave it."""


@attrs.frozen
class Gap:
    """A run of sequences in the range of a read that the reader cannot return."""

    stream: str
    partition: int
    reason: GapReason
    from_sequence: int | None
    """The first missing sequence; None if the read began at a DLSN that is gone."""
    to_sequence: int
    """The first sequence after the gap. If they `diverged`, the place that the reader had
    reached in the former home; the later home gives sequences from `from_sequence` on again."""
    epoch: int | None = None
    """If they `diverged`, the home epoch in which reading goes on; if they are local-only, that
    in which they were appended."""

    @property
    def sequence_next(self) -> int:
        """The sequence of the record that comes next."""
        if self.reason is GapReason.DIVERGED and self.from_sequence is not None:
            return self.from_sequence
        return self.to_sequence


class Record:
    """A record of a stream."""

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
        """Number of the partition, from 0."""
        return self._batch.partition

    @property
    def epoch(self) -> int:
        """The home epoch under which the record was appended."""
        return self._batch.epoch

    @property
    def dlsn(self) -> DLSN:
        """Where the record lives: segment, entry, slot."""
        batch = self._batch
        return DLSN(batch.segment, batch.entry, batch.first_slot + self._row)

    @property
    def sequence(self) -> int:
        """Number of the record in its partition, without holes."""
        return self._batch.first_sequence + self._row

    @property
    def position(self) -> Position:
        """The position to keep in a checkpoint."""
        return Position(self.epoch, self.sequence)

    @property
    def transaction_id(self) -> int | None:
        """The application's own number, if it gave one."""
        return self._batch.batch.transaction_id(self._row)

    @property
    def writer_id(self) -> str | None:
        """The id of its named writer; None without one, and if a proxy has read it."""
        stamp = self._batch.stamp
        return None if stamp is None else stamp.writer_id.decode()

    @property
    def seq(self) -> int | None:
        """The number that its named writer gave it; None likewise."""
        stamp = self._batch.stamp
        return None if stamp is None else stamp.seqs.at(self._row)

    @property
    def timestamp_us(self) -> int:
        """Append time by the owner's clock: microseconds since 1970, UTC; never decreases."""
        return self._batch.timestamp_us

    @property
    def created_us(self) -> int:
        """Append time by the application's clock: microseconds since 1970, UTC."""
        return self._batch.batch.created_us(self._row)

    @property
    def key(self) -> bytes | None:
        """The key, or None."""
        return self._batch.batch.key(self._row)

    @property
    def value(self) -> bytes:
        """The value."""
        return self._batch.batch.value(self._row)

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers; empty if the record has none."""
        return self._batch.batch.headers(self._row)

    @property
    def is_local_only(self) -> bool:
        """Whether the record must not leave the region in which it was appended."""
        return self._batch.is_local_only

    @property
    def origin(self) -> str | None:
        """The region that the record was relayed from; None in the region it was written in."""
        return self._batch.origin

    @property
    def served_region(self) -> str:
        """The region of the replica that the record was read from."""
        return self._batch.served_region

    @property
    def hedged(self) -> bool:
        """Whether an extra request, to a further replica, was answered first."""
        return self._batch.hedged
