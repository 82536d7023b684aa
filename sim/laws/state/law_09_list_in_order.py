"""Law 9: a partition's list has no gaps, and only its last ledger is not CLOSED.

Only its front goes, with the trim, and never the last segment that has records.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import attrs

from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerState
from geolog.protocol.stream_state import SegmentRecord
from sim.laws.state.seen import Look


@attrs.define
class ListInOrder:
    """Keeps the lists: completed segments never change, and only the front leaves."""

    _before: dict[tuple[str | None, int], dict[int, SegmentRecord]] = attrs.field(factory=dict)
    """By home and partition: another home has a list of its own."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current lists with those seen before, and with their ledgers."""
        for partition, segments in now.lists.items():
            for words in (
                *_disorder(segments),
                *_ledgers_that_differ(now, partition, segments),
                *self._changed(now, partition, segments),
            ):
                yield f"partition {partition}: {words}"
        for append in now.told:
            partition, segment = append.segment_key
            listed = {row.segment for row in now.lists[partition].values()}
            assert append.dlsn is not None
            is_aside = now.is_left_behind(partition, segment, append.dlsn.entry)
            if segment not in listed and not now.is_trimmed(append) and not is_aside:
                yield f"{append.dlsn} was acknowledged, but its segment is not in the list"
        self._before = {(now.home, number): dict(one) for number, one in now.lists.items()}

    def _changed(
        self, now: Look, partition: int, segments: Mapping[int, SegmentRecord]
    ) -> Iterator[str]:
        trim = now.trims[partition].first_sequence
        for segment, before in self._before.get((now.home, partition), {}).items():
            found = segments.get(segment)
            if found != before and now.is_cut(partition, before, found):
                continue
            if before.is_completed and found not in (None, before):
                yield f"segment {segment} was completed as {before}, and has changed"
            if found is None and not _may_go(before, trim, segments):
                yield f"segment {segment} has left the list, which begins at sequence {trim}"


def _may_go(before: SegmentRecord, trim: int, segments: Mapping[int, SegmentRecord]) -> bool:
    """Whether it lies before the trim, and a segment remains that has or will have records."""
    first_left = min(segments, default=0)
    if before.row_number > first_left:
        return False
    # A segment that was not complete at the last look ends where the next one begins.
    last = before.last_sequence
    end = segments[first_left].first_sequence if last is None else last + 1
    return end <= trim


def _disorder(segments: Mapping[int, SegmentRecord]) -> Iterator[str]:
    rows = sorted(segments.values(), key=lambda row: row.row_number)
    for one, other in pairwise(rows):
        if one.last_sequence is None:
            yield f"segment {one.segment} is not completed, but {other.segment} follows it"
        elif other.first_sequence != one.last_sequence + 1:
            yield (
                f"segment {other.segment} begins at sequence {other.first_sequence}, but"
                f" {one.segment} ends at {one.last_sequence}"
            )
        elif other.size_bytes_before != one.size_bytes_through:
            yield (
                f"segment {other.segment} has {other.size_bytes_before} bytes before it, but"
                f" {one.segment} ends at byte {one.size_bytes_through}"
            )
        elif other.local_only_before != one.local_only_through:
            yield (
                f"segment {other.segment} has {other.local_only_before} local-only records"
                f" before it, but {one.segment} ends at {one.local_only_through}"
            )


def _ledgers_that_differ(
    now: Look, partition: int, segments: Mapping[int, SegmentRecord]
) -> Iterator[str]:
    for row in segments.values():
        ledger = now.ledgers.get(row.ledger)
        if ledger is None:
            yield f"segment {row.segment} has no ledger {row.ledger}"
        elif row.is_completed and (
            ledger.state is not LedgerState.CLOSED
            or (ledger.last_entry != row.last_entry and not _ends_at_fork(now, partition, row))
        ):
            yield (
                f"segment {row.segment} ends at entry {row.last_entry}; its ledger is"
                f" {ledger.state.value} at {ledger.last_entry}"
            )


def _ends_at_fork(now: Look, partition: int, row: SegmentRecord) -> bool:
    """Whether a fork goes through its ledger, directly behind its last entry."""
    assert row.last_entry is not None
    behind = row.numbering.in_segment(EntryId(row.last_entry + 1))
    return any(
        (fork.segment, fork.entry) == (row.segment, behind)
        for fork in now.history.forks_of(partition)
    )
