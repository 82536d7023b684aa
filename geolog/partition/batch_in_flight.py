"""Parts of entries on their way through the owner: sealed batches, and fences of named writers.

Batches may share an entry; a fence has one of its own. A batch that is sent again meanwhile
waits for the batches that hold its records.

Rules: PROTOCOL S32.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from collections.abc import Sequence as Several
from itertools import groupby
from operator import attrgetter

import attrs

from geolog.partition.batch_sink import SentBatch
from geolog.protocol.ids import Sequence
from geolog.protocol.owner_answers import Placed, Received
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.sequencer import Assigned
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.entry import EncodedEntry, EntryKind, WriterStamp, encode_entry


@attrs.define(eq=False)
class PartInFlight(SentBatch, ABC):
    """A part of an entry on its way: its answer tells where it is."""

    sealed: SealedBatch
    assigned: Assigned
    since_s: float
    segment: int = attrs.field(default=0, kw_only=True)
    """The latest place; it moves if the ledger fails."""
    entry: int = attrs.field(default=-1, kw_only=True)
    slot: int = attrs.field(default=0, kw_only=True)
    """Slot of its first record in the entry."""
    append_time_us: int = attrs.field(default=0, kw_only=True)
    """Append time of the entry."""

    @property
    def first_sequence(self) -> Sequence:
        """The sequence of its first record, or of the next record if it has none."""
        return self.assigned.first_sequence

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch."""
        return self.sealed.length_bytes

    @property
    def placed(self) -> Placed:
        """The answer that tells its place."""
        return Placed(self.segment, self.entry, self.slot, self.first_sequence)

    @property
    def received_there(self) -> Received:
        """The answer that tells its place before that is final."""
        return Received(self.segment, self.entry, self.slot, self.first_sequence)

    @property
    @abstractmethod
    def is_alone(self) -> bool:
        """Whether it must be an entry of its own."""

    @property
    @abstractmethod
    def is_local_only(self) -> bool:
        """Whether it must not leave the region, nor share an entry with what may."""

    @property
    @abstractmethod
    def is_numbered(self) -> bool:
        """Whether a named writer numbered its records."""

    @property
    @abstractmethod
    def named_writer(self) -> bytes | None:
        """The named writer that sent it, if any."""

    @property
    @abstractmethod
    def stamp(self) -> WriterStamp | None:
        """The writer and the seqs of its records, if they have any."""

    @abstractmethod
    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""


def encode_parts(
    parts: Several[PartInFlight], *, home_epoch: int, segment: int, entry: int
) -> EncodedEntry:
    """The entry of these parts, at this place, which they take as their latest.

    The entry has the append time of its last part: times that were assigned never fall.
    """
    slot, append_time_us = 0, parts[-1].assigned.append_time_us
    for part in parts:
        part.segment, part.entry, part.slot = segment, entry, slot
        part.append_time_us = append_time_us
        if part.answer is not None:  # The ledger in whose memory it was has failed.
            part.answer = part.received_there
        slot += part.sealed.record_count
    return encode_entry(
        [part.sealed for part in parts],
        kind=EntryKind.CONTROL if parts[0].is_alone else EntryKind.DATA,
        home_epoch=home_epoch,
        segment=segment,
        entry=entry,
        first_sequence=parts[0].first_sequence,
        append_time_us=append_time_us,
        writers=[part.stamp for part in parts],
        is_local_only=parts[0].is_local_only,
    )


def entries_of(parts: Iterable[PartInFlight]) -> list[list[PartInFlight]]:
    """The parts that were encoded for one ledger, entry by entry."""
    return [list(entry) for _, entry in groupby(parts, attrgetter("entry"))]


@attrs.define(eq=False)
class BatchInFlight(PartInFlight):
    """A sealed batch of records."""

    terms: BatchTerms = NO_TERMS

    def __str__(self) -> str:
        return f"records from sequence {self.first_sequence}"

    @property
    def is_alone(self) -> bool:
        """Whether it must be an entry of its own: it may share one with other batches."""
        return False

    @property
    def is_local_only(self) -> bool:
        """Whether its records must not leave the region."""
        return self.terms.is_local_only

    @property
    def is_numbered(self) -> bool:
        """Whether a named writer numbered its records."""
        return self.terms.writer is not None

    @property
    def named_writer(self) -> bytes | None:
        """The named writer that sent it, if any."""
        return None if self.terms.writer is None else self.terms.writer.writer_id

    @property
    def stamp(self) -> WriterStamp | None:
        """The writer and the seqs of its records, if they have any."""
        return self.terms.writer

    def may_hold(self, stamp: WriterStamp) -> bool:
        """Whether it may hold records that another batch of its writer holds, too."""
        own = self.terms.writer
        return (
            own is not None
            and own.writer_id == stamp.writer_id
            and own.seqs.first <= stamp.seqs.last
        )

    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""
        sealed, append_time_us = self.sealed, self.append_time_us
        first_sequence = self.assigned.first_sequence
        state.on_entry(
            next_sequence=Sequence(first_sequence + sealed.record_count),
            append_time_us=append_time_us,
            transaction_id=self.terms.transaction_last,
            batch_bytes=sealed.length_bytes,
            local_only_count=sealed.record_count if self.is_local_only else 0,
        )
        stamp = self.terms.writer
        if stamp is not None:
            written = WrittenBatch(
                seqs=stamp.seqs,
                segment=self.segment,
                entry=self.entry,
                slot=self.slot,
                first_sequence=first_sequence,
                header_crc=sealed.header_crc,
                body_crc=sealed.body_crc,
            )
            state.on_batch(
                stamp.writer_id,
                stamp.epoch,
                written,
                append_time_us,
                partitions=stamp.partitions,
            )


@attrs.define(eq=False)
class FenceInFlight(PartInFlight):
    """The fence of a named writer's session."""

    writer_id: bytes
    fence: WriterFence

    def __str__(self) -> str:
        return f"the fence of writer {self.writer_id.decode()!r} at epoch {self.fence.epoch}"

    @property
    def is_numbered(self) -> bool:
        """Whether a named writer numbered its records: it has none."""
        return False

    @property
    def named_writer(self) -> bytes | None:
        """The named writer that sent it."""
        return self.writer_id

    @property
    def is_alone(self) -> bool:
        """Whether it must be an entry of its own: it must, a control entry."""
        return True

    @property
    def is_local_only(self) -> bool:
        """Whether it must not leave the region: mirrors need it."""
        return False

    @property
    def stamp(self) -> WriterStamp | None:
        """The writer and the seqs of its records: it has none."""
        return None

    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""
        state.on_fence(self.writer_id, self.fence, self.append_time_us)


@attrs.define(eq=False)
class RepeatInFlight(SentBatch):
    """A batch that was sent again while its records were on their way."""

    sealed: SealedBatch
    stamp: WriterStamp
    first_try: BatchInFlight
    """The last batch that may hold one of its records."""
