"""A ledger goes when nobody needs it: on proof, after its grace time, and for ever."""

import itertools
from collections.abc import AsyncIterator

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import ClusterRecord
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Freshness, Stored
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import (
    AddRefused,
    AddsSynced,
    Answer,
    Fenced,
    LedgerOpened,
    ProbeAnswer,
    ReadAnswer,
    Reason,
    Refused,
)
from regions.storage.config import StorageConfig
from regions.storage.protocol.garbage import Disposal, GarbageWatch
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.storage.nodes import BareClient, World, a_config, a_world
from topology.location import Location
from topology.quorum import QuorumConfig

HERE, ELSEWHERE = InstanceId("a" * 32), InstanceId("b" * 32)
QUORUM = QuorumConfig(ensemble_size=1, write_quorum=1, ack_quorum=1)
GRACE_S = 600.0
PATHS = ClusterPaths("default")


def config_quick() -> StorageConfig:
    return attrs.evolve(a_config(), garbage_interval_s=10.0, garbage_grace_s=GRACE_S)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as world:
        yield world


def fragment_of(instance: InstanceId) -> Fragment:
    member = Member(instance, "node-1", Location.parse("/here/rack-1"))
    return Fragment(EntryId(0), (member,))


@attrs.frozen
class Owner:
    """Makes, closes and deletes ledgers in metadata."""

    metadata: MemoryMetadata
    ledgers: LedgerMetadata

    async def allocate(self, instance: InstanceId) -> VersionedLedger:
        return await self.ledgers.allocate(QUORUM, fragment_of(instance), stream="a/b")

    async def open(self, instance: InstanceId) -> VersionedLedger:
        made = await self.allocate(instance)
        return await self.ledgers.replace(made, made.record.opened())

    async def close(self, read: VersionedLedger) -> VersionedLedger:
        return await self.ledgers.replace(read, read.record.closed(EntryId(0)))

    async def delete(self, read: VersionedLedger) -> None:
        await self.ledgers.forget(read)


@pytest.fixture
async def owner(world: World) -> AsyncIterator[Owner]:
    async with world.store.open_session() as metadata:
        yield Owner(metadata, LedgerMetadata(metadata, PATHS))


async def check_refuses_all(client: BareClient, ledger: LedgerId) -> None:
    for request in (
        client.open(9, ledger),
        attrs.evolve(client.fence(9), ledger=ledger),
        client.reading(0, 1, ledger=ledger),
        client.following(0, ledger=ledger),
    ):
        await client.send(request)
        assert (await client.receive_one(Refused)).reason is Reason.NO_SUCH_LEDGER
    for is_recovery in (False, True):
        client.added_through += 1
        await client.send(
            client.add(
                client.added_through, 0, b"x", epoch=9, recovery=is_recovery, ledger=ledger
            )
        )
        refused = await client.receive_one(AddRefused)
        assert refused.reason is Reason.NO_SUCH_LEDGER


async def check_takes_copies_alone(
    client: BareClient, ledger: LedgerId, *, entry: int = 0
) -> None:
    """Its writer is refused, nothing is reported absent, and copies are taken."""
    await client.send(client.open(9, ledger))
    assert (await client.receive_one(Refused)).reason is Reason.FENCED
    client.added_through += 1
    late = client.add(client.added_through, entry, b"late", epoch=9, ledger=ledger)
    await client.send(late)
    assert (await client.receive_one(AddRefused)).reason is Reason.FENCED
    await client.send(attrs.evolve(client.probing(entry, 1), ledger=ledger))
    assert (await client.receive_one(ProbeAnswer)).answers == (Answer.UNKNOWN,)
    await store_copy(client, ledger, entry=entry)


async def store_copy(client: BareClient, ledger: LedgerId, *, entry: int = 0) -> None:
    """Bring an entry like recovery and copiers do."""
    client.added_through += 1
    copy = client.add(client.added_through, entry, b"zero", recovery=True, ledger=ledger)
    await client.send(copy)
    await client.receive_one(AddsSynced)
    assert await is_held(client, ledger, entry=entry)


