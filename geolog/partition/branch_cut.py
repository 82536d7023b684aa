"""Cutting a log that holds a dead branch: it ends where its lineage ends, and loses nothing.

Before a mirror, a home of earlier times or a candidate for the home goes on, it compares its
last entry with the forks of later homes. If that entry lies behind the branch point of its
epoch, the list ends there, and what was behind is kept as a rest. That is repeated until none
applies: a log may have missed several forks.

Rules: PROTOCOL H20.
"""

import logging
from collections.abc import Sequence
from contextlib import aclosing

import attrs

from geolog.catalog.kept_rests import DeadBranch
from geolog.catalog.segment_records import VersionedSegment
from geolog.metadata.seam import Freshness
from geolog.partition.mirror_writer import last_watermark
from geolog.partition.state_recovery import recovered_row
from geolog.partition.takeover import TakenOver, Takeover
from geolog.protocol.home_record import Fork, branch_point
from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.partition_state import PartitionState
from geolog.protocol.stream_state import PartitionName, SegmentRecord, TrimRecord
from geolog.protocol.watermark import Watermark

_log = logging.getLogger(__name__)


async def without_dead_branch(
    name: PartitionName,
    taken: TakenOver,
    takeover: Takeover,
    forks: Sequence[Fork],
    *,
    region: str | None,
) -> tuple[TakenOver, Watermark | None]:
    """The log as it was taken over, cut at the forks that it missed, and its last entry.

    forks: of the partition. FencedError if another process owns it, or it is at home;
    UnavailableError if its home changes meanwhile.
    """
    while True:
        mark = await last_watermark(name, takeover, freshness=Freshness.NEARBY)
        fork = None if mark is None else branch_point(forks, mark.home_epoch)
        if mark is None or fork is None or not fork.is_before(mark.segment, mark.entry):
            return taken, mark
        branch = await _dead_branch(name, takeover, fork)
        rests = takeover.partitions.rests
        rest = await rests.cut(name, taken.owner, fork, branch, region=region)
        _log.warning(
            "%s: it held %d records behind the fork of home epoch %d, which are not of the"
            " stream; it ends there now%s",
            name,
            branch.records_count,
            fork.home_epoch,
            ""
            if rest is None
            else f", and they are kept as {region}~{rest.rest}#{rest.number}",
        )
        taken = attrs.evolve(taken, state=await _state_of(name, takeover))


async def without_rows_before_begin(
    name: PartitionName,
    taken: TakenOver,
    mark: Watermark | None,
    trim: TrimRecord,
    takeover: Takeover,
) -> Watermark | None:
    """The last entry of a mirror that was taken over; None, and no row, if it begins behind it.

    Its rows are of before a gap then, and are not part of the log any more: an owner that
    went on behind them would number records that lie before where the log begins.
    """
    if mark is None or mark.sequence_next >= trim.first_sequence:
        return mark
    await takeover.partitions.trims.drop_all(name, taken.owner)
    return None


async def _dead_branch(name: PartitionName, takeover: Takeover, fork: Fork) -> DeadBranch:
    """The rows behind the fork, of a log whose rows are all completed."""
    segments = takeover.partitions.segments
    whole: list[VersionedSegment] = []
    through: VersionedSegment | None = None
    async with aclosing(segments.numbers_back(name)) as numbers:
        async for number in numbers:
            for found in await segments.at(name, [number]):
                record = found.record
                if fork.is_before(record.segment, record.first_entry):
                    whole.append(found)
                else:
                    through = found
            if through is not None:
                break
    whole.reverse()
    records_count = sum(
        one.record.last_sequence + 1 - one.record.first_sequence
        for one in whole
        if one.record.last_sequence is not None
    )
    cut = None if through is None else await _cut(through.record, takeover, fork)
    if cut is None or through is None:
        return DeadBranch(tuple(whole), records_count=records_count)
    assert through.record.last_sequence is not None
    assert cut.last_sequence is not None
    records_count += through.record.last_sequence - cut.last_sequence
    return DeadBranch(tuple(whole), through, cut, records_count)


async def _cut(row: SegmentRecord, takeover: Takeover, fork: Fork) -> SegmentRecord | None:
    """The row as it ends at the fork; None if it does not reach it."""
    assert row.last_entry is not None
    if row.segment != fork.segment or row.last_entry == NO_ENTRY:
        return None
    last = EntryId(row.numbering.in_ledger(fork.entry) - 1)
    if last >= row.last_entry:
        return None
    ends = attrs.evolve(row, last_entry=last)
    state = await recovered_row(
        ends, ledgers=takeover.ledgers, reader=takeover.reader(), progress=takeover.progress
    )
    return attrs.evolve(
        ends,
        last_sequence=LogSequence(state.sequence_next - 1),
        last_append_time_us=state.append_time_us,
        last_transaction_id=state.transaction_id,
        size_bytes=state.size_bytes - row.size_bytes_before,
        local_only=state.local_only_count - row.local_only_before,
    )


async def _state_of(name: PartitionName, takeover: Takeover) -> PartitionState:
    last = await takeover.partitions.segments.last(name)
    if last is None:
        return PartitionState()
    return await recovered_row(
        last.record,
        ledgers=takeover.ledgers,
        reader=takeover.reader(),
        progress=takeover.progress,
    )
