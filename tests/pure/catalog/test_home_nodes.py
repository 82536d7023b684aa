"""A home record whose forks are in nodes of their own: each is read once, and goes with it."""

from collections import Counter

import pytest
import trio

from geolog.catalog.stream_catalog import StreamCatalog
from geolog.catalog.stream_homes import StreamHomes
from geolog.metadata.documents import seal_document
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Create, Freshness, Operation, Stored
from geolog.protocol.home_record import Fork, ForksRecord, HomeRecord
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.stream_state import PartitionName, StreamMode, StreamName, StreamRecord
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from topology.errors import UnavailableError
from topology.quorum import QuorumConfig
from topology.stream_policy import PlacementTerms, PolicyKind

PATHS = ClusterPaths("default")
RECORD = StreamRecord(
    name=StreamName("shop", "orders"),
    life="1",
    mode=StreamMode.REGIONAL,
    quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2),
    partitions=1,
    segment_bytes=1 << 20,
    retention_s=None,
    created_us=0,
    placement=PlacementTerms(policy=PolicyKind.RACK_AWARE, region="earth"),
)
NAME = PartitionName(RECORD.name, 0, RECORD.life)
HOME = PATHS.home(RECORD.name, RECORD.life)
APART = (3, 5)


def fork(home_epoch: int) -> Fork:
    return Fork(
        home_epoch=home_epoch,
        segment=home_epoch,
        entry=SegmentEntry(0),
        sequence=Sequence(0),
    )


async def make_stream(metadata: MemoryMetadata) -> None:
    """Make a stream whose home has moved five times."""
    namespace = PATHS.namespace(RECORD.name.namespace)
    await metadata.ensure_path(namespace)
    await StreamCatalog(metadata, PATHS).create(RECORD, namespace_version=0)
    await metadata.delete(HOME)
    forks = tuple(map(fork, range(2, 7)))
    record = HomeRecord(region="earth", home_epoch=6, forks=(forks,), forks_apart=APART)
    await metadata.multi([Create(HOME, seal_document(record))])
    for first, last in ((2, 3), (4, 5)):
        apart = ForksRecord((tuple(map(fork, range(first, last + 1))),))
        path = PATHS.forks_apart(RECORD.name, RECORD.life, last)
        await metadata.multi([Create(path, seal_document(apart))])


def count_finds(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each node is read from now on."""
    finds: Counter[str] = Counter()
    find = MemoryMetadata.find

    async def counted(
        metadata: MemoryMetadata,
        path: str,
        *,
        freshness: Freshness = Freshness.NEARBY,
        changed: trio.Event | None = None,
    ) -> Stored | None:
        finds[path] += 1
        return await find(metadata, path, freshness=freshness, changed=changed)

    monkeypatch.setattr(MemoryMetadata, "find", counted)
    return finds


async def test_forks_that_are_stored_apart_are_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        await make_stream(metadata)
        homes, finds = StreamHomes(metadata, PATHS), count_finds(monkeypatch)
        found = [
            await homes.read_latest(RECORD.name, RECORD.life),
            await homes.read_latest(RECORD.name, RECORD.life),
        ]
        watched = await homes.watch(NAME, changed=trio.Event())
        forks = await homes.forks_of(NAME)

    assert forks == tuple(map(fork, range(2, 7)))
    assert [None if one is None else one.record for one in found] == [watched, watched]
    assert watched is not None
    assert watched.forks_of(0) == forks
    assert [finds[PATHS.forks_apart(RECORD.name, RECORD.life, one)] for one in APART] == [1, 1]


async def test_a_home_is_deleted_with_its_nodes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader meanwhile finds all of it, or nothing."""
    async with open_memory_store() as store, store.open_session() as metadata:
        await make_stream(metadata)
        seen: list[str] = []
        multi = MemoryMetadata.multi

        async def seen_between(asked: MemoryMetadata, operations: list[Operation]) -> object:
            answer = await multi(asked, operations)
            try:
                home = await StreamHomes(metadata, PATHS).read_latest(RECORD.name, RECORD.life)
            except UnavailableError as error:
                seen.append(str(error))
            else:
                seen.append("none" if home is None else "whole")
            return answer

        monkeypatch.setattr(MemoryMetadata, "multi", seen_between)
        await StreamCatalog(metadata, PATHS).delete(RECORD)
        left = await metadata.find(PATHS.stream(RECORD.name))

    assert left is None
    assert set(seen) == {"whole", "none"}