async def is_held(client: BareClient, ledger: LedgerId, *, entry: int = 0) -> bool:
    await client.send(client.reading(entry, 1, ledger=ledger))
    answer = await client.receive()
    return isinstance(answer, ReadAnswer) and answer.entries[0].answer is Answer.HAVE


async def test_a_deleted_ledger_refuses_everything_for_ever(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = await owner.open(node.instance)
        kept = await owner.open(node.instance)
        for each in (ledger, kept):
            await client.store(b"zero", ledger=each.record.ledger)
        await owner.delete(ledger)
        await trio.sleep(GRACE_S - 20)
        assert await is_held(client, ledger.record.ledger)
        await trio.sleep(60)
        await check_refuses_all(client, ledger.record.ledger)
        assert await is_held(client, kept.record.ledger)
        assert node.garbage.counts.ledgers_deleted == 1
    for _ in range(2):
        async with world.node() as node, world.client(node) as client:
            await check_refuses_all(client, ledger.record.ledger)
            assert await is_held(client, kept.record.ledger)


async def test_a_closed_ledger_that_others_hold_is_let_go_and_stays_fenced(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        elsewhere, here = await owner.open(ELSEWHERE), await owner.open(node.instance)
        unclosed = await owner.open(ELSEWHERE)
        for each in (elsewhere, here, unclosed):
            await client.store(b"zero", ledger=each.record.ledger)
        await owner.close(elsewhere)
        await owner.close(here)
        await trio.sleep(GRACE_S * 2)
        await check_takes_copies_alone(client, elsewhere.record.ledger)
        assert await is_held(client, here.record.ledger)
        assert await is_held(client, unclosed.record.ledger)
        assert node.garbage.counts.ledgers_let_go == 1
        assert node.garbage.counts.ledgers_deleted == 0
    for entry in (1, 2):
        async with world.node() as node, world.client(node) as client:
            await check_takes_copies_alone(client, elsewhere.record.ledger, entry=entry)


async def test_a_ledger_that_was_let_go_is_held_again_as_long_as_it_is_needed(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        read = await owner.close(await owner.open(ELSEWHERE))
        ledger = read.record.ledger
        await client.store(b"zero", ledger=ledger)
        await trio.sleep(GRACE_S * 2)
        assert not await is_held(client, ledger)
        await owner.ledgers.replace(read, read.record.with_arriving([node.instance]))
        await store_copy(client, ledger)
        await trio.sleep(GRACE_S * 3)
        assert await is_held(client, ledger)
    async with world.node(config_quick()) as node, world.client(node) as client:
        assert await is_held(client, ledger)


async def test_a_probed_ledger_stays_for_the_whole_grace_time(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = (await owner.close(await owner.open(ELSEWHERE))).record.ledger
        await client.store(b"zero", ledger=ledger)
        for _ in range(4):
            await trio.sleep(GRACE_S - 50)
            await client.send(attrs.evolve(client.probing(0, 1), ledger=ledger))
            assert (await client.receive_one(ProbeAnswer)).answers == (Answer.HAVE,)


async def test_leftovers_of_a_ledger_that_was_let_go_are_removed(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    config = attrs.evolve(
        config_quick(),
        journal_file_bytes=1 << 20,
        compaction_interval_s=10.0,
        compaction_live_share_max=0.75,
    )
    async with world.node(config) as node, world.client(node) as client:
        gone, kept = await owner.open(ELSEWHERE), await owner.open(node.instance)
        both = [each.record.ledger for each in (gone, kept)]
        for ledger in both:
            await client.store(ledger=ledger)
        for entry, ledger in itertools.product(range(20), both):
            client.added_through += 1
            body = bytes(100_000)
            await client.send(client.add(client.added_through, entry, body, ledger=ledger))
            await client.receive_one(AddsSynced)
        await owner.close(gone)
        await trio.sleep(GRACE_S * 2)
        assert node.service.stores[0].statistics().entries.entries_count < 30
        assert await is_held(client, kept.record.ledger)
        await store_copy(client, gone.record.ledger)
    async with world.node(config) as node, world.client(node) as client:
        assert await is_held(client, kept.record.ledger)
        assert await is_held(client, gone.record.ledger)


async def test_a_node_that_knows_a_higher_epoch_lets_nothing_go(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = (await owner.close(await owner.open(ELSEWHERE))).record.ledger
        await client.store(b"zero", ledger=ledger)
        await client.send(attrs.evolve(client.fence(7), ledger=ledger))
        await client.receive_one(Fenced)
        await trio.sleep(GRACE_S * 3)
        assert await is_held(client, ledger)


async def test_arriving_copies_stay_however_long_their_copier_pauses(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        read = await owner.close(await owner.open(ELSEWHERE))
        announced = read.record.with_arriving([node.instance])
        read = await owner.ledgers.replace(read, announced)
        await client.store(b"zero", ledger=read.record.ledger)
        await trio.sleep(3 * GRACE_S)
        assert await is_held(client, read.record.ledger)

        await owner.ledgers.replace(read, announced.without_arriving([node.instance]))
        await trio.sleep(2 * GRACE_S)
        assert not await is_held(client, read.record.ledger)


async def test_a_ledger_made_while_metadata_is_asked_is_no_sign_of_old_metadata(
    autojump_clock: MockClock,
    world: World,
    owner: Owner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world.node() as node, world.client(node) as client:
        await owner.open(node.instance)
        find = MemoryMetadata.find

        async def find_and_make_one(
            session: MemoryMetadata,
            path: str,
            *,
            changed: trio.Event | None = None,
            freshness: Freshness = Freshness.NEARBY,
        ) -> Stored | None:
            found = await find(session, path, changed=changed, freshness=freshness)
            if session is world.node_session and path == PATHS.ledger_next:
                made = await owner.open(node.instance)
                await client.store(b"zero", ledger=made.record.ledger)
            return found

        monkeypatch.setattr(MemoryMetadata, "find", find_and_make_one)
        for _ in range(3):
            await node.garbage.look_at_all()
        assert node.service.statistics().ledgers_count == 3
    assert "older" not in caplog.text


async def test_an_add_within_the_grace_time_restarts_it(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = await owner.open(ELSEWHERE)
        await client.store(b"zero", ledger=ledger.record.ledger)
        await owner.close(ledger)
        for entry in range(1, 5):  # A copier that brings one entry after the other.
            await trio.sleep(GRACE_S - 50)
            await client.send(
                client.add(1 + entry, entry, b"x", recovery=True, ledger=ledger.record.ledger)
            )
            await client.receive_one(AddsSynced)
            client.added_through = 1 + entry
        await trio.sleep(GRACE_S + 50)
        assert not await is_held(client, ledger.record.ledger)


async def test_nothing_is_deleted_while_metadata_is_away(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = await owner.open(node.instance)
        await client.store(b"zero", ledger=ledger.record.ledger)
        await owner.delete(ledger)
        await trio.sleep(GRACE_S / 2)
        world.node_session.cut_off()
        await trio.sleep(GRACE_S * 3)
        assert await is_held(client, ledger.record.ledger)
        world.node_session.restore()
        await trio.sleep(GRACE_S)
        assert not await is_held(client, ledger.record.ledger)


@pytest.mark.parametrize("what", ["no cluster", "another cluster", "an older store", "rot"])
async def test_nothing_is_deleted_once_metadata_has_changed_identity(
    autojump_clock: MockClock, world: World, owner: Owner, what: str
) -> None:
    async with world.node(config_quick()) as node, world.client(node) as client:
        ledger = await owner.open(node.instance)
        path = PATHS.ledger(ledger.record.ledger)
        await client.store(b"zero", ledger=ledger.record.ledger)
        if what == "rot":
            await owner.metadata.put(path, b"{}", ledger.version)
        else:
            await owner.delete(ledger)
            if what == "an older store":
                await owner.metadata.put(PATHS.ledger_next, b"1", 1)
            else:
                await owner.metadata.delete(PATHS.cluster)
            if what == "another cluster":
                other = ClusterRecord("f" * 32)
                await owner.metadata.create(PATHS.cluster, seal_document(other))
        await trio.sleep(GRACE_S * 3)
        assert await is_held(client, ledger.record.ledger)
        assert node.garbage.counts.ledgers_deleted == 0


async def test_an_allocated_ledger_that_nobody_activates_expires(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    config = attrs.evolve(config_quick(), allocated_expiry_s=2400.0)
    async with world.node(config) as node, world.client(node) as client:
        old = await owner.allocate(node.instance)
        await client.send(client.open(ledger=old.record.ledger))
        await client.receive_one(LedgerOpened)
        await trio.sleep(2300)
        await owner.allocate(
            node.instance
        )  # The cluster is active, so its time is known to advance.
        assert await owner.metadata.find(PATHS.ledger(old.record.ledger)) is not None
        await trio.sleep(200)
        await owner.allocate(node.instance)
        await trio.sleep(60)
        assert await owner.metadata.find(PATHS.ledger(old.record.ledger)) is None
        assert node.garbage.counts.allocated_expired == 1
        await trio.sleep(GRACE_S + 60)
        await check_refuses_all(client, old.record.ledger)


async def test_a_staging_ledger_expires_at_the_age_that_its_record_says(
    autojump_clock: MockClock, world: World, owner: Owner
) -> None:
    async with world.node(config_quick()) as node:
        made = await owner.allocate(node.instance)
        opened = made.record.opened_for_staging("a/b", expires_after_s=2400.0)
        staged = await owner.ledgers.replace(made, opened)
        await owner.ledgers.replace(staged, opened.closed(EntryId(-1)))
        async with world.client(node) as client:
            await client.send(client.open(ledger=made.record.ledger))
            await client.receive_one(LedgerOpened)
            for waited_s, is_there in ((2300, True), (200, False)):
                await trio.sleep(waited_s)
                await owner.allocate(node.instance)  # The cluster's time is known to advance.
                await trio.sleep(30)
                found = await owner.metadata.find(PATHS.ledger(made.record.ledger))
                assert (found is not None) is is_there
        assert node.garbage.counts.staging_expired == 1


def a_record(state: LedgerState, instance: InstanceId) -> LedgerRecord:
    return LedgerRecord(
        ledger=LedgerId(1),
        state=state,
        epoch=Epoch(1),
        quorum=QUORUM,
        fragments=(fragment_of(instance),),
        last_entry=EntryId(0) if state is LedgerState.CLOSED else None,
    )


records = st.one_of(
    st.none(),
    st.builds(a_record, st.sampled_from(LedgerState), st.sampled_from([HERE, ELSEWHERE])),
)
events = st.lists(st.tuples(st.one_of(st.just("asked"), records), st.integers(0, 6)))


@given(events)
def test_garbage_was_garbage_for_the_whole_grace_time_and_nobody_asked_for_it(
    history: list[tuple[LedgerRecord | str | None, int]],
) -> None:
    watch, now_s = GarbageWatch(HERE, grace_s=10.0), 0.0
    since_s: float | None = None
    for seen, pause_s in history:
        now_s += pause_s
        if isinstance(seen, str):
            watch.on_asked(LedgerId(1))
            since_s = None
            continue
        is_needed = seen is not None and (
            seen.state is not LedgerState.CLOSED or seen.fragments == (fragment_of(HERE),)
        )
        since_s = None if is_needed else (now_s if since_s is None else since_s)
        is_ripe = since_s is not None and now_s - since_s >= 10
        due = Disposal.DELETE if seen is None else Disposal.LET_GO
        expected = due if is_ripe else Disposal.KEEP
        assert watch.on_look(LedgerId(1), seen, now_s=now_s) is expected


def test_a_ledger_let_go_is_left_alone_until_requested_or_its_record_goes() -> None:
    watch, ledger = GarbageWatch(HERE, grace_s=10.0), LedgerId(1)
    elsewhere = a_record(LedgerState.CLOSED, ELSEWHERE)
    watch.on_let_go(ledger)

    assert watch.on_look(ledger, elsewhere, now_s=100.0) is Disposal.KEEP
    assert watch.on_look(ledger, None, now_s=200.0) is Disposal.KEEP
    assert watch.on_look(ledger, None, now_s=210.0) is Disposal.DELETE
    watch.on_asked(ledger)
    assert watch.on_look(ledger, elsewhere, now_s=300.0) is Disposal.KEEP
    assert watch.on_look(ledger, elsewhere, now_s=310.0) is Disposal.LET_GO
