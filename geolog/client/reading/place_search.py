"""Finds the place of a bound in a partition.

It searches the records of the segments first, then the headers of entries, both by bisection;
it never scans.

Rules: PROTOCOL H10, H23 and R10.
"""

from collections.abc import Callable

import attrs

from geolog.client.reading.bounds import (
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
    Earliest,
    LastRecords,
    Latest,
)
from geolog.client.reading.gone import TrimmedRun
from geolog.client.reading.read_range import UNKNOWN_SEQUENCE, Begin, Until
from geolog.client.reading.scan import PartitionScan
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.home_record import branch_point, fork_before_place
from geolog.protocol.ids import DLSN, EntryId, SegmentEntry
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.stream_state import FIRST_HOME_EPOCH, SegmentRecord
from geolog.wire.batch import Columns
from geolog.wire.entry import Entry, EntryKind
from topology.errors import InvalidArgumentError


class PlaceSearch:
    """Finds places in the partition of a scan."""

    def __init__(self, scan: PartitionScan) -> None:
        self._scan = scan

    def __repr__(self) -> str:
        return f"PlaceSearch({self._scan.name})"

    async def locate(self, start: Bound, end: PartitionEnd | None) -> Begin:
        """Turn a bound into a place to begin at, by the list that the scan read last."""
        # A segment that is trimmed during the search may be gone: search those that are left.
        while True:
            first = await self._scan.next_segment(1)
            try:
                return await self._located(start, end)
            except NoSuchLedgerError:
                await self._scan.refresh()
                if await self._scan.next_segment(1) == first:
                    await self._scan.check_stream()
                    raise

    async def _located(self, start: Bound, end: PartitionEnd | None) -> Begin:
        if end is None and isinstance(start, Latest | LastRecords):
            end = await self._scan.end()
        match start:
            case Latest():
                assert end is not None
                begin = Begin(end.segment, end.entry, end.sequence, row=end.row)
                return await self._in_epoch_of(end, begin)
            case LastRecords(count):
                assert end is not None
                first = max(await self._scan.trim(), end.sequence - count)
                return await self._in_epoch_of(end, await self.at_sequence(first))
            case AtTime(time_us):
                return await self._not_before_trim(await self._at_time(time_us))
            case AtTransaction(transaction_id):
                return await self._not_before_trim(await self._at_transaction(transaction_id))
            case Earliest():
                return await self.at_trim(await self._scan.trim())
            case AtSequence(sequence, home_epoch):
                begin = await self._from_sequence(sequence, await self._scan.trim())
                if begin.trimmed_from is None:
                    begin = attrs.evolve(begin, home_epoch=home_epoch)
                return begin
            case AtDlsn(dlsn):
                return await self._at_dlsn(dlsn)

    async def _in_epoch_of(self, end: PartitionEnd, begin: Begin) -> Begin:
        """The place, as a position of the home epoch in which the log had this end."""
        last = await self._scan.segment(end.row_number)
        return begin if last is None else attrs.evolve(begin, home_epoch=last.home_epoch)

    async def _from_sequence(self, sequence: int, trim: int) -> Begin:
        if sequence >= trim:
            return await self.at_sequence(sequence)
        return attrs.evolve(await self.at_trim(trim), trimmed_from=sequence)

    async def _not_before_trim(self, begin: Begin) -> Begin:
        return attrs.evolve(begin, sequence=max(begin.sequence, await self._scan.trim()))

    async def _at_dlsn(self, dlsn: DLSN) -> Begin:
        """The place of a DLSN, or the beginning of the partition if that is later."""
        trim = await self._scan.trim()
        first = await self._scan.next_segment(1)
        if first is not None and await self._is_before(dlsn, first):
            return await self._behind_unknown(trim)
        entry = SegmentEntry(dlsn.entry)
        begin = await self.in_row(Begin(dlsn.segment, entry, trim, slot=dlsn.slot, dlsn=dlsn))
        row = await self._scan.segment(begin.row_number)
        if row is None:
            if await self._scan.next_segment(begin.row_number) is None:
                return begin  # It is not listed yet.
            # It was trimmed since it was listed.
            return await self._behind_unknown(await self._scan.trim())
        sequence = await self._trimmed_sequence(row, begin, trim)
        if sequence is None:
            return begin
        return attrs.evolve(await self.at_trim(trim), trimmed_from=sequence)

    async def _behind_unknown(self, trim: int) -> Begin:
        """The beginning of the partition, behind records that nobody can count any more."""
        return attrs.evolve(await self.at_trim(trim), trimmed_from=UNKNOWN_SEQUENCE)

    async def _trimmed_sequence(
        self, row: SegmentRecord, begin: Begin, trim: int
    ) -> int | None:
        """The sequence of the record at this place of the row if it is trimmed."""
        if row.segment != begin.segment or row.first_sequence >= trim:
            return None
        if row.numbering.is_in_earlier(begin.entry):
            return None
        entry = row.numbering.in_ledger(begin.entry)
        ledger = (await self._scan.ledger_of(row)).record
        if entry > await self._scan.readable_to(row, ledger):
            return None
        header = (await self._scan.fetch(ledger, entry)).decoded.header
        sequence = min(header.first_sequence + begin.slot, header.next_sequence)
        return sequence if sequence < trim else None

    async def in_row(self, begin: Begin) -> Begin:
        """The place of an entry, by the list that the scan read last, whose rows may differ.

        At the first home rows are segments; elsewhere there may be several of one segment.
        """
        if not self._scan.has_rows:
            return begin
        place = begin.segment, begin.entry
        row = await self._scan.last_segment(lambda one: (one.segment, one.first_entry) <= place)
        if row is None:
            return attrs.evolve(begin, row=1)
        if row.segment == begin.segment:
            return attrs.evolve(begin, row=row.row)
        return attrs.evolve(begin, entry=SEGMENT_BEGIN, row=row.row_number + 1)

    async def _is_before(self, dlsn: DLSN, first: int) -> bool:
        """Whether the place lies before the entries of the first listed segment's ledger."""
        segment = await self._scan.segment(first)
        if segment is None:
            return not self._scan.has_rows and dlsn.segment < first
        if dlsn.segment != segment.segment:
            return dlsn.segment < segment.segment
        return segment.numbering.is_in_earlier(SegmentEntry(dlsn.entry))

    async def until(self, stop: Bound | None, end: PartitionEnd | None) -> Until:
        """Turn the bound at which to stop into the limits that records are compared with."""
        limit = None if end is None else end.sequence
        match stop:
            case None:
                return Until(limit)
            case Earliest():
                return Until(0)
            case Latest():
                return Until((end or await self._scan.end()).sequence)
            case LastRecords(count):
                return Until(max(0, (end or await self._scan.end()).sequence - count))
            case AtSequence(sequence):
                return Until(sequence if limit is None else min(sequence, limit))
            case AtDlsn(dlsn):
                return Until(limit, dlsn=dlsn)
            case AtTime(time_us):
                return Until(limit, time_us=time_us)
            case AtTransaction(transaction_id):
                return Until(limit, transaction_id=transaction_id)

    async def in_lineage(
        self, bound: Bound | None, end: PartitionEnd | None = None
    ) -> tuple[Bound | None, TrimmedRun | None]:
        """The bound as one of the log as it goes on; and if it was in a dead branch, the gap.

        A position of an earlier home means the same up to where that home's epoch ends.
        end: of the log; a position beyond it may be of a home that was replaced just now.
        InvalidArgumentError for a home epoch that the stream does not have.
        """
        last = self._scan.home_epoch
        match bound:
            case AtSequence(sequence, int(home_epoch)):
                forks = None
                if home_epoch > last:  # This process may have read older settings.
                    forks = await self._scan.forks()
                    last = max([last, *(one.home_epoch for one in forks)])
                if not FIRST_HOME_EPOCH <= home_epoch <= last:
                    raise InvalidArgumentError(
                        f"{self._scan.name} has no home epoch {home_epoch}: its homes have"
                        f" {FIRST_HOME_EPOCH} to {last}"
                        if last > FIRST_HOME_EPOCH
                        else f"{self._scan.name} has no home epoch {home_epoch}: its only one"
                        f" is {last}"
                    )
                is_within = end is None or sequence <= end.sequence
                if home_epoch == last and is_within:
                    return bound, None
                if forks is None:
                    forks = await self._scan.forks()
                fork = branch_point(forks, home_epoch)
                if fork is None or sequence <= fork.sequence:
                    return bound, None
                run = TrimmedRun(fork.sequence, sequence, epoch=fork.home_epoch)
                return AtSequence(fork.sequence, fork.home_epoch), run
            case AtDlsn(dlsn) if last > FIRST_HOME_EPOCH:
                forks = await self._scan.forks()
                fork = fork_before_place(forks, dlsn.segment, SegmentEntry(dlsn.entry))
                if fork is None:
                    return bound, None
                run = TrimmedRun(fork.sequence, fork.sequence, epoch=fork.home_epoch)
                return AtSequence(fork.sequence, fork.home_epoch), run
        return bound, None

    async def at_sequence(self, sequence: int) -> Begin:
        """The place of a sequence that was not trimmed."""
        segment = await self._scan.last_segment(lambda one: one.first_sequence <= sequence)
        return await self._at_sequence_in(segment, sequence)

    async def at_trim(self, sequence: int) -> Begin:
        """The place of the first sequence, which is usually in the first segment."""
        number = await self._scan.next_segment(1)
        first = None if number is None else await self._scan.segment(number)
        if first is not None and first.last_sequence is not None:
            if first.first_sequence <= sequence <= first.last_sequence:
                return await self._at_sequence_in(first, sequence)
        return await self.at_sequence(sequence)

    async def _at_sequence_in(self, segment: SegmentRecord | None, sequence: int) -> Begin:
        if segment is None:
            return Begin(sequence=sequence)
        if segment.first_sequence == sequence:
            return Begin(segment.segment, segment.numbering.first, sequence, row=segment.row)
        entry = await self._search(segment, lambda one: one.header.first_sequence <= sequence)
        return Begin(segment.segment, entry, sequence, row=segment.row)

    async def _at_time(self, time_us: int) -> Begin:
        segment = await self._scan.last_segment(lambda one: one.append_time_us_before < time_us)
        if segment is None:
            return Begin(time_us=time_us)
        entry = await self._search(segment, lambda one: one.header.append_time_us < time_us)
        return Begin(segment.segment, entry, time_us=time_us, row=segment.row)

    async def _at_transaction(self, transaction_id: int) -> Begin:
        def is_before(highest: int | None) -> bool:
            return highest is None or highest < transaction_id

        segment = await self._scan.last_segment(
            lambda one: is_before(one.transaction_id_before)
        )
        if segment is None:
            return Begin(transaction_id=transaction_id)
        entry = await self._search_transaction(segment, transaction_id)
        return Begin(segment.segment, entry, transaction_id=transaction_id, row=segment.row)

    async def _search(
        self, segment: SegmentRecord, holds: Callable[[Entry], bool]
    ) -> SegmentEntry:
        """The last entry for which `holds`, true of a prefix, is true; the first if none."""
        ledger = (await self._scan.ledger_of(segment)).record
        low, high = 0, await self._scan.readable_to(segment, ledger) + 1
        while high - low > 1:
            middle = EntryId((low + high) // 2)
            fetched = await self._scan.fetch(ledger, middle)
            if holds(fetched.decoded):
                low = middle
            else:
                high = middle
        return segment.numbering.in_segment(EntryId(low))

    async def _search_transaction(
        self, segment: SegmentRecord, transaction_id: int
    ) -> SegmentEntry:
        """The last entry whose first transaction id is below this one; the first if none."""
        # Skip entries without transaction ids.
        ledger = (await self._scan.ledger_of(segment)).record
        low, high = 0, await self._scan.readable_to(segment, ledger) + 1
        while high - low > 1:
            middle = (low + high) // 2
            entry, lowest = middle, None
            for entry in range(middle, high):
                fetched = await self._scan.fetch(ledger, EntryId(entry))
                lowest = lowest_transaction_id(fetched.decoded)
                if lowest is not None:
                    break
            if lowest is None or lowest >= transaction_id:
                high = middle
            else:
                low = entry
        return segment.numbering.in_segment(EntryId(low))


def lowest_transaction_id(entry: Entry) -> int | None:
    """The first transaction id in the entry, which is its lowest; None if it has none."""
    if entry.header.kind is not EntryKind.DATA or entry.header.is_placeholder:
        return None
    for index in range(len(entry.header.lines)):
        if Columns.TRANSACTION_IDS in entry.columns(index):
            batch = entry.open(index)
            for row in range(len(batch)):
                found = batch.transaction_id(row)
                if found is not None:
                    return found
    return None
