"""The log as an application sees it: create, write, read, inspect and verify streams.

Rules: PROTOCOL H10.
"""

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.cluster_view import judge_cluster, list_nodes
from geolog.admin.extents import extents_of
from geolog.admin.mirror_comparison import compare_row
from geolog.admin.placement.placement_health import LEDGERS_JUDGED_MAX
from geolog.admin.verification import StreamVerifier, VerifyReport, in_groups
from geolog.background import all_of, both
from geolog.catalog.descriptions import (
    HealthReport,
    NodeDescription,
    SegmentDescription,
    StreamDescription,
)
from geolog.catalog.home_moves import check_same_home
from geolog.catalog.namespace_defaults import NamespaceCatalog, NamespaceDefaults
from geolog.catalog.partition_config import PartitionConfig
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.segment_list import SegmentList
from geolog.catalog.stream_catalog import StreamCatalog, StreamExistsError
from geolog.catalog.stream_plan import StreamPlanner
from geolog.catalog.stream_settings import (
    SEGMENT_BYTES,
    StreamChanges,
    StreamSettings,
    check_relay,
    check_same,
    check_settings,
)
from geolog.catalog.stream_view import StreamView
from geolog.client.arguments import checked
from geolog.client.cursors.cursors import CursorDescription, Cursors
from geolog.client.cursors.extent import found_extent
from geolog.client.hedging import hedge_policy
from geolog.client.proxies.proxies import Proxies
from geolog.client.reading.bounds import (
    EARLIEST,
    LATEST,
    AtDlsn,
    AtSequence,
    Bound,
    check_order,
)
from geolog.client.reading.pattern_reads import PatternReads
from geolog.client.reading.place_search import PlaceSearch
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, GapReason
from geolog.client.reading.scan import PartitionScan, ReaderConfig
from geolog.client.reading.stream_reader import (
    check_count,
    check_one_partition,
    check_within,
    open_stream_reader,
)
from geolog.client.reading.subscribing import SubscriptionConfig
from geolog.client.relays.divergence_export import export_into
from geolog.client.relays.failover_plan import FailoverPlan
from geolog.client.relays.failovers import Divergence, Failovers, SilentHomes, insist
from geolog.client.relays.local_only_count import local_only_in
from geolog.client.relays.mirror_begins import (
    check_begin_of_more,
    check_begin_of_new,
    has_start,
    segment_begin,
)
from geolog.client.relays.relay_links import RelayLinks
from geolog.client.relays.stream_home import StreamHome, home_of
from geolog.client.relays.switch_plan import SwitchOverPlan, switch_over_plan
from geolog.client.spooling.spool_inlet import SPOOL_BYTES, SpoolConfig
from geolog.client.spooling.spooled_writer import spooled_writer
from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.proxied_writer import WrittenStream, open_proxied_writer
from geolog.client.writing.stream_writer import open_stream_writer
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import AckLevel
from geolog.ledger.ledger_metadata import LedgerMetadata, NoSuchLedgerError
from geolog.ledger.nodes.node_pool import PoolConfig
from geolog.ledger.reading.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.reading.ledger_tail import LedgerTails, TailConfig
from geolog.ledger.recovery.ledger_recovery import RecoveryConfig
from geolog.ledger.recovery.recovery_progress import RecoveryProgress
from geolog.ledger.repair_reporter import RepairReporter
from geolog.ledger.replicas.hedging import ReadStatistics
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.reachability import AskReach
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import BadVersionError, Freshness, Metadata
from geolog.metadata.server_ticks import DEFAULT_TICK_S, AskTick, noted_tick
from geolog.partition.home_failover import FailoverConfig, FailoverReport
from geolog.partition.home_lease import LeaseTerms
from geolog.partition.home_switch import HomeSwitch, SwitchConfig, SwitchOverReport
from geolog.partition.lease_renewals import LeaseRenewals
from geolog.partition.local_only_rows import local_only_of_home
from geolog.partition.mirror_resync import MirrorResync
from geolog.partition.partition_opener import PartitionOpener
from geolog.partition.read_back import BatchReadBack
from geolog.partition.relay_multicast import MulticastConfig, RelayMulticast
from geolog.partition.shown_owners import ShownOwners
from geolog.partition.stream_upkeep import StreamUpkeep
from geolog.partition.tail import TailFinder
from geolog.partition.takeover import Takeover
from geolog.protocol.failover_record import FailoverRecord
from geolog.protocol.hedge_policy import HedgePolicy
from geolog.protocol.ids import Position
from geolog.protocol.ids import Sequence as LogSequence
from geolog.protocol.isolation_lease import LeaseClocks, lease_length_s
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.read_end import PartitionEnd
from geolog.protocol.read_ranges import SequenceSpan
from geolog.protocol.relay_report import RelayedStreamReport, RelayEvent
from geolog.protocol.stream_pattern import is_pattern
from geolog.protocol.stream_state import (
    SEGMENT_AGE_S,
    WRITER_RETENTION_S,
    PartitionName,
    StreamName,
    StreamRecord,
    parse_target,
)
from geolog.protocol.trigger_plan import PartitionExtent
from topology.errors import (
    ClosedError,
    ConflictError,
    InvalidArgumentError,
    NoSuchStreamError,
    NotEnoughNodesError,
    SealedError,
    TooLargeError,
    UnavailableError,
)

_METADATA_BACK_S = 10.0
"""How long a failover waits for metadata to answer: one of its servers may be lost, too."""

_ROWS_COMPARED_AT_ONCE = 8
"""Rows of a mirror; a few MiB of each are in memory."""

_SPANS_AT_ONCE_MAX = 16
"""Partitions whose span is looked for at a time."""

P = ParamSpec("P")
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class LogConfig:
    """All bounds of a client, by part."""

    pool: PoolConfig = attrs.field(factory=PoolConfig)
    """Connections to storage nodes."""

    partition: PartitionConfig = attrs.field(factory=PartitionConfig)
    """Writing a partition as its owner."""

    multicast: MulticastConfig = attrs.field(factory=MulticastConfig)
    """Sending what it appends to relayed streams to the relays of its region."""

    recovery: RecoveryConfig = attrs.field(factory=RecoveryConfig)
    """Closing ledgers whose writers are gone."""

    reader: ReaderConfig = attrs.field(factory=ReaderConfig)
    """Reading streams."""

    subscription: SubscriptionConfig = attrs.field(factory=SubscriptionConfig)
    """Reading all streams of a pattern."""

    ledger_read: LedgerReadConfig = attrs.field(factory=LedgerReadConfig)
    """Reading entries from replicas."""

    tail: TailConfig = attrs.field(factory=TailConfig)
    """Following ledgers."""


