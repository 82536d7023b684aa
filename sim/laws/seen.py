"""What a law may look at: ledgers in metadata, the nodes that are up, and what was told."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamName
from regions.storage.store import Store
from sim.world.history import Append, History
from sim.world.workload import STREAM
from sim.world.world import CLUSTER, World

_PATHS = ClusterPaths(CLUSTER)
_LEDGERS = _PATHS.ledgers
_SEGMENTS = _PATHS.segments(PartitionName(StreamName.parse(STREAM)))


@attrs.frozen(eq=False)
class Look:
    """A world as it is at one moment."""

    world: World
    history: History
    ledgers: dict[LedgerId, LedgerRecord]
    """All ledgers, as the leader of the metadata store has them."""
    segments: dict[int, SegmentRecord]
    """The list of the one stream, by number."""
    stores: dict[InstanceId, tuple[Store, ...]]
    """The data directories of all nodes that answer, paused ones included."""
    told: Sequence[Append]
    """Appends answered OK since the look before."""


class StateLaw(Protocol):
    """One law."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the state of now with what was seen before."""
        ...


_Record = TypeVar("_Record", LedgerRecord, SegmentRecord)


@attrs.define(eq=False)
class Looking:
    """Makes the looks at one world."""

    _world: World
    _history: History
    _told_count: int = attrs.field(default=0, init=False)
    _opened: dict[str, tuple[bytes, object]] = attrs.field(factory=dict, init=False)
    """By path: a document, and what it says: most have not changed since."""

    def look(self) -> Look:
        """The world as it is now."""
        told = self._history.acknowledged_in_order[self._told_count :]
        self._told_count += len(told)
        ledgers = self._records(_LEDGERS, LedgerRecord)
        segments = self._records(_SEGMENTS, SegmentRecord)
        return Look(
            self._world,
            self._history,
            {record.ledger: record for record in ledgers},
            {record.segment: record for record in segments},
            self._stores(),
            told,
        )

    def _records(self, root: str, kind: type[_Record]) -> list[_Record]:
        """All documents in the buckets of a place."""
        nodes = self._world.store.tree.nodes
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
        cores = [self._world.cores[host] for host in sorted(self._world.cores)]
        return {core.instance: core.service.stores for core in cores}
