"""The in-memory metadata store: the answers to requests and the fate of sessions."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.seam import (
    BadVersionError,
    Check,
    Create,
    Delete,
    Freshness,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Put,
    SessionLostError,
    SessionState,
    Stored,
)
from sim.fakes.memory_metadata import MemoryMetadata, MemoryStore, open_memory_store
from topology.errors import (
    InvalidArgumentError,
    OutcomeUnknownError,
    TooLargeError,
    UnavailableError,
)


@asynccontextmanager
async def two_sessions() -> AsyncIterator[tuple[MemoryStore, MemoryMetadata, MemoryMetadata]]:
    async with (
        open_memory_store() as store,
        store.open_session(timeout_s=6.0) as one,
        store.open_session(timeout_s=6.0) as other,
    ):
        yield store, one, other


async def test_one_session_reads_nodes_of_another(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, other):
        assert await one.create("/a", b"x") == "/a"

        assert await other.get("/a") == Stored(b"x", version=0)
        assert await other.find("/b") is None
        assert await other.children("/") == ["a"]


async def test_put_is_a_compare_and_set(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/a", b"x")

        assert await one.put("/a", b"y", version=0) == 1
        with pytest.raises(BadVersionError, match="/a is at version 1, not 0"):
            await other.put("/a", b"z", version=0)
        assert await other.get("/a") == Stored(b"y", version=1)


async def test_requests_on_missing_nodes_are_refused(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, _other):
        for asked in (
            one.get("/a"),
            one.children("/a"),
            one.put("/a", b"", 0),
            one.delete("/a"),
            one.create("/a/b"),
        ):
            with pytest.raises(NoNodeError):
                await asked


async def test_only_a_childless_node_is_deleted(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, _other):
        await one.ensure_path("/a/b/c")

        with pytest.raises(NotEmptyError):
            await one.delete("/a/b")
        with pytest.raises(BadVersionError):
            await one.delete("/a/b/c", version=1)
        await one.delete("/a/b/c")
        await one.delete("/a/b", version=0)
        assert await one.children("/a") == []


async def test_a_multi_that_fails_does_nothing(autojump_clock: MockClock) -> None:
    async with two_sessions() as (store, one, _other):
        await one.create("/a", b"x")
        before = store.tree

        with pytest.raises(NodeExistsError):
            await one.multi([Create("/b"), Put("/a", b"y", 0), Create("/b"), Check("/no", 0)])

        assert store.tree == before
        assert await one.multi([Check("/a", 0), Put("/a", b"y", 0), Create("/b")]) == [
            None,
            1,
            "/b",
        ]
        assert await one.multi([]) == []


async def test_each_operation_of_a_multi_sees_those_before_it(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, _other):
        done = await one.multi(
            [Create("/a"), Create("/a/b"), Put("/a/b", b"x", 0), Delete("/a/b", 1)]
        )

        assert done == ["/a", "/a/b", 1, None]
        assert await one.get("/a") == Stored(b"", version=0)


async def test_sequential_names_count_all_children_ever_made(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, _other):
        await one.create("/a")

        assert await one.create("/a/n-", is_sequential=True) == "/a/n-0000000000"
        await one.create("/a/plain")
        await one.delete("/a/plain")
        assert await one.create("/a/m-", is_sequential=True) == "/a/m-0000000002"


async def test_an_ephemeral_node_names_the_session_that_it_goes_with(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/plain")
        await one.create("/e", is_ephemeral=True)

        assert (await other.get("/plain")).session_id == 0
        assert (await other.get("/e")).session_id == one.session_id


async def test_one_step_hands_an_ephemeral_node_on_to_another_session(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/e", is_ephemeral=True)
        await other.multi([Delete("/e"), Create("/e", is_ephemeral=True)])
        one.expire()

        assert (await one.get("/e")).session_id == other.session_id


async def test_an_ephemeral_node_has_no_children(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/a", is_ephemeral=True)

        assert (await other.get("/a")).is_ephemeral
        with pytest.raises(InvalidArgumentError, match="ephemeral"):
            await other.create("/a/b")


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//a", "/a/../b", "/a/./b", "/a\0", "/\ue000"]
)
async def test_a_path_that_is_not_normalised_is_refused(
    path: str, autojump_clock: MockClock
) -> None:
    async with two_sessions() as (_, one, _other):
        with pytest.raises(InvalidArgumentError):
            await one.find(path)
        with pytest.raises(InvalidArgumentError):
            await one.create(path)


async def test_a_request_over_the_limit_is_refused(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, _other):
        half = bytes(600_000)

        with pytest.raises(TooLargeError, match="over the limit of"):
            await one.multi([Create("/a", half), Create("/b", half)])


async def test_a_version_below_zero_is_refused_not_taken_for_any(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, _other):
        await one.create("/a")

        with pytest.raises(InvalidArgumentError):
            await one.put("/a", b"x", version=-1)


async def test_a_watch_fires_once_after_the_change(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, other):
        made, put, listed, deleted = (trio.Event() for _ in range(4))
        assert await other.find("/a", changed=made) is None
        await other.children("/", changed=listed)

        await one.create("/a")
        assert made.is_set()
        assert listed.is_set()
        await other.get("/a", changed=put)
        await one.put("/a", b"x", 0)
        assert put.is_set()
        await other.children("/a", changed=deleted)
        await one.delete("/a")
        assert deleted.is_set()


async def test_get_keeps_no_watch_on_a_missing_node(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, other):
        changed = trio.Event()
        with pytest.raises(NoNodeError):
            await other.get("/a", changed=changed)

        await one.create("/a")
        assert not changed.is_set()


async def test_a_closed_session_takes_its_ephemerals_along(autojump_clock: MockClock) -> None:
    async with open_memory_store() as store, store.open_session() as watcher:
        gone = trio.Event()
        async with store.open_session() as holder:
            await holder.create("/e", is_ephemeral=True)
            await watcher.get("/e", changed=gone)

        assert gone.is_set()
        assert await watcher.find("/e") is None
        assert store.statistics().sessions_count == 1


async def test_a_session_cut_off_expires_for_others_before_its_holder_knows(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, other):
        await holder.create("/e", is_ephemeral=True)
        holder.cut_off(noticed_after_s=4.0)

        await trio.sleep(5.9)
        assert holder.session_state is SessionState.SUSPENDED
        assert await other.find("/e") is not None
        await trio.sleep(0.2)
        assert await other.find("/e") is None
        assert holder.session_state is SessionState.SUSPENDED
        assert await holder.wait_state_change(SessionState.SUSPENDED) is SessionState.LOST
        assert trio.current_time() == pytest.approx(10.0)


async def test_a_late_cut_carries_out_what_is_asked_and_has_it_heard_at_its_beginning(
    autojump_clock: MockClock,
) -> None:
    heard_s: list[float] = []

    async def create(holder: MemoryMetadata) -> None:
        await holder.create("/late")
        heard_s.append(trio.current_time())

    async with two_sessions() as (_, holder, other), trio.open_nursery() as nursery:
        changed = trio.Event()
        await holder.find("/other", changed=changed)
        holder.cut_off(late_s=2.0)
        nursery.start_soon(create, holder)
        await other.create("/other")

        await trio.sleep(1.9)
        assert await other.find("/late") is not None
        assert (heard_s, changed.is_set()) == ([], False)
        await trio.sleep(0.2)
        assert heard_s == [pytest.approx(2.0)]
        assert changed.is_set()
        assert holder.session_state is SessionState.SUSPENDED


async def test_a_late_cut_that_is_restored_before_has_all_heard_and_keeps_the_session(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, other), trio.open_nursery() as nursery:
        session_id = holder.session_id
        holder.cut_off(late_s=2.0)
        nursery.start_soon(holder.create, "/late")
        await trio.sleep(1.0)
        holder.restore()
        await trio.sleep(9.0)

        assert await other.find("/late") is not None
        assert holder.session_id == session_id
        assert holder.session_state is SessionState.CONNECTED


async def test_a_short_cut_keeps_session_and_ephemerals(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, holder, other):
        await holder.create("/e", is_ephemeral=True)
        session_id = holder.session_id
        holder.cut_off()
        await trio.sleep(5.0)
        holder.restore()
        await trio.sleep(10.0)

        assert await other.find("/e") is not None
        assert holder.session_id == session_id
        assert holder.session_state is SessionState.CONNECTED


async def test_after_loss_a_new_session_begins_without_the_ephemerals(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, _other):
        session_id = holder.session_id
        await holder.create("/e", is_ephemeral=True)
        holder.cut_off()
        await holder.wait_state_change(SessionState.SUSPENDED)
        holder.restore()

        assert await holder.find("/e") is None
        assert holder.session_id != session_id


async def test_a_zombie_that_noticed_nothing_learns_it_at_its_next_request(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, zombie, other):
        session_id = zombie.session_id
        await zombie.create("/e", is_ephemeral=True)
        zombie.cut_off(noticed_after_s=math.inf)
        await trio.sleep(7.0)
        assert zombie.session_state is SessionState.CONNECTED
        assert await other.find("/e") is None

        zombie.restore()
        assert zombie.session_id != session_id


async def test_a_request_waiting_in_a_lost_session_is_not_sent_in_the_next(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, other):
        holder.cut_off()

        async def create_late() -> None:
            with pytest.raises(SessionLostError, match="nothing was asked"):
                await holder.create("/late")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create_late)
            await holder.wait_state_change(SessionState.SUSPENDED)
            holder.restore()
        assert await other.find("/late") is None


async def test_a_request_that_was_never_sent_is_refused_for_certain(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, _other):
        holder.cut_off()
        await holder.wait_state_change(SessionState.SUSPENDED)

        with pytest.raises(UnavailableError, match="no metadata server was reached"):
            await holder.create("/a")


async def test_a_write_cut_off_on_its_way_has_an_unknown_outcome(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_memory_store(round_trip_s=lambda: 1.0) as store,
        store.open_session() as holder,
        trio.open_nursery() as nursery,
    ):

        async def write() -> None:
            with pytest.raises(OutcomeUnknownError):
                await holder.create("/a")

        async def read() -> None:
            with pytest.raises(UnavailableError):
                await holder.find("/a")

        nursery.start_soon(write)
        nursery.start_soon(read)
        await trio.sleep(0.75)
        holder.cut_off()
        assert store.tree.find("/a") == Stored(b"", 0)


async def test_a_write_whose_answer_is_lost_was_done(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, holder, _other):
        holder.lose_next_answer()

        with pytest.raises(OutcomeUnknownError):
            await holder.create("/a")
        assert await holder.find("/a") is not None


async def test_a_lagging_session_reads_the_past_until_it_catches_up(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, laggard):
        made = trio.Event()
        laggard.lag()
        await laggard.find("/a", changed=made)
        await one.create("/a")

        assert await laggard.find("/a") is None
        assert not made.is_set()
        assert await laggard.find("/a", freshness=Freshness.LATEST) is not None
        assert made.is_set()


async def test_a_lagging_session_sees_its_own_writes(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, one, laggard):
        laggard.lag()
        await one.create("/a")
        await laggard.create("/b")

        assert await laggard.children("/") == ["a", "b"]


async def test_a_lagging_session_sees_the_cause_of_a_refused_write(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, laggard):
        await one.create("/a")
        await laggard.get("/a")
        laggard.lag()
        await one.put("/a", b"new", 0)

        with pytest.raises(BadVersionError):
            await laggard.put("/a", b"late", (await laggard.get("/a")).version)

        assert await laggard.get("/a") == Stored(b"new", 1)


async def test_a_new_session_at_a_server_that_is_behind_reads_nothing_old(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/a")
        other.lag_next()
        await one.put("/a", b"new", 0)

        other.expire()

        assert other.view.tree.get("/a").version == 0, "its server is not behind"
        assert await other.get("/a") == Stored(b"new", 1)


async def test_a_new_session_sees_the_write_whose_answer_was_lost_in_the_one_before(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, _one, other):
        other.lag_next()
        other.lose_next_answer()
        with pytest.raises(OutcomeUnknownError):
            await other.create("/a")

        other.expire()

        assert await other.find("/a") is not None


async def test_a_server_behind_earlier_answers_refuses_the_next_session(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        other.lag_next()
        await one.create("/a")
        await other.get("/a")

        other.expire()

        assert other.view.tree.find("/a") is not None
        assert await other.find("/a") is not None


async def test_a_session_can_end_with_the_answer_of_a_write(autojump_clock: MockClock) -> None:
    async with two_sessions() as (_, _one, other):
        session_id = other.session_id
        other.expire_after_write()
        assert await other.find("/a") is None
        assert other.session_id == session_id

        assert await other.create("/a") == "/a"
        assert other.session_id != session_id
        assert other.session_state is SessionState.CONNECTED
        assert await other.find("/a") is not None


async def test_watches_of_a_new_session_miss_nothing_where_its_server_is_behind(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        other.lag_next()
        other.expire()
        made = trio.Event()
        assert await other.find("/a", changed=made) is None
        other.lag()

        await one.create("/a")
        assert not made.is_set()
        other.catch_up()
        assert made.is_set()


async def test_a_read_that_was_under_way_as_its_session_ended_fails(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_memory_store(round_trip_s=lambda: 1.0) as store,
        store.open_session() as session,
        trio.open_nursery() as nursery,
    ):

        async def read() -> None:
            with pytest.raises(UnavailableError, match="reading again can help"):
                await session.find("/a", freshness=Freshness.LATEST)

        nursery.start_soon(read)
        await trio.sleep(0.75)
        session.expire()


async def test_a_deposed_leader_answers_from_old_state_until_a_quorum_is_asked(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, one, other):
        await one.create("/a")
        assert await other.find("/a") is not None
        other.lag_deposed()
        await one.put("/a", b"new", 0)

        assert await other.get("/a", freshness=Freshness.LATEST) == Stored(b"", 0)
        assert await other.get("/a", freshness=Freshness.CERTAIN) == Stored(b"new", 1)
        other.lag_deposed()
        await one.put("/a", b"newer", 1)
        await other.create("/b")
        assert await other.get("/a") == Stored(b"newer", 2), "a write takes a quorum too"


async def test_a_cut_sets_the_watches_since_changes_may_be_missed(
    autojump_clock: MockClock,
) -> None:
    async with two_sessions() as (_, holder, _other):
        changed = trio.Event()
        await holder.find("/a", changed=changed)
        holder.cut_off()

        assert changed.is_set()


async def test_an_error_in_the_block_propagates_unchanged(autojump_clock: MockClock) -> None:
    with pytest.raises(NoNodeError):
        async with open_memory_store() as store, store.open_session() as metadata:
            await metadata.get("/a")


async def test_a_dead_holder_is_cleaned_up_after_its_session_expired(
    autojump_clock: MockClock,
) -> None:
    async with open_memory_store() as store, store.open_session(timeout_s=6.0) as other:
        async with store.open_session(timeout_s=6.0) as holder:
            await holder.create("/e", is_ephemeral=True)
            holder.cut_off()
            holder.leave()
            await trio.sleep(7)

        assert await other.find("/e") is None


async def test_a_crashed_holder_leaves_its_session_to_expire(autojump_clock: MockClock) -> None:
    async with open_memory_store() as store, store.open_session() as other:
        async with store.open_session(timeout_s=6.0) as holder:
            await holder.create("/e", is_ephemeral=True)
            holder.cut_off()

        assert await other.find("/e") is not None
        await trio.sleep(6.1)
        assert await other.find("/e") is None
        assert store.statistics().sessions_count == 1
