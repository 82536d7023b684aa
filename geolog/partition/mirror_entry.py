"""An entry on its way into a mirror: the home's bytes, and their place in the home's log.

Rules: PROTOCOL H26.
"""

import attrs
from crc32c import crc32c

from geolog.protocol.ids import Sequence
from geolog.protocol.mirror_course import SentEntry
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import SegmentRecord
from geolog.protocol.watermark import Watermark
from geolog.wire.entry import EncodedEntry, EntryKind, decode_entry


@attrs.frozen(kw_only=True)
class SegmentBegin:
    """The home's facts about a segment's beginning, for a mirror that begins there."""

    first_sequence: Sequence
    append_time_us_before: int = 0
    transaction_id_before: int | None = None
    size_bytes_before: int = 0
    local_only_before: int = 0

    @classmethod
    def of(cls, record: SegmentRecord) -> "SegmentBegin":
        """The beginning of a listed segment."""
        return cls(
            first_sequence=record.first_sequence,
            append_time_us_before=record.append_time_us_before,
            transaction_id_before=record.transaction_id_before,
            size_bytes_before=record.size_bytes_before,
            local_only_before=record.local_only_before,
        )

    @property
    def state(self) -> PartitionState:
        """The state of a log that ends there, as far as a mirror knows it."""
        return PartitionState(
            sequence_next=self.first_sequence,
            append_time_us=self.append_time_us_before,
            transaction_id=self.transaction_id_before,
            size_bytes=self.size_bytes_before,
            local_only_count=self.local_only_before,
        )


@attrs.frozen(eq=False)
class MirrorEntry:
    """An entry of the home's log, checked and ready to be written as it is.

    Of a local-only entry a mirror gets the placeholder, even if the whole entry came.
    """

    encoded: EncodedEntry
    mark: Watermark
    """Its name, and the watermark of a mirror that ends with it."""
    previous: Watermark | None
    begin: SegmentBegin | None
    transaction_id: int | None
    """The highest in the entry, if a record has one."""

    @classmethod
    def of(
        cls,
        data: bytes | memoryview,
        *,
        previous: Watermark | None,
        begin: SegmentBegin | None = None,
    ) -> "MirrorEntry":
        """Check the bytes of an entry, and keep what a mirror may have. DamagedBytesError.

        previous: the entry before it at home; None if the mirror begins with it. begin: of its
        segment, if it is the first entry there.
        """
        decoded = decode_entry(data)
        decoded.verify()
        header = decoded.header
        return cls(
            EncodedEntry(header, (data,), crc32c(data)).as_relayed(),
            Watermark(
                home_epoch=header.home_epoch,
                segment=header.segment,
                entry=header.entry,
                header_crc=decoded.header_crc,
                sequence_next=Sequence(header.next_sequence),
            ),
            previous,
            begin,
            decoded.highest_transaction_id() if header.kind is EntryKind.DATA else None,
        )

    @property
    def sent(self) -> SentEntry:
        """Its name, as `MirrorCourse` judges it."""
        header = self.encoded.header
        return SentEntry(
            previous=self.previous,
            mark=self.mark,
            first_sequence=Sequence(header.first_sequence),
            is_control=header.kind is EntryKind.CONTROL,
        )

    def add_to(self, state: PartitionState) -> None:
        """Bring the state of the mirror behind this entry."""
        header = self.encoded.header
        if header.kind is EntryKind.CONTROL:
            state.append_time_us = max(state.append_time_us, header.append_time_us)
            return
        state.on_entry(
            next_sequence=Sequence(header.next_sequence),
            append_time_us=header.append_time_us,
            transaction_id=self.transaction_id,
            batch_bytes=header.body_bytes,
            local_only_count=header.record_count if header.is_local_only else 0,
        )
