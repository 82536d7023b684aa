"""A client that slept while its stream was deleted and made again writes nothing into it.

Versions of metadata nodes and epochs of owners start again with the new stream, so neither
distinguishes the two.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import VersionedOwner
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.seam import Operation
from geolog.protocol.ids import EntryId, InstanceId, Sequence
from geolog.protocol.ledger_state import Fragment, Member
from geolog.protocol.stream_state import PartitionName, SegmentRecord, StreamRecord
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.whole.clusters import World, open_world, partition_of
from tests.pure.whole.owner_sites import process_of
from topology.location import Location
from topology.quorum import QuorumConfig

NAME = "shop/again"


@attrs.define(eq=False)
class Sleeper:
    """A metadata session whose first write waits until others have done theirs."""

    real: MemoryMetadata
    is_asleep: trio.Event = attrs.field(factory=trio.Event)
    wakes: trio.Event = attrs.field(factory=trio.Event)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        self.is_asleep.set()
        await self.wakes.wait()
        return await self.real.multi(operations)

    async def put(self, path: str, data: bytes, version: int) -> int:
        self.is_asleep.set()
        await self.wakes.wait()
        return await self.real.put(path, data, version)


@attrs.frozen
class Site:
    """A stream whose owner has listed no segment yet, and now falls asleep."""

    world: World
    metadata: Sleeper
    name: PartitionName
    owner: VersionedOwner
    ledger: VersionedLedger

    @property
    def partitions(self) -> PartitionMetadata:
        """The partitions over the sleeper's session."""
        access = self.world.log.access
        return PartitionMetadata(self.metadata, access.paths, access.ledgers)  # type: ignore[arg-type]

    @property
    def catalog(self) -> StreamCatalog:
        """The streams over the sleeper's session."""
        return StreamCatalog(self.metadata, self.world.log.access.paths)  # type: ignore[arg-type]

    @property
    def segment(self) -> SegmentRecord:
        """The first segment, as the sleeper would list it."""
        return SegmentRecord(
            segment=1,
            ledger=self.ledger.record.ledger,
            home_epoch=1,
            first_sequence=Sequence(0),
            owner_epoch=self.owner.record.epoch,
            activated_us=0,
        )

    async def make_again(self) -> None:
        """Delete the stream, make it again, and let another client take its partition."""
        await self.world.log.delete_stream(NAME)
        await self.world.log.create_stream(NAME, survive="1 region")
        name = await partition_of(self.world.log, stream=NAME)
        other = await process_of(self.world.session, "other").take(name, "other")
        assert (other.version, other.record.epoch) == (
            self.owner.version,
            self.owner.record.epoch,
        )

    def stored(self) -> dict[str, bytes]:
        """Everything metadata has of the stream."""
        nodes = self.world.cluster.store.tree.nodes
        return {path: node.data for path, node in nodes.items() if f"/{NAME}" in path}


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    async with open_world() as world:
        await world.log.create_stream(NAME, survive="1 region")
        name = await partition_of(world.log, stream=NAME)
        access = world.log.access
        owner = await process_of(world.session, "sleeper").take(name, "sleeper")
        ledger = await allocated(access.ledgers)
        yield Site(world, Sleeper(world.session), name, owner, ledger)


async def allocated(ledgers: LedgerMetadata) -> VersionedLedger:
    quorum = QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1)
    member = Member(InstanceId("0" * 32), "node", Location.parse("/eu/rack"))
    return await ledgers.allocate(quorum, Fragment(EntryId(0), (member,)), stream=NAME)


async def activate(site: Site) -> None:
    await site.partitions.changes.activate(
        site.name, site.owner, closing=None, opening=site.ledger, segment=site.segment
    )


async def take(site: Site) -> None:
    process = process_of(site.world.session, "sleeper")  # It is shown before it falls asleep.
    await site.partitions.owners.take_ownership(site.name, "sleeper", process)


async def seal(site: Site) -> None:
    await site.partitions.owners.seal(site.name)


async def depose(site: Site) -> None:
    await site.partitions.owners.depose(site.name)


async def move_trim(site: Site) -> None:
    await site.partitions.trims.move(site.name, Sequence(5), now_us=0)


@pytest.mark.parametrize("write", [activate, take, seal, depose, move_trim])
async def test_a_client_that_slept_learns_that_its_stream_is_gone_and_changes_nothing(
    write: Callable[[Site], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async with open_site() as site:
        async with trio.open_nursery() as nursery:

            async def wake() -> None:
                await site.metadata.is_asleep.wait()
                await site.make_again()
                before.update(site.stored())
                site.metadata.wakes.set()

            before: dict[str, bytes] = {}
            nursery.start_soon(wake)
            with pytest.raises(geolog.NoSuchStreamError):
                await write(site)

        assert site.stored() == before


async def test_a_late_change_of_settings_applies_to_the_current_stream(
    autojump_clock: MockClock,
) -> None:
    def with_more_partitions(found: StreamRecord) -> StreamRecord:
        return attrs.evolve(found, partitions=2)

    async with open_site() as site:
        async with trio.open_nursery() as nursery:

            async def wake() -> None:
                await site.metadata.is_asleep.wait()
                await site.make_again()
                site.metadata.wakes.set()

            nursery.start_soon(wake)
            changed = await site.catalog.change(site.name.stream, with_more_partitions)

        assert changed.life != site.name.life
        assert changed.partition(0) == await partition_of(site.world.log, stream=NAME)
        async with site.world.log.open_writer(NAME) as writer:
            await writer.append(b"to one of two")
        await site.world.log.delete_stream(NAME)
        assert site.stored() == {}


async def test_a_late_delete_leaves_a_stream_made_since(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        catalog = StreamCatalog(site.world.session, site.world.log.access.paths)
        deleted = await catalog.begin_delete(site.name.stream)
        await site.make_again()
        before = site.stored()
        await catalog.delete(deleted)

        assert site.stored() == before


async def test_a_late_release_leaves_the_current_owners_session(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await site.make_again()
        before = site.stored()
        await site.world.log.access.partitions.owners.release_ownership(site.name, site.owner)

        assert site.stored() == before
