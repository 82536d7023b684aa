"""A look at the world: ledgers and lists in metadata, nodes that are up, new answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.cursor_state import CursorName, CursorPartition, PartitionStanding
from geolog.protocol.ids import DLSN, EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import (
    OwnerRecord,
    PartitionName,
    SegmentRecord,
    StreamName,
    StreamRecord,
    TrimRecord,
)
from regions.storage.store import Store
from sim.laws.state.wire import Fact
from sim.world.apps.cursor_reading import CURSOR
from sim.world.calls import STREAM
from sim.world.history import Append, History
from sim.world.seams import CLUSTER
from sim.world.world import World

_PATHS = ClusterPaths(CLUSTER)
_LEDGERS = _PATHS.ledgers
_STREAM = StreamName.parse(STREAM)


SegmentKey = tuple[int, int]
"""Partition, and segment in its list."""

MirrorKey = tuple[str, int]
"""The region of a mirror, and its partition."""


@attrs.frozen(eq=False)
class CursorLook:
    """The cursor of the main stream at one moment."""

    readers: frozenset[str]
    standings: dict[int, PartitionStanding]
    """By partition, of those that were ever read by it."""


@attrs.frozen(eq=False)
class Look:
    """A world at one moment."""

    world: World
    history: History
    stream: StreamRecord | None
    """The main stream; None before it is made."""
    ledgers: dict[LedgerId, LedgerRecord]
    """All ledger records, as the metadata store's leader holds them."""
    lists: dict[int, dict[int, SegmentRecord]]
    """The segments of each partition of the main stream, by number."""
    trims: dict[int, TrimRecord]
    """Where each partition begins."""
    owners: dict[int, OwnerRecord]
    """The owner of each partition."""
    mirrors: dict[MirrorKey, dict[int, SegmentRecord]]
    """The rows of each mirror of the main stream, by number."""
    mirror_trims: dict[MirrorKey, TrimRecord]
    """Where each mirror begins."""
    mirror_owners: dict[MirrorKey, OwnerRecord]
    """The owner of each mirror."""
    made_again: frozenset[MirrorKey]
    """Mirrors made since the last look whose target had been removed, and those that were begun
    again since then."""
    dropped: Mapping[MirrorKey, int]
    """Of each log that was ever begun again as a mirror: its last row that is not part of it
    any more. Such rows may still be there."""
    homes: Mapping[int, str]
    """The home of the main stream by home epoch, as far as looks have seen them."""
    sources: Mapping[LedgerId, "LedgerOrigin"] | None
    """Of each ledger that looks have seen in a list; None if nothing is mirrored."""
    stores: dict[InstanceId, tuple[Store, ...]]
    """The data directories of all nodes that answer, including paused ones."""
    cursor: CursorLook | None
    """The cursor of the main stream, if it has one."""
    told: Sequence[Append]
    """Appends acknowledged since the last look."""
    said: Sequence[Fact]
    """Requests to nodes and their answers since then."""

    @property
    def home(self) -> str | None:
        """The region where the main stream is at home, if it has a home."""
        return None if self.stream is None else self.stream.home

    @property
    def logs(self) -> dict[MirrorKey, dict[int, SegmentRecord]]:
        """The rows of the logs in all regions; empty if the main stream has no home."""
        if self.home is None:
            return {}
        return {(self.home, number): rows for number, rows in self.lists.items()} | self.mirrors

    @property
    def log_trims(self) -> dict[MirrorKey, TrimRecord]:
        """Where these logs begin."""
        if self.home is None:
            return {}
        at_home = {(self.home, number): trim for number, trim in self.trims.items()}
        return at_home | self.mirror_trims

    def ledgers_by_segment(self) -> dict[SegmentKey, LedgerRecord]:
        """The ledgers in which a home wrote its segments, by partition and segment."""
        return {
            (partition_of(record), record.segment): record
            for record in self.ledgers.values()
            if record.segment and self.is_of_home(record)
        }

    def is_of_home(self, record: LedgerRecord) -> bool:
        """Whether a home of the main stream wrote this ledger itself."""
        if not is_of_stream(record):
            return False
        if self.sources is None:
            return True
        source = self.sources.get(record.ledger)
        return source is not None and not source.is_copy

    def mirror_of(self, record: LedgerRecord) -> MirrorKey | None:
        """The mirror of the main stream that a ledger is a copy for, if it is one."""
        source = None if self.sources is None else self.sources.get(record.ledger)
        return source.log if source is not None and source.is_copy else None

    def is_left_behind(self, partition: int, segment: int, entry: int) -> bool:
        """Whether a fork left that entry behind, of whichever log."""
        return self.history.is_left_behind(partition, DLSN(segment, entry, 0))

    def is_cut(
        self, partition: int, before: SegmentRecord, after: SegmentRecord | None
    ) -> bool:
        """Whether a row may have become this, or have gone, because its log ends at a fork."""
        if after is None:
            return self.is_left_behind(partition, before.segment, before.first_entry)
        if before.last_entry is None or after.last_entry is None:
            return False
        ends = before.numbering
        if after.last_entry != before.last_entry and not any(
            fork.segment == before.segment
            and ends.in_segment(EntryId(after.last_entry + 1)) == fork.entry
            and after.last_entry < before.last_entry
            for fork in self.history.forks_of(partition)
        ):
            return False
        named = attrs.evolve(after, shared_with=before.shared_with)
        return before == _ended_as(named, before)

    def is_trimmed(self, append: Append) -> bool:
        """Whether an acknowledged append lies before the beginning of its partition."""
        assert append.sequence is not None
        trim = self.trims.get(append.partition)
        return trim is not None and append.sequence < trim.first_sequence


