"""Paths of everything of a cluster in the metadata tree: the only place that spells them.

Ledgers and segments are in buckets, because a list of children is one ZooKeeper answer and must
stay below 1 MiB.
"""

import re

import attrs

from geolog.protocol.cursor_state import CursorName
from geolog.protocol.ids import InstanceId, LedgerId, ProcessId
from geolog.protocol.stream_state import PartitionName, StreamName
from topology.errors import InvalidArgumentError

BUCKET_COUNT_MAX = 1000
"""Maximum number of ledgers, or segments, in one bucket."""

PRESENCE_FOLDER_DIGITS = 3
"""Processes with the same first digits share a folder: there are at most 4,096 folders.

A folder counts how often its processes came and went, which readers use to tell whether one of
them was back in between (PROTOCOL R5). So few processes should share one.
"""

CLUSTERS_PARENT = "/geolog"
"""Root of everything of geolog, with a node for each cluster."""

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_NODE_ID = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:\[\]-]{0,254}")
"""Often an address."""


def _check_name(_: object, __: object, name: str) -> None:
    if not _CLUSTER_NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{name!r} is not a valid cluster name: use 1 to 128 letters, digits, '.', '_', "
            "'-', beginning with a letter or digit"
        )


@attrs.frozen
class ClusterPaths:
    """Paths of one cluster, below `/geolog/CLUSTER`."""

    cluster_name: str = attrs.field(validator=_check_name)

    @property
    def root(self) -> str:
        """The cluster's own node."""
        return f"{CLUSTERS_PARENT}/{self.cluster_name}"

    @property
    def cluster(self) -> str:
        """The cluster's identity."""
        return f"{self.root}/cluster"

    @property
    def nodes_known(self) -> str:
        """Parent of the nodes that ever joined, by node id."""
        return f"{self.root}/nodes/known"

    @property
    def nodes_live(self) -> str:
        """Parent of the nodes that are up, by instance id; ephemeral."""
        return f"{self.root}/nodes/live"

    def node_known(self, node_id: str) -> str:
        """The durable record of one node."""
        if not _NODE_ID.fullmatch(node_id):
            raise InvalidArgumentError(
                f"{node_id!r} is not a valid node id: use 1 to 255 letters, digits, '._:[]-'"
            )
        return f"{self.nodes_known}/{node_id}"

    def node_live(self, instance: InstanceId) -> str:
        """The ephemeral record of one node."""
        return f"{self.nodes_live}/{instance}"

    @property
    def nodes_replaced(self) -> str:
        """Parent of the instances that never come back, by instance id."""
        return f"{self.root}/nodes/replaced"

    def node_replaced(self, instance: InstanceId) -> str:
        """The record of one instance that never comes back."""
        return f"{self.nodes_replaced}/{instance}"

    @property
    def proxies_live(self) -> str:
        """Parent of the write proxies that are up, by proxy id; ephemeral."""
        return f"{self.root}/proxies"

    def proxy_live(self, proxy_id: str) -> str:
        """The ephemeral record of one write proxy."""
        if not _NODE_ID.fullmatch(proxy_id):
            raise InvalidArgumentError(
                f"{proxy_id!r} is not a valid proxy id: use 1 to 255 letters, digits, '._:[]-'"
            )
        return f"{self.proxies_live}/{proxy_id}"

    @property
    def relays(self) -> str:
        """Parent of the relay groups, by region."""
        return f"{self.root}/relays"

    def relay_view(self, region: str) -> str:
        """The record of the coordinator of one region's relay group."""
        return f"{self._relay_group(region)}/view"

    def relay_members(self, region: str) -> str:
        """Parent of the members of one region's relay group that are up; ephemeral."""
        return f"{self._relay_group(region)}/members"

    def _relay_group(self, region: str) -> str:
        if not _NODE_ID.fullmatch(region):
            raise InvalidArgumentError(
                f"{region!r} is not a valid region: use 1 to 255 letters, digits, '._:[]-'"
            )
        return f"{self.relays}/{region}"

    @property
    def placement_switches(self) -> str:
        """Current restrictions that operators put on placement."""
        return f"{self.root}/placement"

    @property
    def journals(self) -> str:
        """Parent of the notes on how far each node's journal reached."""
        return f"{self.root}/nodes/journals"

    def journal(self, instance: InstanceId) -> str:
        """The note on one node's journal."""
        return f"{self.journals}/{instance}"

    @property
    def ledger_next(self) -> str:
        """The counter that ledger ids come from."""
        return f"{self.root}/ledger_next"

    @property
    def ledgers(self) -> str:
        """Parent of the buckets of ledgers."""
        return f"{self.root}/ledgers"

    def ledger_bucket(self, ledger: LedgerId) -> str:
        """The bucket of one ledger."""
        return f"{self.ledgers}/{ledger // BUCKET_COUNT_MAX:012d}"

    def ledger(self, ledger: LedgerId) -> str:
        """The record of one ledger."""
        return f"{self.ledger_bucket(ledger)}/{ledger:012d}"

    @property
    def repairs(self) -> str:
        """Parent of the buckets of ledgers that a copier should inspect."""
        return f"{self.root}/repair"

    def repair_bucket(self, ledger: LedgerId) -> str:
        """The bucket of one ledger in the repair queue."""
        return f"{self.repairs}/{ledger // BUCKET_COUNT_MAX:012d}"

    def repair(self, ledger: LedgerId) -> str:
        """The document of one ledger in the repair queue."""
        return f"{self.repair_bucket(ledger)}/{ledger:012d}"

    @property
    def sinks(self) -> str:
        """Parent of the records of sinks."""
        return f"{self.root}/sinks"

    def sink(self, sink_id: str) -> str:
        """The record of one sink: its latest batch."""
        return f"{self.sinks}/{sink_id}"

    def sink_ledgers(self, sink_id: str) -> str:
        """Parent of the list of one sink's staging ledgers."""
        return f"{self.sink(sink_id)}/staged"

    def sink_line(self, sink_id: str, name: str) -> str:
        """The line of one staging ledger in the list of its sink."""
        return f"{self.sink_ledgers(sink_id)}/{name}"

    @property
    def presences(self) -> str:
        """Parent of the folders of the nodes that show which processes are alive."""
        return f"{self.root}/processes"

    def presence(self, process: ProcessId) -> str:
        """The ephemeral node that shows that one process is alive."""
        return f"{self.presences}/{process[:PRESENCE_FOLDER_DIGITS]}/{process}"

    @property
    def offers(self) -> str:
        """Parent of the offers of processes that take partitions over from others."""
        return f"{self.root}/offers"

    def offer(self, offer_id: str) -> str:
        """The ephemeral record of one offer."""
        return f"{self.offers}/{offer_id}"

    @property
    def early_takeovers(self) -> str:
        """Parent of the permits of proxies to take partitions before a session has ended."""
        return f"{self.root}/early-takeovers"

    def early_takeover(self, name: PartitionName) -> str:
        """The ephemeral permit for one partition."""
        stream = f"{name.stream.namespace}:{name.stream.name}"
        place = f":{name.region}" if name.region else ""
        return f"{self.early_takeovers}/{stream}:{name.number}:{name.life}{place}"

    @property
    def streams(self) -> str:
        """Parent of the namespaces."""
        return f"{self.root}/streams"

    def namespace(self, namespace: str) -> str:
        """Parent of the streams of one namespace."""
        return f"{self.streams}/{namespace}"

    def stream(self, name: StreamName) -> str:
        """The record of one stream."""
        return f"{self.streams}/{name.namespace}/{name.name}"

    def stream_life(self, name: StreamName, life: str) -> str:
        """Parent of everything of a stream, for one life of its name."""
        return f"{self.stream(name)}/life-{life}"

    def home(self, name: StreamName, life: str) -> str:
        """The record of where a `regional` stream is at home."""
        return f"{self.stream_life(name, life)}/home"

    def forks_apart(self, name: StreamName, life: str, home_epoch: int) -> str:
        """The forks up to this home epoch that are not in the home record any more."""
        return f"{self.home(name, life)}/{home_epoch:06d}"

    def failovers(self, name: StreamName, life: str) -> str:
        """Parent of the records of a stream's failovers."""
        return f"{self.stream_life(name, life)}/failovers"

    def failover(self, name: StreamName, life: str, home_epoch: int) -> str:
        """The record of the failover that began this home epoch."""
        return f"{self.failovers(name, life)}/{home_epoch:06d}"

    def cursors(self, name: StreamName, life: str) -> str:
        """Parent of the cursors of one stream."""
        return f"{self.stream_life(name, life)}/cursors"

    def cursor(self, name: CursorName) -> str:
        """The record of one cursor."""
        return f"{self.cursors(name.stream, name.life)}/{name.name}"

    def cursor_readers(self, name: CursorName) -> str:
        """Parent of the readers of one cursor; ephemeral."""
        return f"{self.cursor(name)}/readers"

    def cursor_reader(self, name: CursorName, reader: str) -> str:
        """The ephemeral record of one reader of a cursor."""
        return f"{self.cursor_readers(name)}/{reader}"

    def cursor_partitions(self, name: CursorName) -> str:
        """Parent of a cursor's positions."""
        return f"{self.cursor(name)}/partitions"

    def cursor_partition(self, name: CursorName, number: int) -> str:
        """The record of a cursor's position in one partition."""
        return f"{self.cursor_partitions(name)}/{number:06d}"

    def partition(self, name: PartitionName) -> str:
        """Parent of everything of one partition; a recreated stream gets another.

        Those of its logs in other regions than its first home are next to it, with the same
        children, and so are kept rests.
        """
        kind = f"mirror-{name.region}" if name.region else "partition"
        rest = f"rest-{name.rest}-" if name.rest else ""
        return f"{self.stream(name.stream)}/{rest}{kind}-{name.number}-{name.life}"

    def owner(self, name: PartitionName) -> str:
        """The record of a partition's owner."""
        return f"{self.partition(name)}/owner"

    def trim(self, name: PartitionName) -> str:
        """The record of where a partition begins."""
        return f"{self.partition(name)}/trim"

    def segments(self, name: PartitionName) -> str:
        """Parent of the buckets of a partition's list of segments."""
        return f"{self.partition(name)}/segments"

    def segment_bucket(self, name: PartitionName, row: int) -> str:
        """The bucket of one row of the list; at home, of one segment."""
        return f"{self.segments(name)}/{row // BUCKET_COUNT_MAX:012d}"

    def segment(self, name: PartitionName, row: int) -> str:
        """The record of one row of the list; at home, of one segment."""
        return f"{self.segment_bucket(name, row)}/{row:012d}"
