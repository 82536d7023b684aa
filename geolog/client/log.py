"""The log as an application sees it: streams to make, write, read, look into and verify."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import trio

from geolog.client.bounds import EARLIEST, Bound
from geolog.client.cluster_access import ClusterAccess
from geolog.client.descriptions import (
    HealthReport,
    NodeDescription,
    SegmentDescription,
    StreamDescription,
)
from geolog.client.health import StreamState, judge
from geolog.client.owner import open_partition_writer
from geolog.client.partition_config import PartitionConfig
from geolog.client.partition_writer import PartitionWriter
from geolog.client.reader import Reader, open_stream_reader
from geolog.client.scan import ReaderConfig, StreamScan
from geolog.client.stream_metadata import StreamExistsError, StreamMetadata
from geolog.client.tail import TailFinder
from geolog.client.verification import StreamVerifier, VerifyReport
from geolog.client.writer import Writer, WriterConfig, open_linger
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.ledger.ledger_reader import LedgerReadConfig, LedgerReader
from geolog.ledger.ledger_recovery import RecoveryConfig, recover_ledger
from geolog.ledger.node_pool import NodePool, PoolConfig
from geolog.ledger.repair_reporter import RepairReporter
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.stream_state import HOME_EPOCH, StreamMode, StreamName, StreamRecord
from topology.errors import GeologError, InvalidArgumentError
from topology.placement import Candidate, adherence_of, choose_ensemble, quorums_to_survive
from topology.quorum import Durability, QuorumConfig

SEGMENT_BYTES_MIN = 64 * 1024

_KNOCK_S = 2.0
_FENCE_S = 10.0


@attrs.frozen(kw_only=True)
class LogConfig:
    """All bounds of a client, by part."""

    pool: PoolConfig = attrs.field(factory=PoolConfig)
    """Connections to storage nodes."""

    partition: PartitionConfig = attrs.field(factory=PartitionConfig)
    """Writing a partition as its owner."""

    recovery: RecoveryConfig = attrs.field(factory=RecoveryConfig)
    """Closing ledgers of writers that are gone."""

    reader: ReaderConfig = attrs.field(factory=ReaderConfig)
    """Reading streams."""

    ledger_read: LedgerReadConfig = attrs.field(factory=LedgerReadConfig)
    """Reading entries from replicas."""


class Log:
    """A cluster, from where its user stands; `geolog.connect` makes it."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        pool: NodePool,
        repairs: RepairReporter,
        cluster: str,
        region: str | None,
        who: str,
        rng: random.Random,
        now_us: Callable[[], int],
        config: LogConfig,
        metadata_spare: int | None,
    ) -> None:
        self.cluster = cluster
        self.region = region
        self._metadata = metadata
        self._pool = pool
        self._who = who
        self._rng = rng
        self._now_us = now_us
        self._config = config
        self._metadata_spare = metadata_spare
        self._ledgers = LedgerMetadata(metadata, ClusterPaths(cluster), repairs)
        self._streams = StreamMetadata(metadata, ClusterPaths(cluster), self._ledgers)
        self._reader = LedgerReader(pool, region=region, rng=rng, config=config.ledger_read)
        self._tail = TailFinder(
            streams=self._streams,
            ledgers=self._ledgers,
            reader=self._reader,
            pool=pool,
            rng=rng,
            recovery=config.recovery,
        )

    def __repr__(self) -> str:
        return f"Log(cluster {self.cluster!r}, region {self.region!r})"

    @property
    def access(self) -> ClusterAccess:
        """What looking after the cluster's nodes and ledgers takes."""
        return ClusterAccess(
            cluster=self.cluster,
            region=self.region,
            metadata=self._metadata,
            pool=self._pool,
            ledgers=self._ledgers,
            streams=self._streams,
            reader=self._reader,
            recovery=self._config.recovery,
            rng=self._rng,
            now_us=self._now_us,
        )

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
        mode: str = "global",
        segment_bytes: int = 64 * 1024 * 1024,
        if_not_exists: bool = False,
    ) -> StreamDescription:
        """Make a stream: either what it shall `survive`, or its quorums, are given.

        Refused when no ensemble of the cluster's nodes can hold the quorums. StreamExistsError,
        InvalidArgumentError, NotEnoughNodesError.
        """
        stream = StreamName.parse(name)
        if mode != StreamMode.GLOBAL.value:
            raise InvalidArgumentError(
                f"mode {mode!r} is not built yet; 'global' ones are durable in several regions"
            )
        if segment_bytes < SEGMENT_BYTES_MIN:
            raise InvalidArgumentError(
                f"segment size {segment_bytes} bytes is too small; the smallest is"
                f" {SEGMENT_BYTES_MIN // 1024}KiB"
            )
        if if_not_exists and stream in await self._streams.names():
            return await self.describe_stream(name)
        sizes = (ensemble_size, write_quorum, ack_quorum, min_regions)
        quorum = await self._quorum(survive, sizes, durability)
        record = StreamRecord(
            name=stream,
            mode=StreamMode.GLOBAL,
            quorum=quorum,
            segment_bytes=segment_bytes,
            created_us=self._now_us(),
        )
        try:
            await self._streams.create(record)
        except StreamExistsError:
            if not if_not_exists:
                raise
        return await self.describe_stream(name)

    async def _quorum(
        self,
        survive: str | None,
        sizes: tuple[int | None, int | None, int | None, int | None],
        durability: str,
    ) -> QuorumConfig:
        if survive is not None:
            if any(size is not None for size in sizes):
                raise InvalidArgumentError(
                    "give either what to survive, or the quorums, not both"
                )
            live = await list_live_nodes(self._metadata, self.cluster)
            return quorums_to_survive(
                survive, [Candidate(one.instance, one.location) for one in live]
            )
        quorum = _given_quorum(sizes, durability)
        known = await list_known_nodes(self._metadata, self.cluster)
        candidates = [Candidate(one.instance, one.location) for one in known]
        choose_ensemble(quorum, candidates, local_region=self.region, rng=self._rng)
        return quorum

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its records. NoSuchStreamError. Its writers are fenced.

        Where too few nodes answer for a fence, it is deleted all the same.
        """
        stream = StreamName.parse(name)
        await self._streams.depose(stream)
        with trio.move_on_after(_FENCE_S):
            for listed in await self._streams.segments(stream):
                if not listed.record.is_completed:
                    await self._close_ledger(listed.record.ledger)
        await self._streams.delete(stream)

    async def _close_ledger(self, ledger: LedgerId) -> None:
        await recover_ledger(
            ledger,
            ledgers=self._ledgers,
            pool=self._pool,
            rng=self._rng,
            config=self._config.recovery,
        )

    async def list_streams(self, namespace: str | None = None) -> list[str]:
        """Names of all streams, or of those of one namespace, sorted."""
        names = await self._streams.names()
        return [str(name) for name in names if namespace in (None, name.namespace)]

    async def describe_stream(self, name: str) -> StreamDescription:
        """A stream's settings, owner and extent. NoSuchStreamError."""
        record = await self._streams.read(StreamName.parse(name))
        owner = (await self._streams.owner_latest(record.name)).record
        segments = await self._streams.segments(record.name)
        completed = [one.record for one in segments if one.record.is_completed]
        last_sequence = completed[-1].last_sequence if completed else None
        return StreamDescription(
            name=str(record.name),
            mode=record.mode.value,
            partitions=record.partitions,
            ensemble_size=record.quorum.ensemble_size,
            write_quorum=record.quorum.write_quorum,
            ack_quorum=record.quorum.ack_quorum,
            min_regions=record.quorum.min_regions,
            durability=record.quorum.durability.value,
            segment_bytes=record.segment_bytes,
            created_us=record.created_us,
            owner=owner.owner or None,
            owner_epoch=owner.epoch,
            owner_is_alive=await self._streams.is_owner_alive(owner),
            segments_count=len(segments),
            last_segment=segments[-1].record.segment if segments else None,
            completed_sequence=0 if last_sequence is None else last_sequence + 1,
        )

    async def list_segments(self, name: str) -> list[SegmentDescription]:
        """The stream's log segments, in order. NoSuchStreamError."""
        record = await self._streams.read(StreamName.parse(name))
        found = []
        for listed in await self._streams.segments(record.name):
            segment = listed.record
            ledger = (await self._ledgers.read(segment.ledger)).record
            members = ledger.fragments[-1].ensemble
            regions = [member.location.region for member in members]
            found.append(
                SegmentDescription(
                    segment=segment.segment,
                    ledger=segment.ledger,
                    state=ledger.state.value,
                    epoch=ledger.epoch,
                    owner_epoch=segment.owner_epoch,
                    first_sequence=segment.first_sequence,
                    last_sequence=segment.last_sequence,
                    last_entry=segment.last_entry,
                    size_bytes=segment.size_bytes,
                    ensemble=[member.node_id for member in members],
                    regions=regions,
                    adherence=adherence_of(ledger.quorum, regions).value,
                )
            )
        return found

    async def list_nodes(self) -> list[NodeDescription]:
        """All storage nodes that ever joined, and whether they are up."""
        live = {
            record.instance: record
            for record in await list_live_nodes(self._metadata, self.cluster)
        }
        return [
            NodeDescription(
                node_id=record.node_id,
                instance=record.instance,
                address=str(record.address),
                location=str(record.location),
                region=record.location.region,
                rack=record.location.rack,
                state=live[record.instance].state.value if record.instance in live else "down",
            )
            for record in await list_known_nodes(self._metadata, self.cluster)
        ]

    async def health(self) -> HealthReport:
        """Judge the cluster as it is now."""
        states = []
        for name in await self._streams.names():
            record = await self._streams.read(name)
            segments = await self._streams.segments(name)
            ledger = None
            if segments:
                ledger = (await self._ledgers.read(segments[-1].record.ledger)).record
            states.append(StreamState(str(name), record.quorum, ledger))
        return judge(
            known=await list_known_nodes(self._metadata, self.cluster),
            live=await self._answering_nodes(),
            streams=states,
            metadata=self._metadata.session_state.value,
            metadata_spare=self._metadata_spare,
        )

    async def _answering_nodes(self) -> list[NodeRecord]:
        """The live nodes that answer: a record outlives its node until the session expires."""
        answering = []

        async def knock(record: NodeRecord) -> None:
            with trio.move_on_after(_KNOCK_S):
                try:
                    await self._pool.link(record.instance).wait_connection()
                except GeologError:
                    return  # It counts as down.
                answering.append(record)

        async with trio.open_nursery() as nursery:
            for record in await self._pool.live_nodes():
                nursery.start_soon(knock, record)
        return sorted(answering, key=lambda record: record.node_id)

    async def verify_stream(
        self,
        name: str,
        *,
        full_copies: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        """Read every replica of every entry up to the stream's end of this moment.

        `progress` is told entries done and entries in all. NoSuchStreamError, UnavailableError.
        """
        stream = (await self._streams.read(StreamName.parse(name))).name
        scan = self._scan(stream)
        end = await scan.end()
        extents = []
        for listed in await self._streams.segments(stream):
            segment = listed.record
            if segment.segment > end.segment:
                break
            ledger = (await self._ledgers.read(segment.ledger)).record
            last = end.entry - 1 if segment.segment == end.segment else ledger.last_entry
            assert last is not None, f"segment {segment.segment} has a successor and no end"
            extents.append((segment.segment, ledger, EntryId(last)))
        verifier = StreamVerifier(
            str(stream), self._reader, full_copies=full_copies, progress=progress
        )
        total = sum(last + 1 for _, _, last in extents)
        for number, ledger, last in extents:
            await verifier.verify_ledger(ledger, number, last, entries_total=total)
        return verifier.report

    def _scan(self, name: StreamName) -> StreamScan:
        return StreamScan(
            name,
            streams=self._streams,
            ledgers=self._ledgers,
            reader=self._reader,
            tail=self._tail,
            config=self._config.reader,
        )

    @asynccontextmanager
    async def open_writer(
        self,
        name: str,
        *,
        writer_id: str | None = None,
        linger_s: float = 0.001,
        batch_bytes: int = 256 * 1024,
        in_flight_bytes: int = 32 * 1024 * 1024,
    ) -> AsyncIterator[Writer]:
        """Own the stream and append to it, while the block lasts.

        Opening fences whoever wrote before, and recovers what it left open. A block that ends
        without an error flushes first.
        """
        if writer_id is not None:
            raise InvalidArgumentError(
                f"writer id {writer_id!r}: exactly-once appends are not built yet;"
                " open the writer without an id"
            )
        config = WriterConfig(
            linger_s=linger_s, batch_bytes=batch_bytes, in_flight_bytes=in_flight_bytes
        )
        stream = await self._streams.read(StreamName.parse(name))
        progress: list[Callable[[], None]] = []

        def on_progress() -> None:
            for tell in progress:
                tell()

        async with self._open_owner(stream, on_progress) as owner:
            writer = Writer(owner, config, home_epoch=HOME_EPOCH, now_us=self._now_us)
            progress.append(writer.on_progress)
            async with open_linger(writer):
                yield writer

    def _open_owner(
        self, stream: StreamRecord, on_progress: Callable[[], None]
    ) -> AbstractAsyncContextManager[PartitionWriter]:
        return open_partition_writer(
            stream,
            who=self._who,
            streams=self._streams,
            ledgers=self._ledgers,
            metadata=self._metadata,
            pool=self._pool,
            region=self.region,
            rng=self._rng,
            config=self._config.partition,
            recovery=self._config.recovery,
            now_us=self._now_us,
            on_progress=on_progress,
        )

    @asynccontextmanager
    async def open_reader(
        self,
        name: str,
        *,
        start: Bound = EARLIEST,
        stop: Bound | None = None,
        follow: bool = False,
    ) -> AsyncIterator[Reader]:
        """Read in order from `start` up to, and without, `stop`.

        Without `stop` it ends at the stream's end of this moment; with `follow` it goes on.
        """
        stream = (await self._streams.read(StreamName.parse(name))).name
        async with open_stream_reader(
            self._scan(stream),
            stream,
            start=start,
            stop=stop,
            is_following=follow,
            config=self._config.reader,
        ) as reader:
            yield reader


def _given_quorum(
    sizes: tuple[int | None, int | None, int | None, int | None], durability: str
) -> QuorumConfig:
    """The quorums with what was not given filled in: E 3, W = E, A a majority of W, m 1."""
    ensemble_size, write_quorum, ack_quorum, min_regions = sizes
    ensemble_size = 3 if ensemble_size is None else ensemble_size
    write_quorum = ensemble_size if write_quorum is None else write_quorum
    try:
        kind = Durability(durability)
    except ValueError:
        raise InvalidArgumentError(
            f"durability {durability!r} is not known; it is 'regions' or 'count'"
        ) from None
    return QuorumConfig(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=write_quorum // 2 + 1 if ack_quorum is None else ack_quorum,
        min_regions=1 if min_regions is None else min_regions,
        durability=kind,
    )
