"""Recovering a partition's state by reading its log from the end back to a snapshot.

All listed ledgers must be CLOSED. A snapshot with missing parts was never finished, and is
ignored. Only a partition's first ledger begins without one. Entries are folded into the state
run by run as they are read, so many small entries take no more room than each writer's last
batches.

Rules: PROTOCOL H9 and S10.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from itertools import takewhile

import attrs

from geolog.catalog.segment_records import SegmentRecords
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.reading.ledger_reader import FetchedEntry, LedgerReader
from geolog.ledger.reading.ledger_stream import LedgerStream
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.ids import EntryId, Sequence
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.partition_state import PartitionState, WrittenBatch
from geolog.protocol.stream_state import PartitionName, SegmentRecord
from geolog.wire.batch import Batch
from geolog.wire.entry import EntryHeader, EntryKind
from geolog.wire.snapshot import open_snapshot, snapshot_part
from geolog.wire.writer_fence import OpenedFence, is_fence, open_fence
from topology.errors import DamagedBytesError

_RUN_ENTRIES_MIN = 2
_RUN_ENTRIES_MAX = 256
"""Entries in one read, on the way back: few at first, since a snapshot may be last."""


@attrs.frozen
class _Fact:
    """The part of an entry that the state needs."""

    header: EntryHeader
    transaction_id: int | None
    """The highest in the entry, if a record has one."""
    snapshot: Batch | None = None
    """The batch of a control entry that is part of a snapshot."""
    fence: OpenedFence | None = None
    """The fence that a control entry holds."""


@attrs.define
class _Behind:
    """The state after a place in the log, as if the partition began there."""

    first: EntryHeader | None = None
    state: PartitionState = attrs.field(factory=PartitionState)
    snapshot_parts: list[Batch] = attrs.field(factory=list)
    """The parts of a snapshot at the front of what was read of a segment."""
    is_inside_segment: bool = False
    """Whether the ledger that was read last does not begin its segment."""

    def take_in(self, run: list[_Fact]) -> None:
        """Move the place back before these entries; the first may be of any kind."""
        if not run:
            return
        self.state.follow(_state_after(run))
        parts = [one.snapshot for one in takewhile(lambda one: one.snapshot is not None, run)]
        rest = self.snapshot_parts if len(parts) == len(run) else []
        self.first = run[0].header
        self.snapshot_parts = [one for one in parts if one is not None] + rest


async def recovered_state(
    name: PartitionName,
    *,
    last: SegmentRecord,
    segments: SegmentRecords,
    ledgers: LedgerMetadata,
    reader: LedgerReader,
    progress: RecoveryProgress,
) -> PartitionState:
    """The state at the end of segment `last`. The caller bounds the wait.

    The caller has seen `last` and all ledgers before it CLOSED. `progress` is told of each
    entry read. DamagedBytesError if the log is not one that an owner could have written.
    """
    behind = _Behind()
    async with aclosing(_backwards(name, last, segments)) as backwards:
        async for segment in backwards:
            ledger = (await ledgers.read(segment.ledger)).record
            state = await _read_back(segment, ledger, behind, reader, progress)
            if state is not None:
                behind.state.follow(state)
                return behind.state
    if behind.first is not None and behind.first.first_sequence > 0:
        raise DamagedBytesError(
            f"{name}: segment {behind.first.segment} begins without a snapshot, and the"
            " segments before it are gone"
        )
    return behind.state


async def recovered_row(
    last: SegmentRecord,
    *,
    ledgers: LedgerMetadata,
    reader: LedgerReader,
    progress: RecoveryProgress,
) -> PartitionState:
    """The state at the end of a mirror's last row, whose ledger is CLOSED.

    Its writers are those that the row tells of: a mirror takes no appends, so it needs to know
    only where it ends. Its row says what was before, so nothing before it is read.
    """
    behind = _Behind()
    ledger = (await ledgers.read(last.ledger)).record
    state = await _read_back(last, ledger, behind, reader, progress)
    if state is None:
        state = PartitionState(
            sequence_next=last.first_sequence,
            append_time_us=last.append_time_us_before,
            transaction_id=last.transaction_id_before,
            size_bytes=last.size_bytes_before,
            local_only_count=last.local_only_before,
        )
    behind.state.follow(state)
    return behind.state


async def _backwards(
    name: PartitionName, last: SegmentRecord, segments: SegmentRecords
) -> AsyncGenerator[SegmentRecord, None]:
    """This segment, then those listed before it; usually the first is enough."""
    yield last
    before = last.row_number - 1
    async with aclosing(segments.numbers_back(name, highest=before)) as numbers:
        async for number in numbers:
            for listed in await segments.at(name, [number]):
                yield listed.record


async def _read_back(
    segment: SegmentRecord,
    ledger: LedgerRecord,
    behind: _Behind,
    reader: LedgerReader,
    progress: RecoveryProgress,
) -> PartitionState | None:
    """The state of the last snapshot in the ledger, with `behind` moved to that snapshot.

    Without a snapshot, `behind` is moved to the start of the ledger. The result is then an
    empty state if nothing comes before the ledger, else None.
    """
    assert ledger.last_entry is not None, f"ledger {ledger.ledger} is not CLOSED"
    if not behind.is_inside_segment:  # A mirror may have parts of a snapshot in several rows.
        behind.snapshot_parts = []
    behind.is_inside_segment = segment.numbering.first != SEGMENT_BEGIN
    last = ledger.last_entry if segment.last_entry is None else segment.last_entry
    end, run_entries = last + 1, _RUN_ENTRIES_MIN
    while end > 0:
        first = max(0, end - run_entries)
        run: list[_Fact] = []
        async for fetched in _read_run(reader, ledger, EntryId(first), EntryId(end - 1)):
            run.append(_fact_of(fetched))
            progress.on_entries(1)
        for place in reversed(range(len(run))):
            state = _snapshot_at(run, place, behind.snapshot_parts)
            if state is not None:
                behind.take_in(run[place:])
                return state
        behind.take_in(run)
        end, run_entries = first, min(2 * run_entries, _RUN_ENTRIES_MAX)
    return PartitionState() if _is_beginning(segment) else None


def _is_beginning(segment: SegmentRecord) -> bool:
    """Whether nothing comes before its ledger: no record, and no fence, which has a time."""
    is_first = segment.segment == 1 and segment.numbering.first == SEGMENT_BEGIN
    return is_first or (segment.first_sequence == 0 and segment.append_time_us_before == 0)


async def _read_run(
    reader: LedgerReader, ledger: LedgerRecord, first: EntryId, last: EntryId
) -> AsyncIterator[FetchedEntry]:
    """Entries `first` to `last` of a CLOSED ledger, in order."""
    with LedgerStream(reader, ledger, first, last) as stream:
        while stream.entry_next <= last:
            for fetched in await stream.read():
                yield fetched


def _fact_of(fetched: FetchedEntry) -> _Fact:
    header = fetched.decoded.header
    if header.kind is EntryKind.CONTROL:
        batch = fetched.decoded.open(0)
        if is_fence(batch):
            return _Fact(header, None, fence=open_fence(batch))
        return _Fact(header, None, snapshot=batch)
    return _Fact(header, fetched.decoded.highest_transaction_id())


def _snapshot_at(
    run: list[_Fact], place: int, parts_behind: list[Batch]
) -> PartitionState | None:
    """The snapshot that begins at this place in the run, if one does and it is complete."""
    first = run[place].snapshot
    if first is None:
        return None
    part, parts = snapshot_part(first)
    batches = [*(one.snapshot for one in run[place:]), *parts_behind][:parts]
    if part != 0 or len(batches) < parts or None in batches:
        return None
    header = run[place].header
    return open_snapshot(
        [one for one in batches if one is not None],
        sequence_next=Sequence(header.first_sequence),
        append_time_us=header.append_time_us,
    )


def _state_after(run: list[_Fact]) -> PartitionState:
    """The state after these entries alone."""
    state = PartitionState()
    for fact in run:
        if fact.snapshot is not None:
            continue
        header = fact.header
        if fact.fence is not None:
            writer_id, fence = fact.fence.writer_id, fact.fence.fence
            state.on_fence(writer_id, fence, header.append_time_us)
            continue
        state.on_entry(
            next_sequence=Sequence(header.next_sequence),
            append_time_us=header.append_time_us,
            transaction_id=fact.transaction_id,
            batch_bytes=header.body_bytes,
            local_only_count=header.record_count if header.is_local_only else 0,
        )
        slot = 0
        for line in header.lines:
            if line.writer is not None:
                batch = WrittenBatch(
                    seqs=line.writer.seqs,
                    segment=header.segment,
                    entry=header.entry,
                    slot=slot,
                    first_sequence=Sequence(header.first_sequence + slot),
                    header_crc=line.header_crc,
                    body_crc=line.body_crc,
                )
                state.on_batch(
                    line.writer.writer_id,
                    line.writer.epoch,
                    batch,
                    header.append_time_us,
                    partitions=line.writer.partitions,
                )
            slot += line.record_count
    return state
