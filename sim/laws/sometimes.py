"""Events that must happen in some histories: if one never does, its laws prove nothing."""

from collections.abc import Iterable, Iterator

import attrs
import trio

from geolog.client.log import Log
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from regions.proxy.held_partitions import HeldStatistics
from regions.storage.store import Store
from relay.protocol.outgoing import OutgoingChannel
from relay.server.relay import Relay
from sim.fakes.metadata_tree import MetadataNode
from sim.laws.state.law_24_demoted_are_asked import observed_replicas
from sim.laws.state.seen import Look
from sim.world.seams import CLUSTER

SOMETIMES = {
    "ledger-recovered": "a process other than its writer closes a ledger",
    "ensemble-changed": "a ledger has more than one fragment",
    "change-judged": "members are replaced, and a worse choice would break law 21",
    "node-in-doubt": "a node lost records to damage",
    "damaged-twice": "a file whose damage was settled is damaged again",
    "entry-corrupt": "a node knows that an entry is damaged",
    "node-read-only": "a node's disk is nearly full",
    "file-retired": "compaction removes a journal file",
    "ledger-deleted": "a node deletes a ledger as garbage",
    "ledger-let-go": "a node gives up the entries of a ledger that others hold",
    "node-busy": "a node refuses a request because it has too many",
    "node-spared": "a client cancels a request before the node has answered it",
    "replica-demoted": "a reader asks a replica after all others",
    "replica-forgiven": "a replica that was demoted answers in time",
    "hedge-won": "an extra request is answered before the first one",
    "loser-answered": "a replica answers a request that was given up",
    "hedge-refused": "there is no budget for an extra request",
    "disk-replaced": "a node answers on the disk that replaced a lost one",
    "entry-shared": "batches share an entry",
    "append-repeated": "a repeat is recognized as already in the log",
    "repair-queued": "a ledger is in the repair queue",
    "truncated": "the front of a partition is cut off",
    "retention-trimmed": "retention cuts off more than any truncation",
    "gap-at-start": "a reader starts at trimmed records, and gets a gap",
    "overtaken": "a reader's next records are trimmed, and it gets a gap",
    "sealed": "the stream is sealed while it is used",
    "sealed-refused": "a writer finds that the stream is sealed",
    "followed-to-end": "a reader follows to the end of a sealed stream",
    "partitions-added": "the stream gets another partition while it is used",
    "answered-provisionally": "an append is answered once received",
    "provisional-lost": "an append that was answered once received is lost",
    "writer-full": "a writer has no room for a record until others are answered",
    "repeat-unread": "an acknowledged record is repeated while it cannot be read",
    "other-bytes-refused": "a number that is in the log is refused with other bytes",
    "wish-refused": "a transaction id that goes back, or a wrong expected sequence, is refused",
    "session-succeeded": "a session opens after another of the same writer, which is alive",
    "owned-apart": "a process owns one partition, and serves sessions elsewhere",
    "handed-over": "an owner gives a partition to another process",
    "hand-over-left": "every process that was to get a partition is gone",
    "proxy-redirected": "a proxy sends a client to another one",
    "proxy-taken-early": "a proxy takes a partition from one that looks dead",
    "proxy-handed-over": "a proxy gives a partition to another one",
    "relay-succeeded": "another relay coordinates its region",
    "home-moved": "the home of the stream moves to another region, by plan",
    "failed-over": "the stream fails over to another region",
    "failed-over-whole": "a failover reads the log at the old home to its end",
    "failed-over-fetched": "the new home is completed from the mirror of another region",
    "answered-in-lease": "a home that stops when it is cut off answers inside its lease",
    "lease-changed": "an operator changes the lease of such a home just before a failover",
    "stopped-alone": "such a home is cut off, and takes no appends or answers none",
    "left-behind": "an acknowledged record is kept aside: a failover left it behind",
    "reader-diverged": "a reader was ahead of the new home, and gets a gap",
    "version-refused": "a bridge between relays of two versions is refused",
    "relay-replayed": "a relay sends what a target has missed",
    "relay-sent-again": "a relay sends entries again that it sent on an earlier bridge",
    "relay-fetched": "a relay reads the log for a target that is behind its buffer",
    "multicast-first": "a relay has an entry from its owner before it has read it",
    "mirror-continued": "another owner of a mirror goes on in the middle of a segment",
    "mirror-trimmed": "a mirror is trimmed with its home",
    "mirror-evicted": "a mirror goes on behind a gap, because its home kept too much for it",
    "mirror-begun-again": "an operator has the home send a mirror everything again",
    "reader-begun-again": "a reader of such a mirror is told to open again",
    "target-wiped": "a mirror whose region lost all its disks begins again",
    "appended-local-only": "a record is appended that must not leave its region",
    "reader-abroad": "a reader in another region gets a gap of local-only records",
    "loss-held": "an append is refused because a mirror is too far behind",
    "mirror-sealed": "a mirror is sealed with its home",
    "mirror-read": "a reader reads records of a mirror",
    "unmet-refused": "a record is refused, with others of its session on the way behind",
    "flushed": "posted records are flushed",
    "opened-AtDlsn": "a reader begins at a DLSN",
    "opened-AtSequence": "a reader begins at a sequence",
    "opened-AtTime": "a reader begins at a time",
    "opened-AtTransaction": "a reader begins at a transaction id",
    "opened-LastRecords": "a reader begins some records before the end",
    "region-forbidden": "a region is forbidden for new data",
    "region-allowed": "a forbidden region is allowed again",
    "placement-repaired": "a placement repair moves a member of a fragment",
    "repair-interrupted": "a placement repair is interrupted",
    "cursor-held": "a reader finds that another has the cursor",
    "cursor-lost": "a reader loses its cursor, or a partition of it, to another",
    "cursor-moved": "a partition of a cursor goes from one reader to another",
    "cursor-sought": "the position of a cursor is set back while it is read",
    "set-pause": "a target of the relayed stream is paused",
    "set-resume": "its paused targets go on",
    "set-remove": "one of its targets is removed, and its mirrors deleted",
    "set-add": "all regions are targets again",
    "set-hold": "it is set to keep all for its mirrors",
    "set-evict": "it is set to let mirrors go on behind a gap",
    "set-bound": "it gets a bound on what the loss of its home may cost",
    "set-unbound": "it loses this bound",
    "left-local-only": "the last read lacks local-only records of an earlier home",
    "deleted": "a stream is deleted",
    "deleted-refused": "a writer learns that its stream is deleted",
    "deleted-while-read": "a reader learns so in the middle of a walk",
    "failed-writer-kept": "an application keeps the block of a failed writer open",
    "writer-forgotten": "a forgotten named writer repeats a trimmed record",
}
"""Every name, with its meaning."""

