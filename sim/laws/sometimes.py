"""What must happen in some histories: a world in which it never does proves nothing of it."""

from collections.abc import Iterable, Iterator

import attrs
import trio

from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from regions.storage.store import Store
from sim.fakes.metadata_tree import MetadataNode
from sim.laws.state.seen import Look
from sim.world.seams import CLUSTER

SOMETIMES = {
    "ledger-recovered": "a ledger is closed by another than its writer",
    "ensemble-changed": "a ledger has more than one fragment",
    "change-judged": "members replace others, and a worse choice would have been told",
    "node-in-doubt": "damage took records of a node",
    "damaged-twice": "a file whose damage was settled is damaged again",
    "entry-corrupt": "a node knows that an entry is damaged",
    "node-read-only": "a node's disk is nearly full",
    "file-retired": "compaction has removed a journal file",
    "ledger-deleted": "a node has deleted a ledger as garbage",
    "ledger-let-go": "a node has given up the entries of a ledger that others hold",
    "node-busy": "a node refuses a question because it has too many",
    "disk-replaced": "a node answers on the disk that replaced a lost one",
    "append-repeated": "a record that was in the log before is found out",
    "repair-queued": "a ledger stands in the repair queue",
    "truncated": "the front of a partition is cut off",
    "retention-trimmed": "retention cuts off more than anybody asked for",
    "gap-at-start": "a reader asks for what is trimmed, and is told so",
    "overtaken": "what a reader was to be given next is trimmed, and it is told so",
    "sealed": "the stream is sealed while it is used",
    "sealed-refused": "a writer finds that the stream is sealed",
    "followed-to-end": "a reader follows to the end of a sealed stream",
    "partitions-added": "the stream gets another partition while it is used",
    "answered-provisionally": "an append is answered when it is received",
    "provisional-lost": "such an answer is taken back",
    "writer-full": "a writer has no room for a record until others are answered",
    "repeat-unread": "what was answered comes again while it cannot be read",
    "other-bytes-refused": "a number that is in the log comes again with other bytes",
    "wish-refused": "a transaction id goes back, or an expected sequence is another's",
    "flushed": "records that nobody waited for are flushed",
    "opened-AtDlsn": "a reader begins at a DLSN",
    "opened-AtSequence": "a reader begins at a sequence",
    "opened-AtTime": "a reader begins at a time",
    "opened-AtTransaction": "a reader begins at a transaction id",
    "opened-LastRecords": "a reader begins some records before the end",
    "region-forbidden": "nothing new is placed in a region any more",
    "region-allowed": "something new is placed in it again",
    "placement-repaired": "a repair of placement moves a member of a fragment",
    "repair-interrupted": "a repair of placement is interrupted",
    "deleted": "a stream is deleted",
    "deleted-refused": "a writer of it hears so",
    "deleted-while-read": "a reader of it hears so, in the middle of a walk",
    "failed-writer-kept": "an application keeps the block of a writer open that has failed",
    "writer-forgotten": "a named writer is forgotten, and sends what is trimmed once more",
}
"""By name: what is meant."""

_STATISTICS_EVERY_S = 1.0
_REPAIRS = ClusterPaths(CLUSTER).repairs + "/"


@attrs.define
class Sometimes:
    """Collects what of it a world has seen."""

    seen: set[str] = attrs.field(factory=set)
    _before: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _looked_s: float = -_STATISTICS_EVERY_S

    def look(self, now: Look) -> None:
        """Look at the world as it is."""
        self.seen.update(self._of_ledgers(now), _of_world(now), now.history.happened)
        self._before = dict(now.ledgers)
        if trio.current_time() - self._looked_s >= _STATISTICS_EVERY_S:
            self._looked_s = trio.current_time()
            for stores in now.stores.values():
                for store in stores:
                    self.seen.update(_of_store(store))

    def _of_ledgers(self, now: Look) -> Iterator[str]:
        for ledger, record in now.ledgers.items():
            if len(record.fragments) > 1:
                yield "ensemble-changed"
            before = self._before.get(ledger)
            if before is not None and record.state is LedgerState.CLOSED:
                was_taken_over = (
                    before.state is LedgerState.OPEN and before.epoch < record.epoch
                )
                if before.state is LedgerState.IN_RECOVERY or was_taken_over:
                    yield "ledger-recovered"


def _of_world(now: Look) -> Iterator[str]:
    for host, core in now.world.cores.items():
        if now.world.nodes[host].disks_given_up:
            yield "disk-replaced"
        if core.service.counts.busy:
            yield "node-busy"
        if core.garbage.counts.ledgers_deleted:
            yield "ledger-deleted"
        if core.garbage.counts.ledgers_let_go:
            yield "ledger-let-go"
    if any(append.is_duplicate for append in now.told):
        yield "append-repeated"
    if any(path.startswith(_REPAIRS) and node.data for path, node in _nodes(now)):
        yield "repair-queued"


def _nodes(now: Look) -> Iterable[tuple[str, MetadataNode]]:
    return now.world.store.tree.nodes.items()


def _of_store(store: Store) -> Iterator[str]:
    statistics = store.statistics()
    if statistics.is_any_in_doubt:
        yield "node-in-doubt"
    if statistics.is_read_only:
        yield "node-read-only"
    if statistics.entries.corrupt_count:
        yield "entry-corrupt"
    if statistics.compaction.files_retired:
        yield "file-retired"
