"""The segment that a partition's owner is writing: its ledger, and how to close both."""

from geolog.catalog.segment_changes import ClosingSegment
from geolog.catalog.segment_records import VersionedSegment
from geolog.ledger.writing.ensemble_keeper import EnsembleKeeper
from geolog.ledger.writing.ledger_writer import LedgerWriter
from geolog.protocol.ids import EntryId, Sequence
from geolog.protocol.partition_state import PartitionState


class OpenSegment:
    """One OPEN ledger, listed as the last segment."""

    def __init__(
        self, segment: VersionedSegment, writer: LedgerWriter, keeper: EnsembleKeeper
    ) -> None:
        self.segment = segment
        self.writer = writer
        self.keeper = keeper
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"OpenSegment({self.segment.record.segment}, {self.writer!r})"

    @property
    def number(self) -> int:
        """Its number in the partition's list."""
        return self.segment.record.segment

    def closing(
        self, last_entry: EntryId, acknowledged: PartitionState, *, local_us: int
    ) -> ClosingSegment:
        """The records that close it and its ledger at `last_entry`, in this state.

        `local_us`: the time by this host's clock, not adjusted to the metadata store's.
        """
        completed = self.segment.record.completed(
            last_entry=last_entry,
            last_sequence=Sequence(acknowledged.sequence_next - 1),
            last_append_time_us=acknowledged.append_time_us,
            completed_us=local_us,
            last_transaction_id=acknowledged.transaction_id,
            size_bytes_through=acknowledged.size_bytes,
            local_only_through=acknowledged.local_only_count,
        )
        return ClosingSegment(
            self.keeper.ledger, self.keeper.closing(last_entry), self.segment, completed
        )