_STATISTICS_EVERY_S = 1.0
_REPAIRS = ClusterPaths(CLUSTER).repairs + "/"


@attrs.define
class Sometimes:
    """Collects the names that a world has seen."""

    seen: set[str] = attrs.field(factory=set)
    _before: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _read_by: dict[int, str] = attrs.field(factory=dict)
    _looked_s: float = -_STATISTICS_EVERY_S

    def look(self, now: Look) -> None:
        """Look at the world now."""
        self.seen.update(self._of_ledgers(now), _of_world(now), now.history.happened)
        self.seen.update(self._of_cursor(now))
        self._before = dict(now.ledgers)
        if trio.current_time() - self._looked_s >= _STATISTICS_EVERY_S:
            self._looked_s = trio.current_time()
            for stores in now.stores.values():
                for store in stores:
                    self.seen.update(_of_store(store))

    def _of_cursor(self, now: Look) -> Iterator[str]:
        for partition, standing in (now.cursor.standings if now.cursor else {}).items():
            reader = standing.record.reader
            if reader and self._read_by.setdefault(partition, reader) != reader:
                self._read_by[partition] = reader
                yield "cursor-moved"

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
        if core.service.counts.cancelled:
            yield "node-spared"
        if core.garbage.counts.ledgers_deleted:
            yield "ledger-deleted"
        if core.garbage.counts.ledgers_let_go:
            yield "ledger-let-go"
    for observed in observed_replicas(now.world):
        if observed.is_marked:
            yield "replica-demoted"
        elif observed.demotions_count:
            yield "replica-forgiven"
    for log in now.world.logs.values():
        yield from _of_reads(log)
    for proxy in now.world.proxies.values():
        if proxy.held is not None:
            yield from _of_proxy(proxy.held.statistics())
        if any(endpoint.redirects_count for endpoint in proxy.endpoints):
            yield "proxy-redirected"
    for place in now.world.relays.values():
        if place.met.refused_count:
            yield "version-refused"
        for relay in place.relays[-1:]:
            yield from _of_relay(relay)
    yield from _of_mirrors(now)
    if any(append.is_duplicate for append in now.told):
        yield "append-repeated"
    if any(path.startswith(_REPAIRS) and node.data for path, node in _nodes(now)):
        yield "repair-queued"


def _of_relay(relay: Relay) -> Iterator[str]:
    ends, feeds = relay.ends, relay.feeds
    if ends is not None and ends.relay_epoch > 1:
        yield "relay-succeeded"
    for bridge in () if ends is None else ends.served:
        if any(one.replayed_count for one in bridge.progress()):
            yield "relay-replayed"
        if any(_sends_again(one.core) for one in bridge._channels.values()):  # noqa: SLF001
            yield "relay-sent-again"
        if bridge.fetched_count:
            yield "relay-fetched"
    if feeds is not None and any(one.multicast_count for one in feeds.by_name.values()):
        yield "multicast-first"


def _sends_again(channel: OutgoingChannel) -> bool:
    """Whether its relay has sent more on an earlier bridge than the target had when asked."""
    handed = channel._handed  # noqa: SLF001 - a law looks at the real thing.
    sent = None if handed is None else handed.position
    return sent is not None and channel.told is not None and channel.told < sent


def _of_mirrors(now: Look) -> Iterator[str]:
    for mirror, rows in now.mirrors.items():
        if any(row.first_entry > 0 for row in rows.values()):
            yield "mirror-continued"
        if now.mirror_trims[mirror].first_sequence > 0:
            yield "mirror-trimmed"
        if now.mirror_owners[mirror].is_sealed:
            yield "mirror-sealed"


def _of_reads(log: Log) -> Iterator[str]:
    found = log.read_statistics()
    if found.won_count:
        yield "hedge-won"
    if found.refused_count:
        yield "hedge-refused"
    links = log.access.replicas.pool.links()
    if any(link.connection is not None and link.connection.unwanted_count for link in links):
        yield "loser-answered"


def _of_proxy(statistics: HeldStatistics) -> Iterator[str]:
    if statistics.taken_early_count:
        yield "proxy-taken-early"
    if statistics.handed_over_count:
        yield "proxy-handed-over"


def _nodes(now: Look) -> Iterable[tuple[str, MetadataNode]]:
    return now.world.store.tree.nodes.items()


def _of_store(store: Store) -> Iterator[str]:
    if store.ledgers.is_any_in_doubt:
        yield "node-in-doubt"
    if store.is_read_only:
        yield "node-read-only"
    if store.entries.statistics().corrupt_count:
        yield "entry-corrupt"
    if store.compaction.counts.files_retired:
        yield "file-retired"
