"""Law 18: the rows of a mirror follow each other as the entries of its home do, without a hole.

The first row begins a segment, so that the mirror could become the home. Any other goes on in
the middle of a segment where the one before it ended, or begins the next segment of the home
that has entries. It has the home's sequences. Completed rows never change, and only the front
goes, no further than the home's own. A mirror that is begun again loses all rows that it had,
and no others.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import attrs

from geolog.protocol.entry_numbering import SEGMENT_BEGIN
from geolog.protocol.ids import SegmentEntry
from geolog.protocol.stream_state import SegmentRecord
from sim.laws.state.seen import Look, MirrorKey


@attrs.define
class RowsInOrder:
    """Keeps the completed segments of homes, and the rows of mirrors, as they were seen."""

    _at_home: dict[int, dict[int, SegmentRecord]] = attrs.field(factory=dict)
    """By partition and segment; trimmed ones stay here."""
    _before: dict[MirrorKey, dict[int, SegmentRecord]] = attrs.field(factory=dict)
    _looked_at: object = None
    """All lists and their beginnings, as of the last look: mostly they have not changed."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current rows with those before, and with the home's."""
        for mirror in now.made_again:
            # Rows of one that was begun again are checked on: `dropped` says which of them go.
            if mirror not in now.dropped:
                self._before.pop(mirror, None)
        lists = now.logs, now.log_trims
        if lists == self._looked_at:
            return
        self._looked_at = lists
        for (region, partition), rows in now.logs.items() if now.mirrors else ():
            known = self._at_home.setdefault(partition, {})
            for row in rows.values():
                if now.homes.get(row.home_epoch) == region:
                    known[row.segment] = row
        for mirror, listed in now.mirrors.items():
            region, partition = mirror
            dropped = now.dropped.get(mirror, 0)
            if dropped and not now.mirror_trims[mirror].dropping_through:
                for number in [one for one in listed if one <= dropped]:
                    yield (
                        f"the mirror of partition {partition} in {region}: row {number} is"
                        f" still there, although it was begun again behind row {dropped}"
                    )
            rows = {number: row for number, row in listed.items() if number > dropped}
            for words in (
                *_beginning(rows),
                *self._disorder(now, partition, rows),
                *self._changed(now, mirror, rows),
                *self._unequal(partition, rows),
            ):
                yield f"the mirror of partition {partition} in {region}: {words}"
            self._before[mirror] = rows

    def _disorder(
        self, now: Look, partition: int, rows: Mapping[int, SegmentRecord]
    ) -> Iterator[str]:
        for one, other in pairwise(rows[number] for number in sorted(rows)):
            words = f"row {other.row} begins at {other.first_sequence} of segment"
            words += f" {other.segment}, entry {other.first_entry}"
            end = _end_of(one)
            if end is None or one.last_sequence is None:
                yield f"row {one.row} is not complete, and {other.row} follows it"
                continue
            if other.first_sequence != one.last_sequence + 1:
                yield f"{words}; the one before it ended at {one.last_sequence}"
            if other.segment == one.segment:
                if other.first_entry != end + 1:
                    yield f"{words}; the one before it ended at entry {end}"
            elif other.first_entry != SEGMENT_BEGIN:
                yield f"{words}, in the middle of another segment"
            else:
                yield from self._left_out(now, partition, one, other, end)

    def _left_out(
        self,
        now: Look,
        partition: int,
        one: SegmentRecord,
        other: SegmentRecord,
        end: SegmentEntry,
    ) -> Iterator[str]:
        """Entries of the home between two rows of different segments."""
        for segment, home in self._at_home.get(partition, {}).items():
            last = _end_of(home)
            if last is None or not one.segment <= segment < other.segment:
                continue
            first = end + 1 if segment == one.segment else SEGMENT_BEGIN
            if last >= first and not now.is_left_behind(partition, segment, first):
                yield (
                    f"row {other.row} begins segment {other.segment}, and entries {first} to"
                    f" {last} of segment {segment} are in none"
                )

    def _unequal(self, partition: int, rows: Mapping[int, SegmentRecord]) -> Iterator[str]:
        """Rows that begin a segment at another sequence than the home does."""
        for row in rows.values():
            home = self._at_home.get(partition, {}).get(row.segment)
            if home is None:
                yield f"row {row.row} is of segment {row.segment}, which the home never had"
            elif row.first_entry == SEGMENT_BEGIN and row.first_sequence != home.first_sequence:
                yield (
                    f"row {row.row} begins segment {row.segment} at {row.first_sequence}, the"
                    f" home at {home.first_sequence}"
                )

    def _changed(
        self, now: Look, mirror: MirrorKey, rows: Mapping[int, SegmentRecord]
    ) -> Iterator[str]:
        trim = now.mirror_trims[mirror].first_sequence
        at_home = now.trims[mirror[1]].first_sequence
        # A home that evicts raises its own trim a moment later.
        if trim > max(at_home, now.mirror_trims[mirror].evicted_before):
            yield f"it begins at sequence {trim}, its home at {at_home}"
        for number, before in self._before.get(mirror, {}).items():
            found = rows.get(number)
            if number <= now.dropped.get(mirror, 0):
                continue
            if found != before and now.is_cut(mirror[1], before, found):
                continue
            if before.is_completed and found not in (None, before):
                yield f"row {number} was completed as {before}, and is now {found}"
            is_wiped = mirror[0] in now.world.wiped
            if found is None and before.last_sequence is not None and not is_wiped:
                if before.last_sequence >= trim:
                    yield f"row {number} has gone, and it begins at sequence {trim}"


def _beginning(rows: Mapping[int, SegmentRecord]) -> Iterator[str]:
    """The first row must begin a segment: with the state of writers, or sequence 0."""
    first = rows[min(rows)] if rows else None
    if first is not None and first.first_entry != SEGMENT_BEGIN:
        yield f"its list begins with entry {first.first_entry} of segment {first.segment}"


def _end_of(row: SegmentRecord) -> SegmentEntry | None:
    """The last entry of the segment in a completed row; the one before its first if empty."""
    if row.last_entry is None:
        return None
    return row.numbering.in_segment(row.last_entry)
