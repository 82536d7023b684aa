"""What a law may look at: ledgers in metadata, the nodes that are up, and what was told."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs

from geolog.metadata.documents import open_document
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord
from regions.storage.store import Store
from sim.world.history import Append, History
from sim.world.world import CLUSTER, World


@attrs.frozen(eq=False)
class Look:
    """A world as it is at one moment."""

    world: World
    history: History
    ledgers: dict[LedgerId, LedgerRecord]
    """All ledgers, as the leader of the metadata store has them."""
    stores: dict[InstanceId, tuple[Store, ...]]
    """The data directories of all nodes that answer, paused ones included."""
    told: Sequence[Append]
    """Appends answered OK since the look before."""


class StateLaw(Protocol):
    """One law."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the state of now with what was seen before."""
        ...


@attrs.define(eq=False)
class Looking:
    """Makes the looks at one world."""

    _world: World
    _history: History
    _told_count: int = 0
    _ledgers_root: str = ClusterPaths(CLUSTER).ledgers + "/"
    _opened: dict[str, tuple[bytes, LedgerRecord]] = attrs.field(factory=dict)
    """By path: a ledger's document, and what it says: most have not changed since."""

    def look(self) -> Look:
        """The world as it is now."""
        told = self._history.acknowledged_in_order[self._told_count :]
        self._told_count += len(told)
        return Look(self._world, self._history, self._ledgers(), self._stores(), told)

    def _ledgers(self) -> dict[LedgerId, LedgerRecord]:
        found = {}
        for path, node in self._world.store.tree.nodes.items():
            if path.startswith(self._ledgers_root) and node.data and path[-12:].isdigit():
                record = self._open(path, node.data)
                found[record.ledger] = record
        return found

    def _open(self, path: str, data: bytes) -> LedgerRecord:
        known = self._opened.get(path)
        if known is not None and known[0] is data:
            return known[1]
        record = open_document(data, LedgerRecord, path=path)
        self._opened[path] = data, record
        return record

    def _stores(self) -> dict[InstanceId, tuple[Store, ...]]:
        cores = [self._world.cores[host] for host in sorted(self._world.cores)]
        return {core.instance: core.service.stores for core in cores}
