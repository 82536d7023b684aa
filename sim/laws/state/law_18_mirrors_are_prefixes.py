"""Law 18: a mirror is a prefix of its home, entry by entry and byte for byte.

Of a local-only entry it has the placeholder, with the same checksum of the header, and never
the batches.

An entry of a mirror has the place and the bytes of an entry of its home that an ack set holds
there: a mirror is never ahead. Places are those of the list's rows, so that entries without
records count, too.
"""

from collections.abc import Iterator

import attrs

from geolog.protocol.home_record import Fork, branch_point
from geolog.protocol.ids import NO_ENTRY, LedgerId, SegmentEntry
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from sim.laws.state.copies import slots_with
from sim.laws.state.seen import Look, MirrorKey, partition_of
from sim.laws.state.wire import EntryStored, Said

Place = tuple[int, int, SegmentEntry]
"""Partition, segment, entry of it."""

Checksum = tuple[bool, int]
"""Whether an entry is local-only; then the checksum of its header, else that of all of it."""


@attrs.define
class MirrorsArePrefixes:
    """Keeps the checksum of each entry of the home, as nodes stored or served it."""

    _at_home: dict[Place, Checksum] = attrs.field(factory=dict)
    _homes: dict[tuple[int, int], LedgerRecord] = attrs.field(factory=dict)
    """The ledgers of the home's segments, as last seen: trimmed ones are gone."""
    _records: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _highest: dict[tuple[MirrorKey, int], SegmentEntry] = attrs.field(factory=dict)
    """By mirror and segment: the last entry stored there."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare entries that were stored since the last look."""
        if not now.world.options.relay_to:
            return
        self._records |= now.ledgers
        for record in now.ledgers.values():
            if record.segment and now.is_of_home(record):
                self._homes[partition_of(record), record.segment] = record
        for fact in now.said:
            if isinstance(fact, EntryStored | Said) and fact.body_crc is not None:
                known = self._records.get(fact.ledger)
                if known is not None and now.is_of_home(known):
                    place = _place(known, partition_of(known), fact)
                    self._at_home.setdefault(place, _checksum(fact, fact.body_crc))
        for fact in now.said:
            if isinstance(fact, EntryStored):
                yield from self._mirrored(now, fact)
        yield from self._ahead(now)

    def _mirrored(self, now: Look, fact: EntryStored) -> Iterator[str]:
        record = self._records.get(fact.ledger)
        mirror = None if record is None else now.mirror_of(record)
        if record is None or mirror is None:
            return
        region, partition = mirror
        place = _place(record, partition, fact)
        words = f"entry {place[2]} of segment {place[1]} of partition {partition}"
        known = self._at_home.get(place)
        if known is None:
            yield f"the mirror in {region} has {words}, which no node of the home ever had"
        elif known != _checksum(fact, fact.body_crc):
            yield f"the mirror in {region} has other bytes for {words} than the home"
        elif fact.header_crc is not None and not fact.is_placeholder:
            yield f"the mirror in {region} has the batches of {words}, which is local-only"
        elif not self._is_durable(now, place):
            yield f"the mirror in {region} has {words}, which no ack set of the home has"
        highest = self._highest.get((mirror, place[1]), place[2])
        self._highest[mirror, place[1]] = max(highest, place[2])

    def _is_durable(self, now: Look, place: Place) -> bool:
        partition, segment, found = place
        home = self._homes[partition, segment]
        if home.ledger not in now.ledgers:
            return True  # It was trimmed meanwhile.
        entry = home.numbering.in_ledger(found)
        fragment = home.fragment_of(entry)
        return fragment.rule(home.quorum).is_ack(
            entry, slots_with(now, home.ledger, entry, fragment)
        )

    def _ahead(self, now: Look) -> Iterator[str]:
        """Entries behind the end at which the home's ledger was closed."""
        for ((region, partition), segment), highest in self._highest.items():
            home = self._homes[partition, segment]
            if home.state is not LedgerState.CLOSED or home.ledger not in now.ledgers:
                continue
            last = NO_ENTRY if home.last_entry is None else home.last_entry
            if highest > home.numbering.in_segment(last):
                yield (
                    f"the mirror in {region} has entry {highest} of segment {segment} of"
                    f" partition {partition}, which the home closed at {last}"
                )


