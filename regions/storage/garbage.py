"""Garbage collection: ask metadata about each ledger of the node, and delete what nobody needs.

A list, a stale server or leader, or silence never causes a deletion: each ledger's own record
is read, and read again with certainty before the ledger goes. Nothing is deleted either when
metadata has changed identity: another cluster's, or older than the ledger, e.g. after the loss
of its disks. A deletion is a DELETE record in the journal; a ledger that is let go gets a FENCE
record that says so. Compaction frees the space.

ALLOCATED ledgers that nobody activated expire a day after they were created. Both times come
from the metadata store's clock. The store's present time is known only from the last change to
something that is read here anyway. So nothing expires in a cluster where nothing happens, and
no two clocks are compared.

Rules: PROTOCOL C10 and L8.
"""

import logging
from collections.abc import Callable

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.nodes import ClusterRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import BadVersionError, Freshness, Metadata, NoNodeError, Stored
from geolog.protocol.ids import Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from regions.storage.config import StorageConfig
from regions.storage.cookies import Cookie
from regions.storage.protocol.garbage import Disposal, GarbageWatch
from topology.errors import DamagedBytesError, GeologError

_log = logging.getLogger(__name__)


@attrs.define
class GarbageCounts:
    """Garbage collection counts since the start."""

    rounds: int = 0
    rounds_failed: int = 0
    candidates: int = 0
    """Ledgers that nobody needs, still within their grace period."""
    ledgers_deleted: int = 0
    ledgers_let_go: int = 0
    """Ledgers whose entries were given up here because other nodes hold them."""
    allocated_expired: int = 0
    staging_expired: int = 0


@attrs.frozen
class _Present:
    """Metadata's view of itself in one round."""

    ledger_next: LedgerId
    latest_us: int
    """Metadata's clock has certainly reached this time."""


class GarbageCollector:
    """Inspects all ledgers of a node, round after round."""

    def __init__(
        self,
        metadata: Metadata,
        cookie: Cookie,
        config: StorageConfig,
        watch: GarbageWatch,
        *,
        ledgers: Callable[[], list[LedgerId]],
        delete: Callable[[LedgerId], None],
        let_go: Callable[[LedgerId, Epoch], bool],
    ) -> None:
        self._metadata = metadata
        self._paths = ClusterPaths(config.cluster)
        self._cluster_id = cookie.cluster_id
        self._instance: InstanceId = cookie.instance
        self._interval_s = config.garbage_interval_s
        self._allocated_us_max = int(config.allocated_expiry_s * 1e6)
        self._watch = watch
        self._ledgers = ledgers
        self._delete = delete
        self._let_go = let_go
        self.counts = GarbageCounts()

    async def run(self) -> None:
        """Collect in rounds; never returns. Deletes nothing while metadata is away."""
        while True:
            await trio.sleep(self._interval_s)
            try:
                await self.look_at_all()
            except GeologError as error:
                self.counts.rounds_failed += 1
                _log.warning("garbage collection: %s; retries next round", error)

    async def look_at_all(self) -> None:
        """Run one round. Raises metadata's errors; deletions made before that stand."""
        # Before the counter is read: ledgers created meanwhile are not below it yet.
        ledgers = self._ledgers()
        present = await self._present()
        if present is None:
            return
        for ledger in ledgers:
            await self._look_at(ledger, present)
        self.counts.rounds += 1
        self.counts.candidates = len(self._watch)

    async def _look_at(self, ledger: LedgerId, present: _Present) -> None:
        if ledger >= present.ledger_next:
            _log.error("ledger %d: metadata has not allocated this id yet; not deleted", ledger)
            return
        try:
            stored, record = await self._find(ledger)
        except DamagedBytesError as error:
            _log.error("ledger %d: %s; not deleted", ledger, error)
            return
        if stored is not None and record is not None:
            await self._expire(stored, record, present)
        if self._watch.on_look(ledger, record, now_s=trio.current_time()) is Disposal.KEEP:
            return
        again = await self._present(Freshness.CERTAIN)  # So the read after it is certain too.
        if again is None or ledger >= again.ledger_next:
            return
        _, record = await self._find(ledger)
        # No other task runs from here to the end.
        match self._watch.on_look(ledger, record, now_s=trio.current_time()):
            case Disposal.DELETE:
                self._delete(ledger)
                self._watch.on_deleted(ledger)
                self.counts.ledgers_deleted += 1
                _log.info("ledger %d: deleted here; its metadata record is gone", ledger)
            case Disposal.LET_GO if record is not None and self._let_go(ledger, record.epoch):
                self._watch.on_let_go(ledger)
                self.counts.ledgers_let_go += 1
                _log.info("ledger %d: let go; no fragment of it is here", ledger)

    async def _present(self, freshness: Freshness = Freshness.LATEST) -> _Present | None:
        """Check that metadata is still that of this cluster."""
        cluster = await self._metadata.find(self._paths.cluster, freshness=freshness)
        counter = await self._metadata.find(self._paths.ledger_next)
        if cluster is None or counter is None:
            return None
        record = open_document(cluster.data, ClusterRecord, path=self._paths.cluster)
        if record.cluster_id != self._cluster_id or not counter.data.isdigit():
            _log.error(
                "metadata no longer belongs to cluster %s; nothing is deleted", self._cluster_id
            )
            return None
        note = await self._metadata.find(self._paths.journal(self._instance))
        return _Present(
            LedgerId(int(counter.data)),
            max(counter.modified_us, note.modified_us if note is not None else 0),
        )

    async def _find(self, ledger: LedgerId) -> tuple[Stored | None, LedgerRecord | None]:
        path = self._paths.ledger(ledger)
        stored = await self._metadata.find(path)
        if stored is None:
            return None, None
        return stored, open_document(stored.data, LedgerRecord, path=path)

    async def _expire(self, stored: Stored, record: LedgerRecord, present: _Present) -> None:
        """Delete the record of a ledger that was allocated long ago and never activated.

        So is that of a staging ledger that is older than its writer allowed.
        """
        if record.expires_after_s is not None:
            age_us_max = int(record.expires_after_s * 1e6)
        elif record.state is LedgerState.ALLOCATED:
            age_us_max = self._allocated_us_max
        else:
            return
        if present.latest_us - stored.created_us <= age_us_max:
            return
        try:
            await self._metadata.delete(self._paths.ledger(record.ledger), stored.version)
        except (BadVersionError, NoNodeError):
            return  # It was activated just now, or another node deleted it first.
        if record.expires_after_s is not None:
            self.counts.staging_expired += 1
            _log.info("ledger %d: expired; it was staging", record.ledger)
            return
        self.counts.allocated_expired += 1
        _log.info("ledger %d: expired; it was allocated and never activated", record.ledger)
