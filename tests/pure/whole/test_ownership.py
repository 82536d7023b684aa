"""Owning a partition: certainly one owner at a time; released if a takeover is abandoned."""

import math
from collections.abc import Awaitable, Callable

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_metadata import PartitionMetadata
from geolog.catalog.partition_owners import PartitionOwners
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Operation
from geolog.protocol.ids import EntryId, Epoch, InstanceId, Sequence
from geolog.protocol.ledger_state import Fragment, Member
from geolog.protocol.stream_state import (
    PartitionName,
    SegmentRecord,
    StreamMode,
    StreamName,
    StreamRecord,
)
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import (
    die_before_the_lac_is_told,
    numbered,
    open_world,
    partition_of,
    values_of,
)
from tests.pure.whole.owner_sites import PATHS, process_of
from topology.errors import FencedError, OutcomeUnknownError
from topology.location import Location
from topology.quorum import QuorumConfig

STREAM = "shop/orders"
NAME = PartitionName(StreamName.parse(STREAM), life="1")
QUORUM = QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1)


# Metadata only.


@attrs.frozen
class Rival:
    """A metadata session on which another's request comes first and one's own is lost."""

    real: MemoryMetadata
    comes_first: Callable[[], Awaitable[object]]
    is_over: list[bool] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)

    async def multi(self, operations: list[Operation]) -> list[str | int | None]:
        if self.is_over:
            return await self.real.multi(operations)
        self.is_over.append(True)
        await self.comes_first()
        raise OutcomeUnknownError("the request was lost")


def stream_record() -> StreamRecord:
    return StreamRecord(
        name=NAME.stream,
        mode=StreamMode.GLOBAL,
        quorum=QUORUM,
        segment_bytes=1 << 20,
        created_us=0,
        life=NAME.life,
    )


def segment_of(ledger: VersionedLedger) -> SegmentRecord:
    return SegmentRecord(
        segment=1,
        ledger=ledger.record.ledger,
        home_epoch=1,
        first_sequence=Sequence(0),
        owner_epoch=Epoch(1),
        activated_us=0,
    )


async def allocated(ledgers: LedgerMetadata) -> VersionedLedger:
    member = Member(InstanceId("0" * 32), "node", Location.parse("/eu/rack"))
    return await ledgers.allocate(QUORUM, Fragment(EntryId(0), (member,)), stream=STREAM)


async def test_two_writers_of_one_process_do_not_both_take_an_epoch(
    autojump_clock: MockClock,
) -> None:
    """The success of another writer is not mistaken for one's own lost answer."""
    async with open_memory_store() as store, store.open_session() as session:
        owners = []
        process = process_of(session, "process")

        async def take_first() -> None:
            owners.append(await process.take(NAME, "process"))

        rival = Rival(session, take_first)
        await session.ensure_path(PATHS.root)
        await StreamCatalog(session, PATHS).create(stream_record(), namespace_version=None)
        other = process_of(rival, "process")  # type: ignore[arg-type]
        owners.append(await other.take(NAME, "process"))

    assert [owner.record.epoch for owner in owners] == [1, 2]


async def test_another_owners_activation_is_not_mistaken_for_ones_own(
    autojump_clock: MockClock,
) -> None:
    """The segment and its ledger are compared: epoch and number may be the same."""
    async with open_memory_store() as store, store.open_session() as session:
        ledgers = LedgerMetadata(session, PATHS)
        partitions = PartitionMetadata(session, PATHS, ledgers)
        await session.ensure_path(PATHS.root)
        await StreamCatalog(session, PATHS).create(stream_record(), namespace_version=None)
        owner = await process_of(session, "process").take(NAME, "process")
        mine, theirs = await allocated(ledgers), await allocated(ledgers)
        await partitions.changes.activate(
            NAME, owner, closing=None, opening=theirs, segment=segment_of(theirs)
        )

        with pytest.raises(FencedError):
            await partitions.changes.activate(
                NAME, owner, closing=None, opening=mine, segment=segment_of(mine)
            )


# Whole clusters.


@pytest.mark.parametrize("tenths", sampled(range(1, 16), one_in=3))
async def test_an_abandoned_takeover_does_not_block_readers(
    tenths: int, autojump_clock: MockClock
) -> None:
    """Its process lives on, so nobody would ever consider the owner dead."""
    async with open_world() as world:
        with pytest.raises(ZeroDivisionError):
            await die_before_the_lac_is_told(world)
        await trio.sleep(10)
        world.cluster.store.round_trip_s = lambda: 0.1
        with trio.move_on_after(tenths / 10):
            async with world.log.open_writer(STREAM):
                await trio.sleep_forever()
        world.cluster.store.round_trip_s = lambda: 0.0

        async with world.cluster.open_client("eu-west", host="reads") as log:
            with trio.fail_after(20):
                assert await values_of(log) == numbered(3)


async def test_an_owner_fenced_before_its_activation_is_answered_learns_of_it(
    autojump_clock: MockClock,
) -> None:
    """It sleeps while metadata's answer waits, and another owner takes over."""
    async with open_world() as world:
        sessions: list[MemoryMetadata] = []
        outcomes: list[str] = []

        async def write() -> None:
            async with world.cluster.open_client(
                "us-east", host="sleeper", on_session=sessions.append
            ) as log:
                try:
                    async with log.open_writer(STREAM) as writer:
                        await writer.append(b"never")
                except geolog.GeologError as error:
                    outcomes.append(error.outcome)

        async with trio.open_nursery() as nursery:
            world.cluster.store.round_trip_s = lambda: 0.1
            nursery.start_soon(write)
            first_segment = ClusterPaths("default").segment(await partition_of(world.log), 1)
            while world.cluster.store.tree.find(first_segment) is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
            sessions[0].cut_off(noticed_after_s=math.inf)
            world.cluster.store.round_trip_s = lambda: 0.0
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"of the second")
                for node_id in world.cluster.nodes:
                    world.cluster.network.reset("sleeper", node_id)
                await trio.sleep(3)
                sessions[0].restore()
                await trio.sleep(3)

        assert await values_of(world.log) == [b"of the second"]
        assert outcomes == ["refused"]


@pytest.mark.parametrize("rivals", [2, 6])
async def test_many_concurrent_recoveries_over_slow_links_finish(
    rivals: int, autojump_clock: MockClock
) -> None:
    """Each one raises the epoch of the one before; they must still finish."""
    async with open_world() as world:
        with pytest.raises(ZeroDivisionError):
            await die_before_the_lac_is_told(world)
        await trio.sleep(10)
        world.cluster.network.latency_s = lambda one, other: 0.15
        world.cluster.store.round_trip_s = lambda: 0.3
        read: list[list[bytes]] = []

        async def read_all(host: str) -> None:
            async with world.cluster.open_client("us-east", host=host) as log:
                read.append(await values_of(log))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for number in range(rivals):
                    nursery.start_soon(read_all, f"reader-{number}")

    assert read == [numbered(3)] * rivals


async def test_nobody_can_take_over_a_stream_that_is_being_deleted(
    autojump_clock: MockClock,
) -> None:
    """Records appended meanwhile would be acknowledged and then deleted."""
    async with open_world() as world:
        owners = PartitionOwners(world.session, ClusterPaths("default"))
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
        await owners.depose(await partition_of(world.log))

        with pytest.raises(geolog.NoSuchStreamError):
            async with world.log.open_writer(STREAM):
                pass
        with pytest.raises(geolog.NoSuchStreamError):
            await world.log.seal_stream(STREAM)
        await world.log.delete_stream(STREAM)  # Re-run the interrupted delete.
        assert await world.log.list_streams() == []
