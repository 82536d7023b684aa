"""A stream that exists only in metadata, and one process's owners of its partitions."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.catalog.partition_owners import PartitionOwners, VersionedOwner
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Metadata, Operation, Put, Stored
from geolog.partition.shown_owners import ShownOwners, open_shown_owners
from geolog.protocol.owner_absence import OwnerSeen
from geolog.protocol.stream_state import PartitionName, StreamMode, StreamName, StreamRecord
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store
from sim.studies.counted_metadata import CountedMetadata
from tests.pure.whole.clusters import STREAM
from topology.errors import ConflictError, OutcomeUnknownError, UnavailableError
from topology.quorum import QuorumConfig

PATHS = ClusterPaths("default")
NAME = PartitionName(StreamName.parse(STREAM), life="1")


@attrs.define
class Late:
    """A metadata session on which requests fail, break off or arrive too late."""

    real: MemoryMetadata
    asked: list[list[Operation]] = attrs.field(factory=list)
    """Every write so far."""
    comes_first: list[Callable[[], Awaitable[None]]] = attrs.field(factory=list)
    """Another client's request, carried out before one's own, which never arrives."""
    breaks_count: int = 0
    """How many requests to carry out and then lose the answer with the connection."""
    reads_to_fail_count: int = 0
    """How many reads of one node to fail with a broken connection."""
    failures_count: int = 0
    """How many requests to fail with a broken connection."""
    refusals_count: int = 0
    """How many requests to refuse for a reason that only an operator can fix."""

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def find(
        self,
        path: str,
        *,
        changed: trio.Event | None = None,
        freshness: Freshness = Freshness.NEARBY,
    ) -> Stored | None:
        if self.reads_to_fail_count:
            self.reads_to_fail_count -= 1
            raise UnavailableError("the connection broke")
        return await self.real.find(path, changed=changed, freshness=freshness)

    async def put(self, path: str, data: bytes, version: int) -> int:
        [made] = await self.multi([Put(path, data, version)])
        assert isinstance(made, int)
        return made

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        self.asked.append(operations)
        if self.comes_first:
            await self.comes_first.pop()()
            await trio.sleep_forever()
        if self.failures_count:
            self.failures_count -= 1
            raise OutcomeUnknownError("the connection broke")
        if self.refusals_count:
            self.refusals_count -= 1
            raise ConflictError("not allowed")
        answers = await self.real.multi(operations)
        if self.breaks_count:
            self.breaks_count -= 1
            self.real.cut_off()
            raise OutcomeUnknownError("the connection broke")
        return answers


@attrs.frozen
class Site:
    """A stream in metadata, and one process's owners of its partitions.

    `late`: the session that the owners use.
    """

    store: MemoryStore
    session: MemoryMetadata
    counted: CountedMetadata
    late: Late
    owners: PartitionOwners
    shown: ShownOwners
    record: StreamRecord

    async def take(self, number: int = 0) -> VersionedOwner:
        name = self.record.partition(number)
        return await self.shown.take(name, "process")

    async def seen(self, number: int = 0) -> OwnerSeen:
        """Look for a partition's owner, as readers do."""
        return (await self.owners.look_for_owner(self.record.partition(number))).seen

    def session_of(self, owner: VersionedOwner) -> int | None:
        """The session that shows the owner's process as living; None if none does."""
        found = self.store.tree.find(owner.record.presence)
        return None if found is None else found.session_id


def process_of(metadata: Metadata, who: str) -> ShownOwners:
    """A process that takes partitions, and does nothing more for its owners."""
    owners = PartitionOwners(metadata, PATHS)
    return ShownOwners(metadata, PATHS, owners, random.Random(who))


@asynccontextmanager
async def open_site(
    partitions: int = 1, *, session_timeout_s: float = 6.0
) -> AsyncIterator[Site]:
    async with (
        open_memory_store() as store,
        store.open_session(session_timeout_s) as session,
    ):
        late = Late(session)
        counted = CountedMetadata(late)  # type: ignore[arg-type]
        owners = PartitionOwners(counted, PATHS)
        record = StreamRecord(
            name=NAME.stream,
            mode=StreamMode.GLOBAL,
            quorum=QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1),
            segment_bytes=1 << 20,
            created_us=0,
            life=NAME.life,
            partitions=partitions,
        )
        await session.ensure_path(PATHS.root)
        await StreamCatalog(session, PATHS).create(record, namespace_version=None)
        async with open_shown_owners(counted, PATHS, owners, random.Random(0)) as shown:
            yield Site(store, session, counted, late, owners, shown, record)