def _ended_as(row: SegmentRecord, other: SegmentRecord) -> SegmentRecord:
    """The row with the end of another."""
    return attrs.evolve(
        row,
        last_entry=other.last_entry,
        last_sequence=other.last_sequence,
        last_append_time_us=other.last_append_time_us,
        last_transaction_id=other.last_transaction_id,
        size_bytes=other.size_bytes,
        local_only=other.local_only,
    )


@attrs.frozen
class LedgerOrigin:
    """The log that a ledger of the main stream belongs to."""

    log: MirrorKey
    is_copy: bool
    """Whether it holds what was appended at a home in another region."""


def is_of_stream(record: LedgerRecord) -> bool:
    """Whether a ledger belongs to the main stream, in any region.

    Not to the stream that comes and goes.
    """
    return record.stream.startswith(f"{STREAM}#")


def partition_of(record: LedgerRecord) -> int:
    """The partition that a ledger was created for."""
    name, _, _region = record.stream.partition("@")
    return int(name.rpartition("#")[2])


class StateLaw(Protocol):
    """One law."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the current state with what was seen before."""
        ...


_Record = TypeVar(
    "_Record",
    CursorPartition,
    LedgerRecord,
    OwnerRecord,
    SegmentRecord,
    StreamRecord,
    TrimRecord,
)


