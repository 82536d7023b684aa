"""The part of one partition that a read wants: which records and gaps are in it.

Invariant: a gap is reported if records of the range may be in it, and only then.

Rules: PROTOCOL H26 and R10.
"""

import attrs
import trio

from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.read_range import UNKNOWN_SEQUENCE, Begin, Until, row_of_transaction
from geolog.client.reading.record import Gap, GapReason, RecordBatch
from geolog.ledger.reading.ledger_reader import FetchedEntry
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.wire.batch import Batch, open_batch, seal_batch
from geolog.wire.entry import EntryKind

_ABSENT: Batch = open_batch(seal_batch([b""], created_us=0).data)
"""Stands for batches that are not here; local-only records have no transaction ids."""


@attrs.define(eq=False)
class PartitionRange:
    """The range to read of one partition, and its progress."""

    name: PartitionName
    begin: Begin
    until: Until
    origin: str | None = None
    """The home whose mirror is read; None if the home is."""
    diverged: TrimmedRun | None = None
    """The part in a dead branch, if the read was to begin there."""
    diverged_last: TrimmedRun | None = None
    """The part in a dead branch, if the read was only to end there."""
    is_abroad: bool = False
    """Whether the reader is in another region than the log: local-only records stay there."""
    is_begun: bool = False
    is_over: bool = False
    """Whether the range has been read to its end."""
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancels the task that reads ahead."""
    held: Gap | None = None
    """A gap that may lie before the start; the next record decides."""
    _stream: str = attrs.field(init=False)

    @_stream.default
    def _name_of_stream(self) -> str:
        return str(self.name.stream)

    def gap_of(self, trimmed: TrimmedRun) -> Gap | None:
        """The trimmed part of the range, if any. The range then begins after it.

        None as well while it is `held`: a start by time or transaction id has no sequence to
        compare with.
        """
        if trimmed.epoch is not None and (not self.is_over or trimmed is self.diverged_last):
            return self._diverged(trimmed, trimmed.epoch)
        if self.is_over:
            return None
        first, until = self.begin.sequence, self.until.sequence
        if self.begin.trimmed_from is not None:
            first = self.begin.trimmed_from
        self.begin = attrs.evolve(
            self.begin, sequence=max(self.begin.sequence, trimmed.to_sequence)
        )
        start, end = max(first, trimmed.from_sequence), trimmed.to_sequence
        if until is not None:
            end = min(end, until)
        if start >= end:
            return None
        reason = GapReason.EVICTED if trimmed.is_evicted else GapReason.TRIMMED
        known = start if start != UNKNOWN_SEQUENCE else None
        gap = Gap(str(self.name.stream), self.name.number, reason, known, end)
        if self._is_start_ahead():
            known = gap.from_sequence if self.held is None else self.held.from_sequence
            self.held = attrs.evolve(gap, from_sequence=known)
            return None
        return gap

    def _diverged(self, run: TrimmedRun, epoch: int) -> Gap:
        """The gap of a reader that was in a dead branch; the range goes on where it begins."""
        known = run.from_sequence
        self.begin = attrs.evolve(self.begin, sequence=known)
        first = None if run.to_sequence <= known else known
        return Gap(
            str(self.name.stream),
            self.name.number,
            GapReason.DIVERGED,
            first,
            max(known, run.to_sequence),
            epoch,
        )

    def take_held(self) -> Gap | None:
        """The held gap, if any; it is held no longer."""
        held, self.held = self.held, None
        return held

    def _is_start_ahead(self) -> bool:
        """Whether the next record may still lie before the start."""
        begin = self.begin
        return not self.is_begun and (
            begin.time_us is not None or begin.transaction_id is not None
        )

    def batches_of(
        self, segment: SegmentRecord, fetched: FetchedEntry
    ) -> list[RecordBatch | Gap]:
        """The records of an entry that are in the range, after the held gap if it is too.

        A gap, if they are local-only in another region.
        """
        header = fetched.decoded.header
        if header.kind is not EntryKind.DATA:
            return []
        found: list[RecordBatch | Gap] = []
        is_absent = header.is_placeholder or (header.is_local_only and self.is_abroad)
        slot = 0
        for index, line in enumerate(header.lines):
            if self.is_over:
                break
            batch = RecordBatch(
                stream=self._stream,
                partition=self.name.number,
                epoch=header.home_epoch,
                segment=segment.segment,
                entry=header.entry,
                first_slot=slot,
                first_sequence=header.first_sequence + slot,
                timestamp_us=header.append_time_us,
                served_region=fetched.served_by.location.region,
                batch=_ABSENT if is_absent else fetched.decoded.opened(index),
                end_row=line.record_count,
                hedged=fetched.is_hedged,
                origin=self.origin,
                is_local_only=header.is_local_only,
                stamp=line.writer,
            )
            slot += line.record_count
            found += self._decided(batch)
            cut = self._cut(batch)
            if len(cut):
                found.append(self._local_only(cut) if is_absent else cut)
                self.is_begun = True
        return _joined(found) if is_absent else found

    def _local_only(self, batch: RecordBatch) -> Gap:
        """The gap of records that are local-only in another region."""
        return Gap(
            self._stream,
            self.name.number,
            GapReason.LOCAL_ONLY,
            batch.first_sequence + batch.first_row,
            batch.end_sequence,
            batch.epoch,
        )

    def _decided(self, batch: RecordBatch) -> list[Gap]:
        """The held gap if this batch has the record after it, and that is not before the start.

        Times and transaction ids never fall, so a gap before such a record is no part of the
        range. A record without transaction id tells nothing: the read begins with the gap.
        """
        row = 0 if self.held is None else max(0, self.held.to_sequence - batch.first_sequence)
        if self.held is None or row >= batch.end_row:
            return []
        gap, self.held, begin = self.held, None, self.begin
        found_id = batch.batch.transaction_id(row)
        if begin.time_us is not None and batch.timestamp_us < begin.time_us:
            return []
        if begin.transaction_id is not None and found_id is not None:
            if found_id < begin.transaction_id:
                return []
        self.is_begun = True
        return [gap]

    def _cut(self, batch: RecordBatch) -> RecordBatch:
        """Cut off the rows outside of the range."""
        begin, first = self.begin, max(0, self.begin.sequence - batch.first_sequence)
        if (batch.segment, batch.entry) == (begin.segment, begin.entry):
            first = max(first, begin.slot - batch.first_slot)
        if begin.time_us is not None and batch.timestamp_us < begin.time_us:
            first = batch.end_row
        if begin.transaction_id is not None and not self.is_begun:
            first = max(first, row_of_transaction(batch, begin.transaction_id))
        end = self.until.end_row(batch)
        self.is_over = self.is_over or end < batch.end_row
        if not first and end == batch.end_row:
            return batch
        return attrs.evolve(batch, first_row=min(first, end), end_row=end)


def _joined(found: list[RecordBatch | Gap]) -> list[RecordBatch | Gap]:
    """The same, with gaps of local-only records that follow each other as one."""
    joined: list[RecordBatch | Gap] = []
    for one in found:
        last = joined[-1] if joined else None
        if (
            isinstance(one, Gap)
            and isinstance(last, Gap)
            and one.reason is last.reason is GapReason.LOCAL_ONLY
        ):
            joined[-1] = attrs.evolve(last, to_sequence=one.to_sequence)
        else:
            joined.append(one)
    return joined