def _public(
    method: Callable[Concatenate["Log", P], T],
) -> Callable[Concatenate["Log", P], T]:
    """Make a method refuse wrong types, and calls outside of the block."""
    checked_method = checked(method)

    @wraps(method)
    def call(self: "Log", /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.check_open()
        return checked_method(self, *args, **kwargs)

    return call


class Log:
    """A connected cluster. `geolog.connect` opens it."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        replicas: Replicas,
        repairs: RepairReporter,
        owners: ShownOwners,
        cluster: str,
        region: str | None,
        who: str,
        rng: random.Random,
        now_us: Callable[[], int],
        config: LogConfig,
        ask_reach: AskReach | None,
        ask_tick: AskTick | None = None,
        metadata_regions: tuple[str, ...] | None = None,
        lease_clocks: Callable[[], LeaseClocks],
        proxies: Proxies,
        multicast: RelayMulticast | None = None,
        links: Callable[[StreamCatalog], RelayLinks],
    ) -> None:
        self.cluster = cluster
        self._multicast = multicast
        self._proxies = proxies
        self.region = region
        self._metadata = metadata
        self._replicas = replicas
        self._who = who
        self._rng = rng
        self._now_us = now_us
        self._config = config
        self._ask_reach = ask_reach
        self._ask_tick = ask_tick
        self._ledgers = LedgerMetadata(metadata, ClusterPaths(cluster), repairs)
        self._catalog = StreamCatalog(metadata, ClusterPaths(cluster))
        self._namespaces = NamespaceCatalog(metadata, ClusterPaths(cluster))
        self._partitions = PartitionMetadata(metadata, ClusterPaths(cluster), self._ledgers)
        self._reader = LedgerReader(
            replicas,
            rng=rng,
            config=config.ledger_read,
            record_now=self._ledgers.record_certain,
            report_damaged=partial(repairs.report_nowait, why=RepairReason.DAMAGED),
        )
        self._tails = LedgerTails(self._reader, config.tail)
        self._tail = TailFinder(
            partitions=self._partitions,
            ledgers=self._ledgers,
            reader=self._reader,
            replicas=replicas,
            rng=rng,
            recovery=config.recovery,
        )
        self._takeover = Takeover(
            partitions=self._partitions,
            owners=owners,
            ledgers=self._ledgers,
            replicas=replicas,
            region=region,
            rng=rng,
            recovery=config.recovery,
            now_us=now_us,
            lease_terms=LeaseTerms(
                metadata=metadata,
                renewals=LeaseRenewals(metadata, self._partitions.homes, owners),
                clocks=lease_clocks,
            ),
        )
        self._upkeep = StreamUpkeep(
            catalog=self._catalog,
            partitions=self._partitions,
            takeover=self._takeover,
            now_us=now_us,
        )
        self._planner = StreamPlanner(
            metadata=metadata,
            cluster=cluster,
            pool=replicas.pool,
            region=region,
            rng=rng,
            metadata_regions=metadata_regions,
        )
        self._view = StreamView(
            self._catalog, self._partitions, self._ledgers, replicas.pool.nodes.own_policies
        )
        self._cursors = Cursors(
            metadata=metadata,
            paths=ClusterPaths(cluster),
            streams=self._catalog,
            scan=self._scan,
            sequence_at=self._sequence_at,
            who=who,
            rng=rng,
            now_us=now_us,
            config=config.reader,
        )

        self.links = links(self._catalog)
        self._silent_homes = SilentHomes()
        """Reports of relays."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Log(cluster {self.cluster!r}, region {self.region!r})"

    def check_open(self) -> None:
        """ClosedError outside of the block."""
        if self._is_closed:
            raise ClosedError("the log is closed: use it within the block of connect")

    def close(self) -> None:
        """Refuse all further calls: the block is over."""
        self._is_closed = True

    @property
    def recovery_progress(self) -> RecoveryProgress:
        """Progress of the recoveries that opening a writer waits for."""
        return self._takeover.progress

    def read_statistics(self) -> ReadStatistics:
        """Questions to replicas so far, by all readers of the log, and how they were hedged."""
        return self._replicas.read_statistics()

    @property
    def partition_opener(self) -> PartitionOpener:
        """Opens partitions with this process as their owner."""
        return PartitionOpener(
            who=self._who,
            upkeep=self._upkeep,
            read_back=BatchReadBack(self._partitions, self._ledgers, self._reader).read,
            config=self._config.partition,
            rng=self._rng,
            multicast=self._multicast,
        )

    @property
    def scan_of(self) -> Callable[[StreamRecord, PartitionName], PartitionScan]:
        """Gives a view of one partition's log, for those that read whole entries."""
        return self._scan

    @property
    def access(self) -> ClusterAccess:
        """Access for operators: to the cluster's nodes and ledgers."""
        return ClusterAccess(
            cluster=self.cluster,
            region=self.region,
            metadata=self._metadata,
            replicas=self._replicas,
            ledgers=self._ledgers,
            partitions=self._partitions,
            reader=self._reader,
            recovery=self._config.recovery,
            rng=self._rng,
            now_us=self._now_us,
        )

    @_public
    async def create_stream(
        self,
        name: str,
        *,
        survive: str | None = None,
        ensemble_size: int | None = None,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        min_regions: int | None = None,
        durability: str = "regions",
        policy: str | None = None,
        mode: str | None = None,
        home: str | None = None,
        relay_to: Sequence[str] | None = None,
        relay_from: Bound = EARLIEST,
        relay_evict_bytes: int | None = None,
        rpo_max_s: float | None = None,
        rpo_max_bytes: int | None = None,
        rpo_targets: str | Sequence[str] = "all",
        on_isolation: Literal["continue", "stop"] = "continue",
        partitions: int = 1,
        segment_bytes: int = SEGMENT_BYTES,
        segment_age_s: float = SEGMENT_AGE_S,
        retention_s: float | None = None,
        retention_bytes: int | None = None,
        writer_retention_s: float = WRITER_RETENTION_S,
        if_not_exists: bool = False,
    ) -> StreamDescription:
        """Create a stream. Give either `survive` or quorum sizes.

        survive: the loss that the stream must survive, e.g. "1 region".
        ensemble_size, write_quorum, ack_quorum, min_regions: sizes left out are chosen so that
        the stream survives losing any one region. If no sizes do, `survives_region` of the
        answer is False and `survives_region_why_not` says why.
        durability: "regions" waits for `min_regions` as well, "count" for `ack_quorum` alone.
        policy: default, local_node, rack_aware, region_aware (the default without `survive`),
        zone_aware, or one of another package. `explanation` of the answer says what was chosen,
        why, and at what cost.
        mode: "global" is durable across regions; "regional", in its home region alone.
        home: the region of a "regional" stream; this client's, if left out.
        relay_to: regions that mirror a "regional" stream, each with the same quorums. The
        namespace has defaults for these three.
        relay_from: where mirrors begin; a new stream has but one place.
        relay_evict_bytes: trimmed bytes of each partition to keep for mirrors that lack them;
        a mirror that lacks more goes on behind a gap. None keeps all.
        rpo_max_s, rpo_max_bytes: refuse appends (OverCapacityError) while mirrors lack records
        older than this, or more than this of a partition; give one of the two, or none.
        rpo_targets: the mirrors that count: "all", "any" one of them, or names of regions.
        on_isolation: whether the home of a regional stream goes on answering appends while it
        is cut off from metadata. With "stop" it answers only inside a lease of two thirds of
        this client's session time-out, or less where ZooKeeper's tick is long, and a failover
        waits until that is over.
        partitions: number of partitions, each a log with its own order.
        segment_bytes, segment_age_s: roll to a new segment at this size or age.
        retention_s, retention_bytes: each partition keeps at least this much; None keeps all.
        writer_retention_s: remember an idle named writer this long.
        if_not_exists: succeed if the stream already exists with these settings.

        StreamExistsError, InvalidArgumentError; NotEnoughNodesError if no ensemble of the
        cluster's nodes can hold the quorums.
        """
        stream = StreamName.parse(name)
        settings_of = partial(
            StreamSettings,
            survive=survive,
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            min_regions=min_regions,
            durability=durability,
            policy=policy,
            partitions=partitions,
            segment_bytes=segment_bytes,
            segment_age_s=segment_age_s,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            writer_retention_s=writer_retention_s,
            relay_evict_bytes=relay_evict_bytes,
            rpo_max_s=rpo_max_s,
            rpo_max_bytes=rpo_max_bytes,
            rpo_targets=rpo_targets,
            isolation_lease_s=await self._lease_length_s(on_isolation),
        )
        freshness = Freshness.NEARBY
        while True:
            defaults, version = await self._namespaces.find(stream.namespace, freshness)
            filled = defaults.fill(mode, home, relay_to)
            check_begin_of_new(relay_from, filled[-1])
            settings = settings_of(mode=filled[0], home=filled[1], relay_to=filled[2])
            plan = await self._planner.plan(settings)
            now_us = self._now_us()
            record = plan.record(
                stream, settings, life=self._catalog.new_life(now_us=now_us), created_us=now_us
            )
            check_settings(record)
            try:
                await self._catalog.create(record, namespace_version=version)
                found = self._view.describe_new(record)
            except BadVersionError:
                # The nearby server lagged, or the defaults of the namespace have just changed.
                freshness = Freshness.LATEST
                continue
            except StreamExistsError:
                if not if_not_exists:
                    raise
                check_same(await self._catalog.read_latest(stream), record)
                found = await self.describe_stream(name)
            break
        return attrs.evolve(
            found,
            explanation=list(plan.explanation),
            survives_region=not plan.region_loss_why_not,
            survives_region_why_not=plan.region_loss_why_not,
        )

    @_public
    async def namespace_defaults(self, namespace: str) -> NamespaceDefaults:
        """The mode, home and targets of streams whose creator does not say."""
        return await self._namespaces.read(namespace)

    @_public
    async def set_namespace_defaults(
        self,
        namespace: str,
        *,
        mode: str = "global",
        home: str | None = None,
        relay_to: Sequence[str] = (),
    ) -> NamespaceDefaults:
        """Set the mode, home and targets of streams that are made in the namespace later.

        Streams that exist stay as they are. A stream whose home is one of the targets is
        relayed to the others. InvalidArgumentError.
        """
        defaults = NamespaceDefaults(mode=mode, home=home, relay_to=relay_to)
        if defaults.home is not None:
            await self._planner.check_regions(defaults.home, defaults.relay_to)
        await self._namespaces.write(namespace, defaults)
        return defaults

    @_public
    async def update_stream(
        self,
        name: str,
        *,
        partitions: int | None = None,
        segment_bytes: int | None = None,
        segment_age_s: float | None = None,
        retention_s: float | Literal["same"] | None = "same",
        retention_bytes: int | Literal["same"] | None = "same",
        writer_retention_s: float | None = None,
        relay_to: Sequence[str] | None = None,
        relay_from: Bound = EARLIEST,
        relay_evict_bytes: int | Literal["same"] | None = "same",
        rpo_max_s: float | Literal["same"] | None = "same",
        rpo_max_bytes: int | Literal["same"] | None = "same",
        rpo_targets: str | Sequence[str] | None = None,
        on_isolation: Literal["continue", "stop"] | None = None,
    ) -> StreamDescription:
        """Change settings of a stream; leave the others as they are.

        Writers opened from now on use them; a bound on the loss of a home holds for open ones,
        too, within a second or two. The number of partitions can only grow. A retention of None
        keeps all records. rpo_max_s and rpo_max_bytes replace each other; None turns them off.
        relay_to: the regions that mirror the stream from now on; the
        mirrors in others are deleted. relay_from: where mirrors begin that are new; it is
        rounded down to the beginning of a segment. relay_evict_bytes: trimmed bytes to keep for
        mirrors that lack them; None keeps all. NoSuchStreamError, InvalidArgumentError,
        SealedError; NotEnoughNodesError if a region cannot hold a mirror.
        """
        changes = StreamChanges(
            partitions=partitions,
            segment_bytes=segment_bytes,
            segment_age_s=segment_age_s,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            writer_retention_s=writer_retention_s,
            relay_to=relay_to,
            relay_evict_bytes=relay_evict_bytes,
            rpo_max_s=rpo_max_s,
            rpo_max_bytes=rpo_max_bytes,
            rpo_targets=rpo_targets,
            isolation_lease_s=(
                "same" if on_isolation is None else await self._lease_length_s(on_isolation)
            ),
        )
        stream = StreamName.parse(name)
        check_begin_of_more(relay_from, relay_to)
        firsts: dict[PartitionName, LogSequence] = {}
        if changes.relay_to:
            found = await self._catalog.read_latest(stream)
            check_relay(found.mode, found.home, changes.relay_to)
            await self._planner.check_targets(changes.relay_to, found.quorum, found.placement)
            if relay_from != EARLIEST:
                firsts = await self._mirror_begins(found, changes.relay_to, relay_from)
        await self._upkeep.change(stream, changes, firsts=firsts)
        return await self.describe_stream(name)

    async def _lease_length_s(self, on_isolation: str) -> float | None:
        if on_isolation not in ("continue", "stop"):
            raise InvalidArgumentError(
                f"on_isolation is {on_isolation!r}; it can be 'continue' or 'stop'"
            )
        if on_isolation == "continue":
            return None
        tick_s = None
        if self._ask_tick is not None:
            told_s = await self._ask_tick()
            tick_s = await noted_tick(self._metadata, self.cluster, told_s) or DEFAULT_TICK_S
        return lease_length_s(self._metadata.session_timeout_s, tick_s)

    async def _mirror_begins(
        self, record: StreamRecord, relay_to: Sequence[str], relay_from: Bound
    ) -> dict[PartitionName, LogSequence]:
        """Where the mirrors in these regions would begin."""
        begins: dict[PartitionName, LogSequence] = {}
        for one in record.partition_names():
            at = await self._sequence_at(record, one, relay_from, record.partitions)
            first = await segment_begin(self._scan(record, one), at)
            begins |= {record.log_in(region, one.number): first for region in relay_to}
        return begins

    @_public
    async def seal_stream(self, name: str) -> StreamDescription:
        """Seal a stream: it takes no more records. SealedError if it is sealed already.

        Its writers are fenced; readers that follow it end after its last record.
        """
        await self._upkeep.seal(StreamName.parse(name))
        return await self.describe_stream(name)

    @_public
    async def truncate_stream(self, name: str, *, before: Bound) -> dict[int, int]:
        """Delete the records before a position, for good.

        name: NAMESPACE/NAME, or one partition as NAMESPACE/NAME#P. If there are several
        partitions, a DLSN, sequence or transaction id needs the form with #P. Returns the first
        sequence left in each partition. Older records, which only mirrors have because the home
        never got them, go if they are before a sequence that is given, or if any record of the
        home goes. NoSuchStreamError; InvalidArgumentError for a position beyond the end.
        """
        record, names = await self._named(name)
        firsts: dict[int, int] = {}
        for one in names:
            firsts[one.number] = await self._sequence_at(record, one, before, len(names))

        async def truncate(one: PartitionName) -> int:
            older: int | None = None
            if isinstance(before, AtSequence):  # Other positions are looked up at home alone.
                older = min(before.sequence, firsts[one.number])
            return await self._upkeep.truncate(one, firsts[one.number], older_before=older)

        return {one.number: await truncate(one) for one in names}

    @_public
    async def spans_between(
        self, name: str, *, start: Bound = EARLIEST, stop: Bound | None = None
    ) -> tuple[int, list[SequenceSpan]]:
        """Where the records between two positions lie: for those that divide a read into parts.

        name: a stream, or one partition of it. Without `stop` up to the current end: that
        of the region's mirror, if it has one. Returns the creation time of the stream in
        microseconds UTC, which tells its life from another one, and the span of each partition.
        NoSuchStreamError; InvalidArgumentError for a position beyond the end.
        """
        record, names = await self._named(name)
        check_order(start, stop)

        async def span_of(one: PartitionName) -> SequenceSpan:
            scan = await self._nearest_scan(record, one, (start, stop), self._reader)
            if isinstance(start, AtSequence):  # The read reports trimmed records as a gap.
                check_one_partition(str(record.name), len(names), start)
                _, diverged = await PlaceSearch(scan).in_lineage(start)
                if diverged is not None:
                    raise InvalidArgumentError(
                        f"{one}: sequence {start.sequence} of home epoch {start.home_epoch} is"
                        " not in the stream, for its home was failed over: begin at sequence"
                        f" {diverged.from_sequence}, where home epoch {diverged.epoch} begins"
                    )
                check_within(one, start, await scan.end())
                first = start.sequence
            else:
                first = await self._sequence_in(scan, start, len(names))
            end = await self._sequence_in(scan, stop or LATEST, len(names))
            return SequenceSpan(str(record.name), one.number, first, end, record.home_epoch)

        spans = await all_of(
            [partial(span_of, one) for one in names], at_once_max=_SPANS_AT_ONCE_MAX
        )
        return record.created_us, spans

    @_public
    async def extents_from(
        self, name: str, positions: Mapping[int, Position], *, bytes_too: bool = False
    ) -> dict[int, PartitionExtent]:
        """How far the partitions of a stream reach, for those who read up to these positions.

        name: a stream, or one partition of it. positions: of partitions that were read; one in
        a dead branch is told as the place where the log goes on. bytes_too: also find how many
        bytes wait, which costs two reads of each partition. NoSuchStreamError.
        """
        stream, number = parse_target(name)
        now_us = self._now_us() if bytes_too else None
        while True:
            record = await self._catalog.read_latest(stream)
            names = record.partition_names() if number is None else [record.partition(number)]
            extents = await all_of(
                [
                    partial(self._extent, record, one, positions.get(one.number), now_us)
                    for one in names
                ],
                at_once_max=_SPANS_AT_ONCE_MAX,
            )
            # An end found during a failover may be of the next home, or of a dead branch.
            if (await self._catalog.read_same_latest(record)).home_epoch == record.home_epoch:
                return {one.number: it for one, it in zip(names, extents, strict=True)}

    async def _extent(
        self,
        record: StreamRecord,
        name: PartitionName,
        known: Position | None,
        now_us: int | None,
    ) -> PartitionExtent:
        at = None if known is None else AtSequence(known.sequence, known.home_epoch)
        return await found_extent(
            await self._nearest_scan(record, name, (at, LATEST), self._reader),
            known,
            created_us=record.created_us,
            now_us=now_us,
        )

    async def _sequence_at(
        self, record: StreamRecord, name: PartitionName, bound: Bound, names_count: int
    ) -> int:
        return await self._sequence_in(self._scan(record, name), bound, names_count)

    async def _sequence_in(self, scan: PartitionScan, bound: Bound, names_count: int) -> int:
        """The sequence of the first record at or after a position, or of the end."""
        check_one_partition(str(scan.name.stream), names_count, bound)
        now, _ = await PlaceSearch(scan).in_lineage(bound)
        assert now is not None
        bound = now
        end = await scan.end()
        check_within(scan.name, bound, end)
        if bound == LATEST:
            return end.sequence
        async with open_stream_reader(
            [scan], start=bound, stop=None, is_following=False, config=self._config.reader
        ) as reader:
            async for run in reader.runs():
                if not isinstance(run, Gap):
                    return run.first_sequence + run.first_row
                if run.reason is GapReason.LOCAL_ONLY and run.from_sequence is not None:
                    return run.from_sequence
        return end.sequence

    @_public
    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its records; fence its writers. NoSuchStreamError.

        The stream is deleted even if too few nodes answer for a fence.
        """
        await self._upkeep.delete(StreamName.parse(name))

    async def check_writable(self, name: str) -> None:
        """Look whether a writer of this process could append to the stream now.

        NoSuchStreamError, SealedError; InvalidArgumentError away from its home, if no write
        proxy is up. Another owner, or nodes that are down, may still keep it from appending.
        """
        record = await self._catalog.read_writable(parse_target(name)[0])
        if not record.moving_to and not await self._proxies.is_way_to_write():
            self.partition_opener.check_is_at_home(record)

    @_public
    async def list_streams(self, namespace: str | None = None) -> list[str]:
        """Sorted names of all streams, or of one namespace's."""
        names = await self._catalog.names()
        return [str(name) for name in names if namespace in (None, name.namespace)]

    @_public
    async def describe_stream(self, name: str) -> StreamDescription:
        """Describe a stream: settings, owners and extent. NoSuchStreamError."""
        return await self._view.describe(StreamName.parse(name))

    @_public
    async def stream_created_us(self, name: str) -> int:
        """When a stream was created, in microseconds UTC: one read of metadata.

        It tells a stream from another that is created later under its name. NoSuchStreamError.
        """
        return (await self._catalog.read(StreamName.parse(name))).created_us

    @_public
    async def list_segments(
        self, name: str, *, limit: int | None = None
    ) -> list[SegmentDescription]:
        """List the segments of a stream or of one partition of it. NoSuchStreamError.

        limit: only the last so many of each partition.
        """
        _, names = await self._named(name)
        return await self._view.segments(names, limit=limit)

    async def _named(self, name: str) -> tuple[StreamRecord, list[PartitionName]]:
        """The stream and the partitions that NAMESPACE/NAME or NAMESPACE/NAME#P names."""
        stream, number = parse_target(name)
        record = await self._catalog.read(stream)
        if number is None:
            return record, record.partition_names()
        if number >= record.partitions:  # The partition may be new.
            record = await self._catalog.read_latest(stream)
        return record, [record.partition(number)]

    @_public
    async def list_cursors(self, name: str) -> list[CursorDescription]:
        """Describe the cursors of a stream: positions, readers, lag. NoSuchStreamError."""
        return await self._cursors.describe_all(
            await self._catalog.read(StreamName.parse(name))
        )

    @_public
    async def describe_cursor(self, name: str, cursor: str) -> CursorDescription:
        """Describe one cursor of a stream. NoSuchCursorError."""
        record = await self._catalog.read(StreamName.parse(name))
        return await self._cursors.describe(record, cursor)

    @_public
    async def seek_cursor(
        self, name: str, cursor: str, *, to: Bound, force: bool = False
    ) -> CursorDescription:
        """Set the position of a cursor in a stream, or in one partition of it.

        force: also while readers have the cursor; they go on from the new position.
        NoSuchCursorError, CursorHeldError; InvalidArgumentError outside of the stream.
        """
        record, _ = await self._named(name)
        _, number = parse_target(name)
        return await self._cursors.seek(record, number, cursor, to, is_forced=force)

    @_public
    async def commit_cursor(
        self, name: str, cursor: str, positions: Mapping[int, Position]
    ) -> None:
        """Move a cursor to positions that a program keeps elsewhere; make it if it is new.

        positions: of partitions of the stream. One that is not ahead is left, so a late commit
        changes nothing. CursorHeldError if readers have the cursor, ConflictError if it was
        changed at the same time, NoSuchStreamError.
        """
        record, _ = await self._named(name)
        await self._cursors.commit(record, cursor, positions)

    @_public
    async def delete_cursor(self, name: str, cursor: str, *, force: bool = False) -> None:
        """Delete a cursor of a stream. NoSuchCursorError, CursorHeldError.

        force: also while readers have it; they fail.
        """
        record = await self._catalog.read(StreamName.parse(name))
        await self._cursors.delete(record, cursor, is_forced=force)

    @_public
    async def list_nodes(self) -> list[NodeDescription]:
        """List all storage nodes that ever joined, and whether they are up.

        Includes disks that were given up until all their copies are on other nodes.
        """
        return await list_nodes(self.access)

    @_public
    async def relay_status(self, name: str | None = None) -> list[RelayedStreamReport]:
        """How far each relayed partition is on its way to each of its targets.

        name: only this stream. The coordinators of the homes tell it, from memory. A stream
        whose coordinator does not answer is `down`, with the reason in `alarm`.
        NoSuchStreamError.
        """
        return await self.links.status(None if name is None else StreamName.parse(name))

    @_public
    async def pause_relay(
        self, name: str | None = None, *, targets: Sequence[str] | None = None
    ) -> dict[str, list[str]]:
        """Send these targets nothing until `resume_relay`; the home keeps what they lack.

        name: a stream; None for all that are relayed to one of the targets. targets: regions;
        None for all targets of the stream. Returns the paused targets of each stream
        concerned, by its name. NoSuchStreamError, InvalidArgumentError.
        """
        return await self._pause_relay(name, targets, is_paused=True)

    @_public
    async def resume_relay(
        self, name: str | None = None, *, targets: Sequence[str] | None = None
    ) -> dict[str, list[str]]:
        """Let paused targets go on, from where they stopped. Arguments as of `pause_relay`.

        Returns the targets that are still paused, of each stream concerned.
        """
        return await self._pause_relay(name, targets, is_paused=False)

    async def _pause_relay(
        self, name: str | None, targets: Sequence[str] | None, *, is_paused: bool
    ) -> dict[str, list[str]]:
        if name is not None:
            wanted = [(StreamName.parse(name), targets)]
        elif targets:
            relayed = await self.links.relayed()
            known = sorted({each for one in relayed for each in one.relay_to})
            if unknown := sorted(set(targets) - set(known)):
                raise InvalidArgumentError(
                    f"no stream is relayed to {', '.join(unknown)}; streams are relayed to"
                    f" {', '.join(known) or 'no region'}"
                )
            wanted = [
                (one.name, concerned)
                for one in relayed
                if (concerned := [each for each in targets if each in one.relay_to])
            ]
        else:
            raise InvalidArgumentError("name a stream, or the regions that are its targets")
        changed = [
            await self._upkeep.pause_relay(stream, each, is_paused=is_paused)
            for stream, each in wanted
        ]
        return {str(one.name): list(one.relay_paused) for one in changed}

    @_public
    async def resync_relay(
        self, name: str, *, target: str, accept_gap: bool = False
    ) -> list[MirrorResync]:
        """Throw a mirror's records away, and have the home send all that it has left again.

        For a mirror that cannot go on by itself: its link is `stopped`. A link that is `down`
        goes on by itself, and its mirror may be the only other copy. accept_gap: go on even
        if the home has dropped records that the region never got; readers are told. Answers
        with where each partition begins. ConflictError without it, and then nothing is done,
        and for a partition whose home is there by then; UnavailableError while the home of the
        stream moves. NoSuchStreamError, InvalidArgumentError; SealedError if the mirror is
        sealed, for then it has everything.
        """
        record, names = await self._named(name)
        record = await self._catalog.read_same_latest(record)
        if target not in record.relay_to:
            raise InvalidArgumentError(
                f"{record.name} is not relayed to {target!r}; its targets are"
                f" {', '.join(record.relay_to) or 'none'}"
            )
        return await self.partition_opener.resync_mirrors(
            record, target, [one.number for one in names], accept_gap=accept_gap
        )

    @_public
    async def switch_over(
        self,
        name: str,
        *,
        to: str,
        home: str | None = None,
        home_epoch: int | None = None,
        timeout_s: float = 30.0,
        progress: Callable[[str], None] | None = None,
    ) -> SwitchOverReport:
        """Make region `to`, a target of the stream, its home, without losing a record.

        Appends wait while that takes, and go on in the new home; writers through proxies go
        there by themselves. The old home becomes a target. home, home_epoch: move it from there
        only (`home_of`); HomeMoveConflictError if it has another home by now. progress: called
        with what is done now. If it takes longer than `timeout_s`, or fails, the stream stays
        at its home: UnavailableError. NoSuchStreamError, SealedError; InvalidArgumentError or
        ConflictError if it cannot move there, HomeMoveConflictError if another process moves
        it.
        """
        record = await self._catalog.read_latest(StreamName.parse(name))
        if record.moving_to:
            record = await self._partitions.home_moves.give_up_abandoned(record)
        check_same_home(record, home, home_epoch)
        mover = self._home_switch(SwitchConfig(timeout_s=timeout_s))
        return await mover.move(record, to, progress or (lambda _step: None))

    @_public
    async def plan_switch_over(
        self, name: str, *, to: str, counts_open: bool = True
    ) -> SwitchOverPlan:
        """What `switch_over` would meet, as far as it can be told without moving anything.

        A new home that is behind is watched for a second, for the rate at which it catches up.
        counts_open: read the open segment of each partition, to count its local-only records.
        NoSuchStreamError.
        """
        record = await self._catalog.read_latest(StreamName.parse(name))
        why_never: str | None = None
        try:
            await self._home_switch(SwitchConfig()).check_can_move(record, to)
        except (ConflictError, InvalidArgumentError, SealedError, TooLargeError) as error:
            why_never = str(error)
        seen = await self.links.watched(record.name, to)
        names = record.partition_names()
        counts = await all_of(
            [partial(self._local_only_of, record, one, counts_open) for one in names],
            at_once_max=_SPANS_AT_ONCE_MAX,
        )
        return switch_over_plan(record, to, seen, local_only=sum(counts), why_never=why_never)

    async def _local_only_of(
        self,
        record: StreamRecord,
        name: PartitionName,
        counts_open: bool,  # noqa: FBT001 - Called through a partial.
    ) -> int:
        """How many records of a partition would stay behind if its home moved now."""
        rows = SegmentList(name, self._partitions)
        found = await local_only_of_home(rows, record.home_epoch)
        if not counts_open or found.open_row is None:
            return found.count
        return found.count + await local_only_in(self._scan(record, name), found.open_row)

    @_public
    async def failover(
        self,
        name: str,
        *,
        to: str | None = None,
        home: str | None = None,
        home_epoch: int | None = None,
        confirmed: Mapping[int, int] | None = None,
        without: Sequence[str] = (),
        timeout_s: float = 60.0,
        progress: Callable[[str], None] | None = None,
    ) -> FailoverReport:
        """Make a target of the stream its home, because the home it has is lost.

        to: the region; the one whose mirrors lack least if None. home, home_epoch: the home
        that is lost, e.g. of the plan; HomeMoveConflictError if the stream has another by now,
        for that one may be well. It first gets what mirrors
        elsewhere, and the old home if it answers, have above its own. Records that no region
        has are at risk: see `FailoverReport.ranges`. If the old home comes back with them, they
        are kept aside (`list_divergences`), and the old home becomes a target. progress: called
        with what is done now.

        If a log that answers cannot be fetched, the failover is given up. confirmed: for each
        partition the sequence at which the new home may go on, at the lowest (`goes_on_at` of
        the plan): it goes on without such a log, if that is not lower. without: regions whose
        logs are left out, whatever they have.

        UnavailableError if the region's mirrors are out of reach, or would go on lower; the
        stream's home is then what it was. NoSuchStreamError, SealedError; InvalidArgumentError
        if it cannot move there, HomeMoveConflictError if another process moves it.
        """
        stream = StreamName.parse(name)

        async def settled() -> StreamRecord:
            record = await self._catalog.read_latest(stream)
            if not record.moving_to:
                return record
            return await self._partitions.home_moves.give_up_abandoned(record)

        record = await insist(settled, patience_s=_METADATA_BACK_S)
        check_same_home(record, home, home_epoch)
        config = FailoverConfig(timeout_s=timeout_s)
        tell = progress or (lambda _step: None)
        return await self._failovers.move(
            record, to, config, tell, confirmed=confirmed, without=without
        )

    @_public
    async def plan_failover(
        self, name: str, *, to: str | None = None, without: Sequence[str] = ()
    ) -> FailoverPlan:
        """What `failover` would do, and what would be at risk. NoSuchStreamError.

        without: regions whose logs are left out.
        Asks metadata again for a while if it does not answer: its server may be lost, too.
        """
        stream = StreamName.parse(name)

        async def plan() -> FailoverPlan:
            record = await self._catalog.read_latest(stream)
            return await self._failovers.plan(record, to, without)

        return await insist(plan, patience_s=_METADATA_BACK_S)

    @_public
    async def list_failovers(self, name: str) -> list[FailoverRecord]:
        """The failovers of a stream so far, and what each may have cost. NoSuchStreamError."""
        return await self._failovers.failovers(
            await self._catalog.read_latest(StreamName.parse(name))
        )

    @_public
    async def list_divergences(self, name: str) -> list[Divergence]:
        """The records of a stream that regions keep aside, because a failover left them behind.

        NoSuchStreamError.
        """
        return await self._failovers.divergences(
            await self._catalog.read_latest(StreamName.parse(name))
        )

    @asynccontextmanager
    @_public
    async def open_divergence(self, name: str, divergence: str) -> AsyncIterator[Reader]:
        """Read a divergence, named REGION~EPOCH#PARTITION, from its first record to its last.

        NoSuchStreamError, NotFoundError.
        """
        record = await self._catalog.read_latest(StreamName.parse(name))
        rest = await self._failovers.named_rest(record, divergence)
        begin = await self._failovers.begin_of(record, rest)
        async with open_stream_reader(
            [self._scan(record, rest)],
            start=AtSequence(begin),
            stop=None,
            is_following=False,
            config=self._config.reader,
        ) as reader:
            yield reader

    @_public
    async def export_divergence(
        self,
        name: str,
        divergence: str,
        *,
        into: str,
        progress: Callable[[int], None] | None = None,
        left_out: Callable[[int], None] | None = None,
    ) -> int:
        """Append the records of a divergence to a stream, each once; returns how many.

        They go under a writer id of their own, with their old sequences as seqs; the ids and
        seqs of their writers, times and transaction ids go into headers (`diverged-…`). Repeat
        it if it fails: records that are there are not appended again. Local-only records are
        left out: read them in their region. progress: called with the records appended so far.
        left_out: called with the number of those left out, so far. NoSuchStreamError,
        NotFoundError; errors as of appending.
        """
        record = await self._catalog.read_latest(StreamName.parse(name))
        rest = await self._failovers.named_rest(record, divergence)
        forks = await self._failovers.forks_of(rest)
        async with self.open_divergence(name, divergence) as reader:
            return await export_into(
                reader,
                forks,
                lambda writer_id: self.open_writer(into, writer_id=writer_id),
                progress or (lambda _count: None),
                left_out or (lambda _count: None),
            )

    @_public
    async def discard_divergence(self, name: str, divergence: str) -> None:
        """Delete a divergence, named REGION~EPOCH#PARTITION, for good.

        NoSuchStreamError, NotFoundError.
        """
        record = await self._catalog.read_latest(StreamName.parse(name))
        await self._failovers.discard(record, divergence)

    @property
    def _failovers(self) -> Failovers:
        return Failovers(
            who=self._who,
            upkeep=self.partition_opener.upkeep,
            links=self.links,
            silent=self._silent_homes,
            look_at_end=partial(self._tail.end_of, may_be_emptied=True, may_recover=False),
            partition=self._config.partition,
            check_room=self._check_room,
        )

    async def _check_room(self, record: StreamRecord, region: str) -> None:
        """NotEnoughNodesError if a region cannot hold a ledger of the stream now."""
        live = await self._replicas.pool.live_nodes()
        count = sum(one.location.region == region and one.is_writable for one in live)
        if count < record.quorum.ensemble_size:
            raise NotEnoughNodesError(
                f"{count} storage nodes in {region} can be written, and a ledger of"
                f" {record.name} needs {record.quorum.ensemble_size}: start nodes there first"
            )

    def _home_switch(self, config: SwitchConfig) -> HomeSwitch:
        return HomeSwitch(
            who=self._who,
            takeover=self._takeover,
            end_of=partial(self._tail.end_of, may_be_emptied=True),
            config=config,
        )

    @_public
    async def streams_at_home(self, region: str) -> list[str]:
        """Sorted names of the regional streams whose home is this region."""
        found = []
        for name in await self._catalog.names():
            with suppress(NoSuchStreamError):  # It is being made or deleted.
                if (await self._catalog.read(name)).home == region:
                    found.append(str(name))
        return found

    @_public
    async def home_of(self, name: str) -> StreamHome:
        """Where the home of a stream is now. NoSuchStreamError."""
        return home_of(await self._catalog.read_latest(StreamName.parse(name)))

    @asynccontextmanager
    @_public
    async def relay_events(
        self, *, follow: bool = False
    ) -> AsyncIterator[AsyncIterator[RelayEvent]]:
        """Iterate over the changes of links that coordinators remember.

        follow: go on with new ones, from coordinators that come later, too.
        """
        async with self.links.open_events(follow=follow) as events:
            yield events

    @_public
    async def health(self, *, every_ledger: bool = False) -> HealthReport:
        """Judge the health of the cluster, from a sample of its ledgers or from every one."""
        return await judge_cluster(
            self.access,
            ask_reach=self._ask_reach,
            ledgers_max=None if every_ledger else LEDGERS_JUDGED_MAX,
            links=await self.links.status(),
            divergences=await self._failovers.counts(await self.links.relayed()),
        )

    @_public
    async def verify_stream(
        self,
        name: str,
        *,
        full_copies: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Read every replica of every entry, up to the stream's current end.

        Mirrors are read likewise, and each of their entries is compared with the home's. One
        whose nodes do not answer is told of, and the others are read all the same.
        full_copies: fail entries with fewer than W good copies, too. progress: called with
        records done and records in all, approximately. NoSuchStreamError, UnavailableError.
        """
        record, names = await self._named(name)
        ends: list[tuple[PartitionName, PartitionEnd]] = []
        while len(ends) < len(names):
            ends += [(one, await self._scan(record, one).end()) for one in names[len(ends) :]]
            if parse_target(name)[1] is None:  # Metadata has caught up: it knows all of them.
                names = (await self._catalog.read_same(record)).partition_names()
        begins = [await self._partitions.trims.read(one) for one in names]
        total = sum(end.sequence for _, end in ends) - sum(one.first_sequence for one in begins)
        verifier = StreamVerifier(
            name,
            self._reader,
            latest=self._ledger_now,
            enqueue=self.access.repair_queue.enqueue,
            full_copies=full_copies,
            progress=progress and (lambda done: progress(min(done, total), total)),
        )
        for one, end in ends:
            opened = extents_of(self.access, one, end)
            async with aclosing(opened) as extents, aclosing(in_groups(extents)) as groups:
                async for group in groups:
                    await verifier.verify_ledgers(group)
        home_ends = {one.number: end.sequence for one, end in ends}
        for mirror in record.mirrors_of(one.number for one in names):
            try:
                has = await self._verify_mirror(verifier, record, mirror)
                lacking = home_ends[mirror.number] - has
                if lacking > 0:
                    told = f"{mirror} lacks {lacking:,} record{'s' if lacking > 1 else ''}"
                    verifier.report.mirrors_behind.append(told)
            except UnavailableError as error:
                verifier.report.silent_mirrors.append(f"{mirror} was not compared: {error}")
        return verifier.report

    async def _verify_mirror(
        self, verifier: StreamVerifier, record: StreamRecord, mirror: PartitionName
    ) -> int:
        """Verify a mirror, and compare it; the first sequence that it lacks."""
        end = await self._scan(record, mirror).end()
        begin = await self._partitions.trims.read(mirror)
        at_home = record.partition(mirror.number)
        opened = extents_of(self.access, mirror, end, is_mirror=True)
        async with aclosing(opened) as extents, aclosing(in_groups(extents)) as groups:
            async for group in groups:
                await verifier.verify_ledgers(group)
                for compared in await all_of(
                    [partial(compare_row, self.access, one, at_home) for one in group],
                    at_once_max=_ROWS_COMPARED_AT_ONCE,
                ):
                    verifier.report.mirrored += compared.entries_count
                    verifier.report.tell_mirror(compared.defects)
        return max(end.sequence, begin.first_sequence)

    async def _ledger_now(
        self, known: LedgerRecord, freshness: Freshness
    ) -> LedgerRecord | None:
        try:
            return (await self._ledgers.read(known.ledger, freshness=freshness)).record
        except NoSuchLedgerError:
            return None

    def _scan(
        self, record: StreamRecord, name: PartitionName, reader: LedgerReader | None = None
    ) -> PartitionScan:
        return PartitionScan(
            name,
            home_epoch=record.home_epoch,
            origin=record.home if record.is_mirror(name) else None,
            is_abroad=self.region not in (None, record.region_of(name)),
            has_rows=bool(name.region or record.origin or name.rest),
            check_life=partial(self._catalog.check_same, record),
            partitions=self._partitions,
            ledgers=self._ledgers,
            reader=reader or self._reader,
            tails=self._tails,
            tail=self._tail,
            config=self._config.reader,
            rng=self._rng,
        )

    async def _nearest_scan(
        self,
        record: StreamRecord,
        name: PartitionName,
        bounds: Sequence[Bound | None],
        reader: LedgerReader,
    ) -> PartitionScan:
        """The region's own mirror if there is one that reaches all bounds; else the home.

        A mirror is behind its home. One that was never begun, or was emptied, has nothing.
        """
        at_home = self._scan(record, name, reader)
        if self.region not in record.relay_to:
            return at_home
        mirror = self._scan(record, record.log_in(self.region, name.number), reader)
        if await self._partitions.segments.is_empty(mirror.name):
            return at_home
        try:
            if not await has_start(mirror, at_home, bounds[0] or EARLIEST):
                return at_home
            if any(isinstance(bound, AtSequence | AtDlsn) for bound in bounds):
                end = await mirror.end()
                for bound in bounds:
                    check_within(mirror.name, bound, end)
        except InvalidArgumentError:
            return at_home
        return mirror

    @asynccontextmanager
    @_public
    async def open_writer(
        self,
        name: str,
        *,
        writer_id: str | None = None,
        ack: AckLevel | Literal["received", "durable"] = AckLevel.DURABLE,
        linger_s: float = 0.001,
        batch_bytes: int = 256 * 1024,
        in_flight_bytes: int = 32 * 1024 * 1024,
        spool: str | Path | None = None,
        spool_bytes: int = SPOOL_BYTES,
    ) -> AsyncIterator[Writer]:
        """Append to the stream, or one partition of it, within the block.

        Through write proxies, any number of writers append to a stream at the same time. A
        direct writer owns the stream: opening it fences the writer before, and recovers its
        open ledger. A block that ends without an error flushes first.
        writer_id: number the records, so that a repeated append is recognised and not stored
        twice. ack: answer appends once an ack set has them on disk ("durable") or in memory
        ("received"). linger_s, batch_bytes: seal a batch after this time or at this size.
        in_flight_bytes: let appends wait while this much is unanswered.
        spool: a directory of this writer alone. Records are written there first, and sent to
        the log as soon as it answers, also by the next writer with this spool: `post` returns
        once a record is on the local disk, `append` once the log has it. It needs a writer_id.
        spool_bytes: bound of that directory; appends wait while it is full.
        """
        config = WriterConfig(
            linger_s=linger_s, batch_bytes=batch_bytes, in_flight_bytes=in_flight_bytes
        )
        if spool is not None:
            again = partial(
                self.open_writer,
                name,
                writer_id=writer_id,
                linger_s=linger_s,
                batch_bytes=batch_bytes,
            )
            async with spooled_writer(
                again,
                spool,
                SpoolConfig(
                    spool_bytes=spool_bytes,
                    batch_bytes=batch_bytes,
                    in_flight_bytes=in_flight_bytes,
                ),
                cluster=self.cluster,
                stream=name,
                writer_id=writer_id,
                ack=AckLevel(ack),
                rng=self._rng,
                now_us=self._now_us,
            ) as spooled:
                yield spooled
            return
        number = parse_target(name)[1]
        (record, _), is_by_proxy = await both(
            partial(self._named, name), self._proxies.is_way_to_write
        )
        if is_by_proxy:
            if record.is_sealed:
                raise SealedError(f"{record.name} is sealed: it takes no more records")

            async def read_stream() -> WrittenStream:
                return WrittenStream.of(await self._catalog.read_same_latest(record))

            opened = open_proxied_writer(
                WrittenStream.of(record),
                number,
                config,
                writer_id=writer_id,
                ack=AckLevel(ack),
                read_stream=read_stream,
                proxies=self._proxies,
                rng=self._rng,
                now_us=self._now_us,
            )
        else:
            opened = open_stream_writer(
                record,
                number,
                config,
                writer_id=writer_id,
                ack=AckLevel(ack),
                opener=self.partition_opener,
            )
        async with opened as writer:
            yield writer

    @asynccontextmanager
    @_public
    async def open_reader(
        self,
        name: str,
        *,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
        cursor: str | None = None,
        shared: bool = False,
        take: bool = False,
        auto_commit: bool = True,
        hedge: str | HedgePolicy | None = None,
        positions: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Reader]:
        """Read in order from `start` up to `stop`, exclusive.

        name: a stream, one partition of it, or a pattern such as `shop/*` for all streams that
        it matches. Without `stop` the read ends at the current end.
        follow: go on after that end, and wait for new records until the stream is sealed. With
        a pattern, streams and partitions that are made later are read from their first record,
        and the read goes on for ever.
        cursor: resume where the cursor of this name stands, and commit what was taken, within
        about a second and at the end of the block; `start` is for a new cursor. shared: divide
        the partitions among all readers that share the cursor. take: take the cursor from a
        reader that has it. auto_commit: if False, only `Reader.commit` commits.
        CursorHeldError.
        hedge: the hedge policy of this reader, as in `connect`; None for that of the log.
        positions: with a pattern, go on where an earlier `Reader.positions` says.
        """
        if is_pattern(name):
            if cursor is not None or shared or take or not auto_commit:
                raise InvalidArgumentError(
                    f"{name!r} is a pattern, and a cursor is of one stream: read each stream"
                    " with its cursor, or keep what Reader.positions() returns in a program and"
                    " give it as positions=… the next time"
                )
            async with self._pattern_reads(hedge).open(
                name, start=start, stop=stop, is_following=follow, positions=positions
            ) as of_pattern:
                yield of_pattern
            return
        if positions is not None:
            raise InvalidArgumentError(
                f"positions are for patterns, e.g. 'shop/*', and {name!r} is none: give"
                " start=geolog.AtSequence(N) or cursor='NAME'"
            )
        async with self.open_readers(
            name,
            count=1,
            start=start,
            stop=stop,
            follow=follow,
            cursor=cursor,
            shared=shared,
            take=take,
            auto_commit=auto_commit,
            hedge=hedge,
        ) as [reader]:
            yield reader

    def _pattern_reads(self, hedge: str | HedgePolicy | None) -> PatternReads:
        return PatternReads(
            metadata=self._metadata,
            paths=ClusterPaths(self.cluster),
            catalog=self._catalog,
            nearest_scan=partial(self._nearest_scan, reader=self._ledgers_hedged_by(hedge)),
            sequence_at=self._sequence_at,
            config=self._config.reader,
            subscription=self._config.subscription,
            rng=self._rng,
        )

    def _ledgers_hedged_by(self, hedge: str | HedgePolicy | None) -> LedgerReader:
        return self._reader if hedge is None else self._reader.hedged_by(hedge_policy(hedge))

    @asynccontextmanager
    @_public
    async def open_readers(
        self,
        name: str,
        *,
        count: int,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
        cursor: str | None = None,
        shared: bool = False,
        take: bool = False,
        auto_commit: bool = True,
        hedge: str | HedgePolicy | None = None,
    ) -> AsyncIterator[list[Reader]]:
        """Divide the partitions of a stream among `count` readers of this process.

        Each partition is one reader's. With a cursor, the readers have it together. The other
        arguments are as of `open_reader`.
        """
        ledgers = self._ledgers_hedged_by(hedge)
        record, names = await self._named(name)
        _, number = parse_target(name)
        check_count(str(record.name), len(names), count)
        if cursor is not None:
            async with self._cursors.open_readers(
                record,
                number,
                cursor,
                start=start,
                stop=stop,
                is_following=follow,
                is_shared=shared,
                is_taking=take,
                is_automatic=auto_commit,
                count=count,
                scan=partial(self._scan, reader=ledgers),
            ) as of_cursor:
                yield list(of_cursor)
            return
        if shared or take or not auto_commit:
            raise InvalidArgumentError(
                "shared, take and auto_commit are for a cursor: give cursor='NAME' as well"
            )
        check_one_partition(name, len(names), start)
        check_one_partition(name, len(names), stop)

        async def more_scans(first: int, known_count: int) -> list[PartitionScan]:
            latest = (await self._catalog.read_same(record)).partition_names()
            mine = latest[first::count]
            return [
                await self._nearest_scan(record, one, (EARLIEST,), ledgers)
                for one in mine[known_count:]
            ]

        scans = [await self._nearest_scan(record, one, (start, stop), ledgers) for one in names]
        async with AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(
                    open_stream_reader(
                        scans[first::count],
                        more_scans=partial(more_scans, first) if number is None else None,
                        start=start,
                        stop=stop,
                        is_following=follow,
                        config=self._config.reader,
                    )
                )
                for first in range(count)
            ]
