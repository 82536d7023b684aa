"""Garbage collection: metadata is asked about each ledger of the node; what nobody needs goes.

Nothing is deleted on the word of a list, of a stale server or leader, or of silence: each
ledger's own record is read, and once more, for certain, before it goes. Nothing is deleted
either if metadata is not what it was: another cluster's, or older than the ledger, as after the
loss of its disks.
A deletion is a DELETE record in the journal, a ledger that is let go a FENCE that says so;
compaction gives the space back.

ALLOCATED ledgers that nobody activated expire a day after they were made. Both times are the
metadata store's own. What is known of its present is when it last changed something that is
read here anyway; so in a cluster where nothing happens nothing expires, and no clock is
compared with another.

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
    """What garbage collection has done since the start."""

    rounds: int = 0
    rounds_failed: int = 0
    candidates: int = 0
    """Ledgers that nobody needs, waiting for the end of their grace."""
    ledgers_deleted: int = 0
    ledgers_let_go: int = 0
    """Ledgers whose entries were given up here, as other nodes hold them."""
    allocated_expired: int = 0


@attrs.frozen
class _Present:
    """What metadata says of itself in a round."""

    ledger_next: LedgerId
    latest_us: int
    """Its clock has surely reached this."""


class GarbageCollector:
    """Looks at all ledgers of a node, round after round."""

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
        """Look now and then; never returns. While metadata is away nothing is deleted."""
        while True:
            await trio.sleep(self._interval_s)
            try:
                await self.look_at_all()
            except GeologError as error:
                self.counts.rounds_failed += 1
                _log.warning("garbage is not looked for: %s", error)

    async def look_at_all(self) -> None:
        """One round. Raises what metadata raises; what was deleted before that stays so."""
        # Before the counter is read: what is made meanwhile is not yet below it.
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
            _log.error("metadata is older than ledger %d: it is not deleted", ledger)
            return
        try:
            stored, record = await self._find(ledger)
        except DamagedBytesError as error:
            _log.error("ledger %d is not deleted: %s", ledger, error)
            return
        if stored is not None and record is not None:
            await self._expire(stored, record, present)
        if self._watch.on_look(ledger, record, now_s=trio.current_time()) is Disposal.KEEP:
            return
        again = await self._present(Freshness.CERTAIN)  # So what is read behind it is so too.
        if again is None or ledger >= again.ledger_next:
            return
        _, record = await self._find(ledger)
        # From here to the end nobody else has a turn.
        match self._watch.on_look(ledger, record, now_s=trio.current_time()):
            case Disposal.DELETE:
                self._delete(ledger)
                self._watch.on_deleted(ledger)
                self.counts.ledgers_deleted += 1
                _log.info("ledger %d is deleted: its record is gone", ledger)
            case Disposal.LET_GO if record is not None and self._let_go(ledger, record.epoch):
                self._watch.on_let_go(ledger)
                self.counts.ledgers_let_go += 1
                _log.info("ledger %d is let go: no fragment of it is here", ledger)

    async def _present(self, freshness: Freshness = Freshness.LATEST) -> _Present | None:
        """See whether metadata is still that of this cluster."""
        cluster = await self._metadata.find(self._paths.cluster, freshness=freshness)
        counter = await self._metadata.find(self._paths.ledger_next)
        if cluster is None or counter is None:
            return None
        record = open_document(cluster.data, ClusterRecord, path=self._paths.cluster)
        if record.cluster_id != self._cluster_id or not counter.data.isdigit():
            _log.error("metadata is not that of cluster %s any more", self._cluster_id)
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
        """Delete the record of a ledger that was made long ago and never activated."""
        if record.state is not LedgerState.ALLOCATED:
            return
        if present.latest_us - stored.created_us <= self._allocated_us_max:
            return
        try:
            await self._metadata.delete(self._paths.ledger(record.ledger), stored.version)
        except (BadVersionError, NoNodeError):
            return  # It was activated just now, or another node was as quick.
        self.counts.allocated_expired += 1
        _log.info("ledger %d was allocated and never activated: expired", record.ledger)
