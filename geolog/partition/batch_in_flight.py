"""Entries on their way through the owner: sealed batches, and fences of named writers.

A batch that is sent again meanwhile waits for the entries that hold its records.
"""

from abc import ABC, abstractmethod

import attrs

from geolog.partition.batch_sink import SentBatch
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.sequencer import Assigned
from geolog.protocol.writer_standing import WriterFence
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.entry import EncodedEntry, EntryKind, WriterStamp, encode_entry


@attrs.define(eq=False)
class EntryInFlight(SentBatch, ABC):
    """An entry on its way: its answer tells where it is."""

    sealed: SealedBatch
    assigned: Assigned
    since_s: float
    segment: int = attrs.field(default=0, kw_only=True)
    """The latest place; it moves if the ledger fails."""
    entry: int = attrs.field(default=-1, kw_only=True)

    @property
    def first_sequence(self) -> Sequence:
        """The sequence of its first record, or of the next record if it has none."""
        return self.assigned.first_sequence

    @property
    @abstractmethod
    def is_numbered(self) -> bool:
        """Whether a named writer numbered its records."""

    @property
    @abstractmethod
    def named_writer(self) -> bytes | None:
        """The named writer that sent it, if any."""

    @abstractmethod
    def encoded(self, home_epoch: int) -> EncodedEntry:
        """The entry for its latest place."""

    @abstractmethod
    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""


@attrs.define(eq=False)
class BatchInFlight(EntryInFlight):
    """A sealed batch of records, which is an entry of its own."""

    terms: BatchTerms = NO_TERMS

    def __str__(self) -> str:
        return f"records from sequence {self.first_sequence}"

    @property
    def is_numbered(self) -> bool:
        """Whether a named writer numbered its records."""
        return self.terms.writer is not None

    @property
    def named_writer(self) -> bytes | None:
        """The named writer that sent it, if any."""
        return None if self.terms.writer is None else self.terms.writer.writer_id

    def may_hold(self, stamp: WriterStamp) -> bool:
        """Whether it may hold records that another batch of its writer holds, too."""
        own = self.terms.writer
        return (
            own is not None
            and own.writer_id == stamp.writer_id
            and own.seqs.first <= stamp.seqs.last
        )

    def encoded(self, home_epoch: int) -> EncodedEntry:
        """The entry for its latest place."""
        return encode_entry(
            [self.sealed],
            home_epoch=home_epoch,
            segment=self.segment,
            entry=self.entry,
            first_sequence=self.assigned.first_sequence,
            append_time_us=self.assigned.append_time_us,
            writers=[self.terms.writer],
        )

    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""
        sealed, append_time_us = self.sealed, self.assigned.append_time_us
        first_sequence = self.assigned.first_sequence
        state.on_entry(
            next_sequence=Sequence(first_sequence + sealed.record_count),
            append_time_us=append_time_us,
            transaction_id=self.terms.transaction_last,
            batch_bytes=sealed.length_bytes,
        )
        stamp = self.terms.writer
        if stamp is not None:
            written = WrittenBatch(
                seqs=stamp.seqs,
                segment=self.segment,
                entry=self.entry,
                slot=0,
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
class FenceInFlight(EntryInFlight):
    """The fence of a named writer's session, in its control entry."""

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

    def encoded(self, home_epoch: int) -> EncodedEntry:
        """The entry for its latest place."""
        return encode_entry(
            [self.sealed],
            kind=EntryKind.CONTROL,
            home_epoch=home_epoch,
            segment=self.segment,
            entry=self.entry,
            first_sequence=self.assigned.first_sequence,
            append_time_us=self.assigned.append_time_us,
        )

    def add_to(self, state: PartitionState) -> None:
        """Add it to the state, behind everything before it."""
        state.on_fence(self.writer_id, self.fence, self.assigned.append_time_us)


@attrs.define(eq=False)
class RepeatInFlight(SentBatch):
    """A batch that was sent again while its records were on their way."""

    sealed: SealedBatch
    stamp: WriterStamp
    first_try: BatchInFlight
    """The last entry that may hold one of its records."""