@attrs.define(eq=False)
class Looking:
    """Takes the looks at one world."""

    world: World
    _history: History
    _told_count: int = attrs.field(default=0, init=False)
    _homes: dict[int, str] = attrs.field(factory=dict, init=False)
    _sources: dict[LedgerId, LedgerOrigin] = attrs.field(factory=dict, init=False)
    _made_us: dict[MirrorKey, int] = attrs.field(factory=dict, init=False)
    """When each mirror was made, by the store's clock."""
    _begun_counts: dict[MirrorKey, int] = attrs.field(factory=dict, init=False)
    """How often each mirror had been begun again."""
    _opened: dict[str, tuple[bytes, object]] = attrs.field(factory=dict, init=False)
    """By path: a document and its parsed value; most have not changed since."""

    def look(self, said: Sequence[Fact] = ()) -> Look:
        """The world now, and what nodes have said since the last look."""
        told = self._history.acknowledged_in_order[self._told_count :]
        self._told_count += len(told)
        ledgers = self._records(_LEDGERS, LedgerRecord)
        stream = self._stream()
        partitions = [] if stream is None else self._partitions(stream)
        mirrors = {} if stream is None else self._mirrors(stream, partitions)
        now = Look(
            self.world,
            self._history,
            stream,
            {record.ledger: record for record in ledgers},
            {name.number: self._list_of(name) for name in partitions},
            {name.number: self._trim_of(name) for name in partitions},
            {name.number: self._owner_of(name) for name in partitions},
            {key: self._list_of(one) for key, one in mirrors.items()},
            {key: self._trim_of(one) for key, one in mirrors.items()},
            {key: self._owner_of(one) for key, one in mirrors.items()},
            self._made_again(mirrors),
            self._dropped(stream, partitions),
            self._homes,
            self._sources if self.world.options.relay_to else None,
            self._stores(),
            self._cursor(),
            told,
            said,
        )
        self._note_sources(now)
        return now

    def _note_sources(self, now: Look) -> None:
        """Note who wrote the ledgers in the lists: a home, or a mirror."""
        if now.home is None or now.sources is None:
            return
        assert now.stream is not None
        self._homes[now.stream.home_epoch] = now.home
        self._history.home_regions[now.stream.home_epoch] = now.home
        for log, rows in now.logs.items():
            for row in rows.values():
                if row.ledger not in self._sources:
                    is_copy = self._homes.get(row.home_epoch) != log[0]
                    # A home that was begun again as a mirror got its own segments back.
                    is_copy |= row.row_number + self._offset(log[1], row) != row.segment
                    self._sources[row.ledger] = LedgerOrigin(log, is_copy)

    def _offset(self, partition: int, row: SegmentRecord) -> int:
        """How much a segment's number exceeds its row's, in a home of that epoch."""
        forks = self._history.forks_of(partition)
        found = [one.segment_offset for one in forks if one.home_epoch == row.home_epoch]
        return found[0] if found else 0

    def _stream(self) -> StreamRecord | None:
        nodes, path = self.world.store.tree.nodes, _PATHS.stream(_STREAM)
        return self._open(path, nodes[path].data, StreamRecord) if path in nodes else None

    def _partitions(self, stream: StreamRecord) -> list[PartitionName]:
        """The logs of the partitions that the stream has by now, at home."""
        nodes = self.world.store.tree.nodes
        found = [stream.log_in(stream.home, 0)]
        while _PATHS.trim(found[-1]) in nodes:
            found.append(stream.log_in(stream.home, len(found)))
        return found[:-1]

    def _mirrors(
        self, stream: StreamRecord, partitions: list[PartitionName]
    ) -> dict[MirrorKey, PartitionName]:
        found = {
            (region, one.number): stream.log_in(region, one.number)
            for one in partitions
            for region in stream.relay_to
        }
        nodes = self.world.store.tree.nodes
        return {key: one for key, one in found.items() if _PATHS.trim(one) in nodes}

    def _made_again(self, mirrors: dict[MirrorKey, PartitionName]) -> frozenset[MirrorKey]:
        nodes, found = self.world.store.tree.nodes, set()
        for key, one in mirrors.items():
            made_us = nodes[_PATHS.trim(one)].created_us
            before_us = self._made_us.get(key)
            # A partition may have been added while the region was no target.
            is_late = before_us is None and key[0] in self._history.targets_removed
            begun_count = self.world.begun_again.count(_PATHS.trim(one))
            is_begun_again = begun_count > self._begun_counts.get(key, 0)
            if is_late or is_begun_again or before_us not in (None, made_us):
                found.add(key)
            self._made_us[key], self._begun_counts[key] = made_us, begun_count
        return frozenset(found)

    def _dropped(
        self, stream: StreamRecord | None, partitions: list[PartitionName]
    ) -> Mapping[MirrorKey, int]:
        """The rows that logs in all regions lost; the home may have been a mirror before."""
        if stream is None or stream.home is None:
            return {}
        found = {
            (region, one.number): self.world.begun_again.dropped_through(
                _PATHS.trim(stream.log_in(region, one.number))
            )
            for region in (stream.home, *stream.relay_to)
            for one in partitions
        }
        return {key: through for key, through in found.items() if through}

    def _cursor(self) -> CursorLook | None:
        nodes, path = self.world.store.tree.nodes, _PATHS.stream(_STREAM)
        if not self.world.options.stream.cursor_readers or path not in nodes:
            return None
        life = self._open(path, nodes[path].data, StreamRecord).life
        name = CursorName(_STREAM, life, CURSOR)
        folder = _PATHS.cursor_partitions(name)
        if folder not in nodes:
            return None
        standings = {}
        for number in sorted(map(int, nodes[folder].children)):
            node = nodes[path := _PATHS.cursor_partition(name, number)]
            record = self._open(path, node.data, CursorPartition)
            standings[number] = PartitionStanding(record, node.version)
        return CursorLook(nodes[_PATHS.cursor_readers(name)].children, standings)

    def _list_of(self, name: PartitionName) -> dict[int, SegmentRecord]:
        segments = self._records(_PATHS.segments(name), SegmentRecord)
        return {record.row_number: record for record in segments}

    def _trim_of(self, name: PartitionName) -> TrimRecord:
        path = _PATHS.trim(name)
        return self._open(path, self.world.store.tree.nodes[path].data, TrimRecord)

    def _owner_of(self, name: PartitionName) -> OwnerRecord:
        path = _PATHS.owner(name)
        return self._open(path, self.world.store.tree.nodes[path].data, OwnerRecord)

    def _records(self, root: str, kind: type[_Record]) -> list[_Record]:
        """All documents in the buckets of a folder."""
        nodes = self.world.store.tree.nodes
        found = []
        for bucket in sorted(nodes[root].children) if root in nodes else ():
            for name in sorted(nodes[f"{root}/{bucket}"].children):
                path = f"{root}/{bucket}/{name}"
                found.append(self._open(path, nodes[path].data, kind))
        return found

    def _open(self, path: str, data: bytes, kind: type[_Record]) -> _Record:
        known = self._opened.get(path)
        if known is not None and known[0] is data and isinstance(known[1], kind):
            return known[1]
        record = open_document(data, kind, path=path)
        self._opened[path] = data, record
        return record

    def _stores(self) -> dict[InstanceId, tuple[Store, ...]]:
        cores = [self.world.cores[host] for host in sorted(self.world.cores)]
        return {core.instance: core.service.stores for core in cores}