def _checksum(fact: EntryStored | Said, body_crc: int) -> Checksum:
    is_local_only = fact.header_crc is not None
    return is_local_only, body_crc if fact.header_crc is None else fact.header_crc


def _place(record: LedgerRecord, partition: int, fact: EntryStored | Said) -> Place:
    return partition, record.segment, record.numbering.in_segment(fact.entry)


def mirrors_behind(now: Look) -> list[str]:
    """The mirrors that lack entries of closed ledgers of their home, in words."""
    return [
        f"the mirror of partition {partition} in {region} lacks entry {due[1]} of segment"
        f" {due[0]}"
        for region in (() if now.stream is None else now.stream.relay_to)
        for partition in now.lists
        if (due := _end_of_home(now, partition)) is not None
        and not mirror_has(now, (region, partition), *due)
        and not _begins_behind(now, (region, partition), due[0])
    ]


def mirrors_uncut(now: Look) -> list[str]:
    """The mirrors that hold, or may hold, what a fork left behind, in words."""
    return [
        f"the mirror of partition {partition} in {region} was not cut at the fork of home epoch"
        f" {fork.home_epoch}"
        for region in (() if now.stream is None else now.stream.relay_to)
        for partition in now.lists
        if (fork := _missed_fork(now, (region, partition))) is not None
    ]


def _missed_fork(now: Look, mirror: MirrorKey) -> Fork | None:
    """The fork at which a mirror is to be cut; of an open row nobody knows where it ends."""
    forks = now.history.forks_of(mirror[1])
    for row in now.logs.get(mirror, {}).values():
        fork = branch_point(forks, row.home_epoch)
        if fork is None or row.last_entry == NO_ENTRY:
            continue
        last = None if row.last_entry is None else row.numbering.in_segment(row.last_entry)
        if last is None or fork.is_before(row.segment, last):
            return fork
    return None


def _begins_behind(now: Look, mirror: MirrorKey, segment: int) -> bool:
    """Whether a mirror without rows was let go on behind a segment of its home."""
    trim, rows = now.mirror_trims.get(mirror), now.lists[mirror[1]]
    return (
        trim is not None
        and not now.mirrors.get(mirror)
        and 0 < trim.first_sequence <= trim.evicted_before
        and any(
            row.segment > segment and row.first_sequence <= trim.first_sequence
            for row in rows.values()
        )
    )


def _end_of_home(now: Look, partition: int) -> tuple[int, SegmentEntry] | None:
    """The last entry of closed ledgers: its segment, and its number there."""
    found = None
    rows = now.lists[partition]
    for number in sorted(rows):
        ledger = now.ledgers.get(rows[number].ledger)
        last = None if ledger is None else ledger.last_entry
        if ledger is not None and last is not None and last >= 0:
            found = ledger.segment, ledger.numbering.in_segment(last)
    return found


def mirror_has(now: Look, mirror: MirrorKey, segment: int, entry: SegmentEntry) -> bool:
    """Whether an ack set of the mirror has an entry, and so all before it."""
    for row in now.logs.get(mirror, {}).values():
        if row.segment != segment or row.first_entry > entry or row.ledger not in now.ledgers:
            continue
        record = now.ledgers[row.ledger]
        found = row.numbering.in_ledger(entry)
        if record.last_entry is not None and found > record.last_entry:
            continue
        fragment = record.fragment_of(found)
        have = slots_with(now, row.ledger, found, fragment)
        if fragment.rule(record.quorum).is_ack(found, have):
            return True
    return False
