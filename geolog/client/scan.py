"""A partition's segments and ledgers as one reader knows them, and the place it begins at.

A place is found by the records of the segments first, then by the headers of entries, always by
halves: nothing is scanned.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.client.bounds import (
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
    Earliest,
    LastRecords,
    Latest,
)
from geolog.client.partition_metadata import PartitionMetadata
from geolog.client.record import RecordBatch
from geolog.client.segment_list import SegmentList
from geolog.client.tail import PartitionEnd, TailFinder
from geolog.ledger.ledger_metadata import (
    LedgerMetadata,
    NoSuchLedgerError,
    VersionedLedger,
)
from geolog.ledger.ledger_reader import FetchedEntry, LedgerReader
from geolog.protocol.ids import DLSN, NO_ENTRY, EntryId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import HOME_EPOCH, PartitionName, SegmentRecord
from geolog.wire.batch import Columns
from geolog.wire.entry import Entry, EntryHeader, EntryKind
from topology.errors import (
    DamagedBytesError,
    DataLostError,
    GeologError,
    InvalidArgumentError,
    NoSuchStreamError,
    UnavailableError,
)

T = TypeVar("T")

UNKNOWN_SEQUENCE = -1
"""Of a record that was trimmed, and is known by another name only."""


@attrs.frozen(kw_only=True)
class ReaderConfig:
    """Bounds of a reader."""

    end_timeout_s: float = 30.0
    """How long finding the end may take; then the read fails rather than end short."""

    stall_timeout_s: float = 60.0
    """How long the next entries may stay unavailable; then the read fails."""

    ahead_chunks: int = 2
    """Chunks of entries that are read ahead of the application."""

    follow_poll_s: float = 0.02
    """Pause of a reader that follows, after a replica at which it cannot wait for more."""

    follow_ask_all_s: float = 0.5
    """How long it waits at the nearest replica before it asks all: that may hear of nothing."""

    retry_delay_s: float = 0.2
    """Pause before metadata that did not answer is asked again."""


@attrs.frozen
class Begin:
    """Where reading begins, as far as it is known before entries are read."""

    segment: int = 1
    entry: int = 0
    sequence: int = 0
    time_us: int | None = None
    transaction_id: int | None = None
    slot: int = 0
    trimmed_from: int | None = None
    """The sequence that was asked for, if what is there begins behind it."""


@attrs.frozen
class Until:
    """Where reading ends: before the first record that reaches any of these."""

    sequence: int | None = None
    dlsn: DLSN | None = None
    time_us: int | None = None
    transaction_id: int | None = None

    def is_before(self, begin: Begin) -> bool:
        """Whether nothing at all is wanted."""
        return self.sequence is not None and begin.sequence >= self.sequence

    def is_past(self, header: EntryHeader) -> bool:
        """Whether nothing behind this entry is wanted."""
        return (
            (self.sequence is not None and header.next_sequence >= self.sequence)
            or (self.time_us is not None and header.append_time_us >= self.time_us)
            or (self.dlsn is not None and (header.segment, header.entry) >= self._place())
        )

    def _place(self) -> tuple[int, int]:
        assert self.dlsn is not None
        return self.dlsn.segment, self.dlsn.entry

    def end_row(self, batch: RecordBatch) -> int:
        """The first row of the batch that is not wanted."""
        end = batch.end_row
        if self.sequence is not None:
            end = min(end, self.sequence - batch.first_sequence)
        if self.time_us is not None and batch.timestamp_us >= self.time_us:
            end = 0
        if self.dlsn is not None and (batch.segment, batch.entry) >= self._place():
            is_there = (batch.segment, batch.entry) == self._place()
            end = min(end, self.dlsn.slot - batch.first_slot) if is_there else 0
        if self.transaction_id is not None:
            end = min(end, row_of_transaction(batch, self.transaction_id))
        return max(0, end)


class PartitionScan:
    """What a reader knows of one partition; `PartitionWalk` walks over the entries."""

    def __init__(
        self,
        name: PartitionName,
        *,
        partitions: PartitionMetadata,
        ledgers: LedgerMetadata,
        reader: LedgerReader,
        tail: TailFinder,
        config: ReaderConfig,
    ) -> None:
        self.name = name
        self.reader = reader
        self.config = config
        self.segments = SegmentList(name, partitions)
        self._partitions = partitions
        self._ledgers = ledgers
        self._tail = tail

    async def end(self) -> PartitionEnd:
        """The end of the stream now. UnavailableError when it cannot be found in time."""
        timeout_s = self.config.end_timeout_s
        return await self._insist(
            lambda: self._tail.end_of(self.name),
            timeout_s=timeout_s,
            late=f"the end of {self.name} could not be found within {timeout_s} s",
            why="too few replicas answer, or its last ledger is being recovered",
        )

    async def _insist(
        self, ask: Callable[[], Awaitable[T]], *, timeout_s: float, late: str, why: str
    ) -> T:
        """Ask again what is merely unavailable, until it is too late."""
        with trio.move_on_after(timeout_s):
            while True:
                try:
                    return await ask()
                except GeologError as error:
                    if not error.retriable:
                        raise
                    why = str(error)
                await trio.sleep(self.config.retry_delay_s)
        raise UnavailableError(f"{late}: {why}")

    async def segment(self, number: int) -> SegmentRecord | None:
        """A listed segment's record, with patience; None if it is not listed, or gone since."""
        return await self._insist(
            lambda: self.segments.at(number),
            timeout_s=self.config.stall_timeout_s,
            late=f"segment {number} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def trim(self) -> int:
        """The sequence at which the partition begins now, with patience."""
        found = await self._insist(
            lambda: self._partitions.trim(self.name),
            timeout_s=self.config.end_timeout_s,
            late=f"where {self.name} begins could not be looked up",
            why="metadata does not answer",
        )
        return found.first_sequence

    async def is_sealed(self) -> bool:
        """Whether nothing is appended any more. NoSuchStreamError if it is being deleted."""
        owner = (await self._partitions.owner_latest(self.name)).record
        if owner.is_deleted:
            raise NoSuchStreamError(f"stream {str(self.name.stream)!r} was deleted")
        return owner.is_sealed

    async def locate(self, start: Bound, end: PartitionEnd | None) -> Begin:
        """Turn a bound into a place to begin at.

        What is trimmed while it is looked at may be gone: then it is sought in what is there.
        """
        await self._refresh()
        while True:
            first = self.segments.next_from(1)
            try:
                return await self._located(start, end)
            except NoSuchLedgerError:
                await self._refresh()
                if self.segments.next_from(1) == first:
                    raise

    async def _refresh(self) -> None:
        await self._insist(
            self.segments.refresh,
            timeout_s=self.config.end_timeout_s,
            late=f"the segments of {self.name} could not be listed",
            why="metadata does not answer",
        )

    async def _located(self, start: Bound, end: PartitionEnd | None) -> Begin:
        if end is None and isinstance(start, Latest | LastRecords):
            end = await self.end()
        match start:
            case Latest():
                assert end is not None
                return Begin(end.segment, end.entry, end.sequence)
            case LastRecords(count):
                assert end is not None
                return await self.at_sequence(max(await self.trim(), end.sequence - count))
            case AtTime(time_us):
                return await self._not_before_trim(await self._at_time(time_us))
            case AtTransaction(transaction_id):
                return await self._not_before_trim(await self._at_transaction(transaction_id))
            case Earliest():
                return await self.at_sequence(await self.trim())
            case AtSequence(sequence, home_epoch):
                self._check_home_epoch(home_epoch)
                return await self._from_sequence(sequence, await self.trim())
            case AtDlsn(dlsn):
                return await self._at_dlsn(dlsn)

    async def _from_sequence(self, sequence: int, trim: int) -> Begin:
        if sequence >= trim:
            return await self.at_sequence(sequence)
        return attrs.evolve(await self.at_sequence(trim), trimmed_from=sequence)

    async def _not_before_trim(self, begin: Begin) -> Begin:
        return attrs.evolve(begin, sequence=max(begin.sequence, await self.trim()))

    async def _at_dlsn(self, dlsn: DLSN) -> Begin:
        """The place itself, or where the partition begins if that lies behind it."""
        trim = await self.trim()
        first = self.segments.next_from(1)
        if first is not None and dlsn.segment < first:
            return attrs.evolve(await self.at_sequence(trim), trimmed_from=UNKNOWN_SEQUENCE)
        return Begin(dlsn.segment, dlsn.entry, trim, slot=dlsn.slot)

    async def until(self, stop: Bound | None, end: PartitionEnd | None) -> Until:
        """Turn the bound at which to stop into what records are compared with."""
        limit = None if end is None else end.sequence
        match stop:
            case None:
                return Until(limit)
            case Earliest():
                return Until(0)
            case Latest():
                return Until((end or await self.end()).sequence)
            case LastRecords(count):
                return Until(max(0, (end or await self.end()).sequence - count))
            case AtSequence(sequence, home_epoch):
                self._check_home_epoch(home_epoch)
                return Until(sequence if limit is None else min(sequence, limit))
            case AtDlsn(dlsn):
                return Until(limit, dlsn=dlsn)
            case AtTime(time_us):
                return Until(limit, time_us=time_us)
            case AtTransaction(transaction_id):
                return Until(limit, transaction_id=transaction_id)

    def _check_home_epoch(self, home_epoch: int) -> None:
        """A position of an epoch that never was is somebody's mistake, not the start."""
        if home_epoch != HOME_EPOCH:
            raise InvalidArgumentError(
                f"{self.name} has no home epoch {home_epoch}: the one that it has is"
                f" {HOME_EPOCH}"
            )

    async def at_sequence(self, sequence: int) -> Begin:
        """The place of a sequence that was not trimmed."""
        segment = await self._last_segment(lambda one: one.first_sequence <= sequence)
        if segment is None:
            return Begin(sequence=sequence)
        if segment.first_sequence == sequence:
            return Begin(segment.segment, 0, sequence)
        entry = await self._search(segment, lambda one: one.header.first_sequence <= sequence)
        return Begin(segment.segment, entry, sequence)

    async def _at_time(self, time_us: int) -> Begin:
        segment = await self._last_segment(lambda one: one.append_time_us_before < time_us)
        if segment is None:
            return Begin(time_us=time_us)
        entry = await self._search(segment, lambda one: one.header.append_time_us < time_us)
        return Begin(segment.segment, entry, time_us=time_us)

    async def _at_transaction(self, transaction_id: int) -> Begin:
        def is_before(highest: int | None) -> bool:
            return highest is None or highest < transaction_id

        segment = await self._last_segment(lambda one: is_before(one.transaction_id_before))
        if segment is None:
            return Begin(transaction_id=transaction_id)
        entry = await self._search_transaction(segment, transaction_id)
        return Begin(segment.segment, entry, transaction_id=transaction_id)

    async def _last_segment(
        self, holds: Callable[[SegmentRecord], bool]
    ) -> SegmentRecord | None:
        return await self._insist(
            lambda: self.segments.last_where(holds),
            timeout_s=self.config.stall_timeout_s,
            late=f"the segments of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    async def _search(self, segment: SegmentRecord, holds: Callable[[Entry], bool]) -> EntryId:
        """The last entry of which `holds` is true, if it is true of a prefix; else 0."""
        ledger = (await self.ledger_of(segment)).record
        low, high = 0, await self._readable_to(segment, ledger) + 1
        while high - low > 1:
            middle = EntryId((low + high) // 2)
            fetched = await self._fetch(ledger, middle)
            if holds(fetched.decoded):
                low = middle
            else:
                high = middle
        return EntryId(low)

    async def _search_transaction(self, segment: SegmentRecord, transaction_id: int) -> EntryId:
        """The last entry with transaction ids that begin below this one; 0 if there is none.

        Entries without any say nothing: then the next one that has some is looked at.
        """
        ledger = (await self.ledger_of(segment)).record
        low, high = 0, await self._readable_to(segment, ledger) + 1
        while high - low > 1:
            middle = (low + high) // 2
            entry, lowest = middle, None
            for entry in range(middle, high):
                fetched = await self._fetch(ledger, EntryId(entry))
                lowest = lowest_transaction_id(fetched.decoded)
                if lowest is not None:
                    break
            if lowest is None or lowest >= transaction_id:
                high = middle
            else:
                low = entry
        return EntryId(low)

    async def _readable_to(self, segment: SegmentRecord, ledger: LedgerRecord) -> EntryId:
        """The last entry of the segment that may be shown now."""
        known = self.known_end(segment, ledger, None)
        if known != NO_ENTRY or segment.is_completed or ledger.state is LedgerState.CLOSED:
            return known
        lac = await self.reader.lac_nearby(ledger)
        return NO_ENTRY if lac is None else lac

    async def _fetch(self, ledger: LedgerRecord, entry: EntryId) -> FetchedEntry:
        with trio.move_on_after(self.config.stall_timeout_s):
            while True:
                try:
                    return (await self.reader.read(ledger, entry, entry))[0]
                except DataLostError:
                    moved = await self.moved(ledger)
                    if moved is None:
                        raise
                    ledger = moved
        raise UnavailableError(
            f"entry {entry} of ledger {ledger.ledger} ({self.name}) is unavailable: none of"
            f" its replicas answered within {self.config.stall_timeout_s} s"
        )

    async def ledger_of(
        self, segment: SegmentRecord, *, changed: trio.Event | None = None
    ) -> VersionedLedger:
        """The segment's ledger, with patience; `changed` is set once, when it changes."""
        return await self._insist(
            lambda: self._ledgers.read(segment.ledger, changed=changed),
            timeout_s=self.config.stall_timeout_s,
            late=f"ledger {segment.ledger} of {self.name} could not be looked up",
            why="metadata does not answer",
        )

    def known_end(
        self, segment: SegmentRecord, ledger: LedgerRecord, end: PartitionEnd | None
    ) -> EntryId:
        """The last entry of the segment that may be shown, as far as it need not be asked."""
        if end is not None and end.segment == segment.segment:
            return EntryId(end.entry - 1)
        if segment.last_entry is not None:
            return segment.last_entry
        if ledger.state is LedgerState.CLOSED:
            assert ledger.last_entry is not None
            return ledger.last_entry
        return NO_ENTRY

    async def closed_ledger_of(self, segment: SegmentRecord) -> LedgerRecord:
        """The ledger of a segment that has a successor, with all that was written before.

        It is CLOSED: before that no successor is activated. But who reads may lag behind.
        """
        ledger = (
            await self._insist(
                lambda: self._ledgers.read_latest(segment.ledger),
                timeout_s=self.config.stall_timeout_s,
                late=f"ledger {segment.ledger} of {self.name} could not be looked up",
                why="metadata does not answer",
            )
        ).record
        if ledger.state is not LedgerState.CLOSED:
            raise DamagedBytesError(
                f"ledger {ledger.ledger} of {self.name} is {ledger.state.value}, but segment"
                f" {segment.segment} has a successor: metadata is damaged"
            )
        return ledger

    async def ledger_now(self, segment: SegmentRecord, changed: trio.Event) -> LedgerRecord:
        """The segment's ledger; without patience. NoSuchLedgerError, UnavailableError."""
        return (await self._ledgers.read(segment.ledger, changed=changed)).record

    async def check_stream(self) -> None:
        """NoSuchStreamError if the stream is gone, or is being deleted."""
        await self._partitions.check_exists(self.name)

    async def moved(self, ledger: LedgerRecord) -> LedgerRecord | None:
        """The ledger as it is now, if its entries are elsewhere than was known; else None."""
        with trio.move_on_after(self.config.stall_timeout_s):
            try:
                found = (await self._ledgers.read_latest(ledger.ledger)).record
            except GeologError as error:
                if not error.retriable:
                    raise
                return None
            return found if found.fragments != ledger.fragments else None
        return None


def row_of_transaction(batch: RecordBatch, transaction_id: int) -> int:
    """The first row whose transaction id is that or higher; the end if there is none."""
    for row in range(batch.end_row):
        found = batch.batch.transaction_id(row)
        if found is not None and found >= transaction_id:
            return row
    return batch.end_row


def lowest_transaction_id(entry: Entry) -> int | None:
    """The first transaction id in the entry, if it has one: the others are not lower."""
    if entry.header.kind is not EntryKind.DATA:
        return None
    for index in range(len(entry.header.lines)):
        if Columns.TRANSACTION_IDS in entry.columns(index):
            batch = entry.open(index)
            for row in range(len(batch)):
                found = batch.transaction_id(row)
                if found is not None:
                    return found
    return None
