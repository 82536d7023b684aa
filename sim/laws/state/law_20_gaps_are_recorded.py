"""Law 20: a mirror goes on behind a gap only if its stream evicts, and the gap is recorded.

The gap begins where the mirror ended, so it hides nothing that the mirror had, and ends no
later than where the home let it go on.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.stream_state import TrimRecord
from sim.laws.state.seen import Look, MirrorKey


@attrs.define
class GapsAreRecorded:
    """Keeps the gap of each mirror, and where its completed rows ended."""

    _gaps: dict[MirrorKey, TrimRecord] = attrs.field(factory=dict)
    _ends: dict[MirrorKey, int] = attrs.field(factory=dict)
    _begun: set[tuple[MirrorKey, int]] = attrs.field(factory=set)
    """Rows whose beginning was checked, by number: a later gap is not theirs."""
    _completed: set[tuple[MirrorKey, int]] = attrs.field(factory=set)
    """Rows whose end is known, by number. Others may have been completed and trimmed unseen."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Check new gaps, and new rows that do not follow the one before."""
        for mirror in now.made_again:
            # One that was begun again has noted the gap by what it had before.
            if mirror not in now.dropped:
                self._forget(mirror)
        for mirror, trim in now.log_trims.items():
            region, partition = mirror
            found = [*self._of_gap(now, mirror, trim)]
            if mirror in now.made_again:
                self._forget(mirror)
            for words in (*found, *self._of_rows(now, mirror, trim)):
                yield f"the mirror of partition {partition} in {region} {words}"
            self._gaps[mirror] = trim

    def _forget(self, mirror: MirrorKey) -> None:
        """The mirror was made again: its first row begins where the home does then."""
        self._gaps.pop(mirror, None)
        self._ends.pop(mirror, None)
        self._begun = {one for one in self._begun if one[0] != mirror} | {(mirror, 1)}
        self._completed = {one for one in self._completed if one[0] != mirror}

    def _of_gap(self, now: Look, mirror: MirrorKey, trim: TrimRecord) -> Iterator[str]:
        gap, end = trim.gap, self._ends.get(mirror, 0)
        if trim.evicted_before > 0 and not now.world.options.knobs.may_evict:
            yield f"may go on at {trim.evicted_before}, although its stream holds all"
        if gap is None or (mirror in self._gaps and gap == self._gaps[mirror].gap):
            return
        now.history.happened.add("mirror-evicted")
        if not end <= gap.first < gap.end:
            yield f"calls {gap.first} to {gap.end} a gap, and ended at {end}"
        if gap.end > trim.evicted_before:
            yield f"has a gap up to {gap.end}; its home let it go on at {trim.evicted_before}"

    def _of_rows(self, now: Look, mirror: MirrorKey, trim: TrimRecord) -> Iterator[str]:
        rows, dropped = now.logs.get(mirror, {}), now.dropped.get(mirror, 0)
        for number in sorted(number for number in rows if number > dropped):
            row, end = rows[number], self._ends.get(mirror, 0)
            is_behind_gap = trim.gap is not None and trim.gap.end == row.first_sequence
            is_new = (mirror, number) not in self._begun
            is_next = number == 1 or (mirror, number - 1) in self._completed
            self._begun.add((mirror, number))
            if is_new and is_next and row.first_sequence > end and not is_behind_gap:
                yield f"ended at {end}, and goes on at {row.first_sequence} without a gap"
            if row.last_sequence is not None:
                self._ends[mirror] = max(end, row.last_sequence + 1)
                self._completed.add((mirror, number))
