"""Lost members of the open ledger are replaced, in a whole cluster."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.ledger.ledger_metadata import LedgerMetadata, VersionedLedger
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairQueue
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerState
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster, open_in_process_cluster
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import STREAM, append_each, ended_by, numbered, values_of

PATHS = ClusterPaths("default")


@attrs.frozen
class Place:
    """A cluster with one stream, its owner, and a view of the open ledger."""

    cluster: InProcessCluster
    log: geolog.Log
    session: MemoryMetadata
    observer: MemoryMetadata
    """A metadata session without faults."""

    async def ensemble(self) -> list[str]:
        """The node ids of the last segment's members."""
        return (await self.log.list_segments(STREAM))[-1].ensemble

    async def ledger(self) -> VersionedLedger:
        """The last segment's ledger."""
        number = (await self.log.list_segments(STREAM))[-1].ledger
        return await LedgerMetadata(self.observer, PATHS).read_latest(LedgerId(number))

    async def fragments(self) -> list[tuple[int, list[str]]]:
        """First entry and members of each fragment."""
        return [
            (fragment.first_entry, [member.node_id for member in fragment.ensemble])
            for fragment in (await self.ledger()).record.fragments
        ]

    async def is_whole(self) -> None:
        """Check, with all nodes up, that each entry is on an ack set of its fragment."""
        for node in self.cluster.nodes.values():
            if not node.is_running:
                await self.cluster.start(node.node_id)
        await trio.sleep(3)  # Connections wait between two tries.
        report = await self.log.verify_stream(STREAM)
        assert report.is_good, report.problems

    async def wants_repair(self) -> dict[int, list[str]]:
        """The ledgers in the repair queue, and their reasons."""
        queue = RepairQueue(self.observer, PATHS, now_us=lambda: 0)
        return {
            one.record.ledger: [why.value for why in one.record.reasons]
            for one in await queue.list()
        }


@asynccontextmanager
async def open_place(
    regions: dict[str, int] | None = None, *, ack_quorum: int = 3, min_regions: int = 1
) -> AsyncIterator[Place]:
    """Open a stream with three copies, all of them needed by default."""
    sessions: list[MemoryMetadata] = []
    async with (
        open_in_process_cluster(regions or {"us-east": 5}) as cluster,
        cluster.store.open_session() as observer,
        cluster.open_client("us-east", host="client", on_session=sessions.append) as log,
    ):
        await log.create_stream(
            STREAM,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=ack_quorum,
            min_regions=min_regions,
        )
        yield Place(cluster, log, sessions[0], observer)


async def test_appends_go_on_in_the_ledger_within_two_seconds_after_a_needed_member_is_killed(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            before = await place.ensemble()
            await place.cluster.kill(before[1])
            with trio.fail_after(2):
                await append_each(writer, numbered(3, start=3))

            (_, old), (first, new) = await place.fragments()
        segments = await place.log.list_segments(STREAM)
        await place.is_whole()

        assert await values_of(place.log) == numbered(6)
    assert (old, first) == (before, 3)
    assert [one for one in new if one != new[1]] == [before[0], before[2]]
    assert new[1] not in before
    assert len(segments) == 1


async def test_a_ledger_without_acknowledged_entries_gets_no_empty_fragment(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            before = await place.ensemble()
            await place.cluster.kill(before[0])
            await writer.append(b"first")

            ((first, members),) = await place.fragments()
        assert await values_of(place.log) == [b"first"]
    assert first == 0
    assert before[0] not in members


async def test_two_members_lost_in_succession_are_both_replaced(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            for number, value in enumerate(numbered(3)):
                await writer.append(value)
                if number < 2:
                    await place.cluster.kill((await place.ensemble())[0])

            assert [first for first, _ in await place.fragments()] == [0, 1, 2]
        assert await values_of(place.log) == numbered(3)


async def test_a_member_that_is_away_briefly_keeps_its_place(
    autojump_clock: MockClock,
) -> None:
    async with open_place(ack_quorum=2) as place, place.log.open_writer(STREAM) as writer:
        await writer.append(b"one")
        before = await place.ensemble()
        await place.cluster.kill(before[0])
        await writer.append(b"two")
        await trio.sleep(1)
        await place.cluster.start(before[0])
        await trio.sleep(20)
        await writer.append(b"three")

        assert await place.fragments() == [(0, before)]


async def test_a_member_that_stays_away_is_replaced_even_if_it_is_not_needed(
    autojump_clock: MockClock,
) -> None:
    async with open_place(ack_quorum=2) as place:
        async with place.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            before = await place.ensemble()
            await place.cluster.kill(before[0])
            await trio.sleep(15)
            await writer.append(b"two")

            (_, (first, after)) = await place.fragments()
        assert (first, after[1:]) == (1, before[1:])
        assert await values_of(place.log) == [b"one", b"two"]


async def test_a_needed_member_that_does_not_answer_is_replaced_after_the_add_timeout(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place, place.log.open_writer(STREAM) as writer:
        await writer.append(b"one")
        before = await place.ensemble()
        place.cluster.network.cut("client", before[2])
        with trio.fail_after(4):
            await writer.append(b"two")

        assert before[2] not in await place.ensemble()


async def test_without_a_replacement_the_ledger_goes_on_degraded_and_reports_it_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="geolog")
    async with open_place({"us-east": 3}, ack_quorum=2) as place:
        async with place.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            before = await place.ensemble()
            await place.cluster.kill(before[0])
            for value in numbered(60):
                await writer.append(value)
                await trio.sleep(1)

            said = [one.message for one in caplog.records if "fewer copies" in one.message]
            assert len(said) == 1
            assert before[0] in said[0]
            assert await place.fragments() == [(0, before)]

            await place.cluster.add_node("new", "/us-east/rack-9")
            await trio.sleep(60)
            await writer.append(b"last")

            assert "new" in await place.ensemble()
        ledger = (await place.ledger()).record.ledger
        assert await place.wants_repair() == {ledger: ["copies_missing"]}


async def test_a_new_member_counts_for_its_own_region(
    autojump_clock: MockClock,
) -> None:
    """It replaces one of two lost members, no matter which."""
    regions = {"us-east": 2, "eu-west": 1}
    async with (
        open_place(regions, ack_quorum=2, min_regions=2) as place,
        place.log.open_writer(STREAM) as writer,
    ):
        await writer.append(b"one")
        await place.cluster.add_node("ap-1", "/ap-northeast/rack-1")
        await trio.sleep(1)
        for node_id in ("us-east-2", "eu-west-1"):
            await place.cluster.kill(node_id)
        with trio.fail_after(5):
            await writer.append(b"two")

        assert [first for first, _ in await place.fragments()] == [0, 1]
        assert "ap-1" in await place.ensemble()


@pytest.mark.parametrize("waiting_count", [0, 1])
async def test_no_change_is_made_that_would_leave_no_ack_set_up(
    waiting_count: int, autojump_clock: MockClock
) -> None:
    """A returning member is still in the ensemble, and needs no other change."""
    regions = {"us-east": 2, "eu-west": 1, "ap-northeast": 1}
    async with (
        open_place(regions, ack_quorum=2, min_regions=2) as place,
        place.log.open_writer(STREAM) as writer,
    ):
        await writer.append(b"one")
        before = await place.ensemble()
        for node_id in ("eu-west-1", "ap-northeast-1"):
            await place.cluster.kill(node_id)
        pending = [writer.append_nowait(value) for value in numbered(waiting_count)]
        await trio.sleep(20)

        assert await place.fragments() == [(0, before)]
        await place.cluster.start("eu-west-1")
        with trio.fail_after(5):
            for one in pending or [writer.append_nowait(b"two")]:
                await one.wait()


async def test_entries_wait_for_a_change_while_metadata_is_away_and_none_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            member = (await place.ensemble())[0]
            place.session.cut_off()
            await place.cluster.kill(member)
            pending = [writer.append_nowait(value) for value in numbered(3, start=3)]
            await trio.sleep(20)
            assert not any(one.is_done for one in pending)
            place.session.restore()
            with trio.fail_after(5):
                for one in pending:
                    await one.wait()

            assert len(await place.fragments()) == 2
        assert await values_of(place.log) == numbered(6)


async def test_a_member_that_comes_back_while_metadata_is_away_ends_the_wait(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place, place.log.open_writer(STREAM) as writer:
        await writer.append(b"one")
        before = await place.ensemble()
        place.session.cut_off()
        await place.cluster.kill(before[0])
        pending = writer.append_nowait(b"two")
        await trio.sleep(5)
        await place.cluster.start(before[0])
        with trio.fail_after(5):
            await pending.wait()
        place.session.restore()

        assert await place.fragments() == [(0, before)]


@pytest.mark.parametrize(
    "cut_after_s", sampled([0.05 * step for step in range(1, 16)], one_in=3)
)
async def test_metadata_may_be_cut_off_at_any_step_of_a_change(
    cut_after_s: float, autojump_clock: MockClock
) -> None:
    """Metadata requests take a tenth of a second, so a change takes several steps."""
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            member = (await place.ensemble())[0]
            place.cluster.store.round_trip_s = lambda: 0.1
            await place.cluster.kill(member)
            pending = [writer.append_nowait(value) for value in numbered(3, start=3)]
            await trio.sleep(cut_after_s)
            place.session.cut_off()
            await trio.sleep(5)
            place.session.restore()
            with trio.fail_after(10):
                for one in pending:
                    await one.wait()
            place.cluster.store.round_trip_s = lambda: 0.0
        await place.is_whole()

        assert await values_of(place.log) == numbered(6)
        assert [first for first, _ in await place.fragments()] == [0, 3]
        assert len(await place.log.list_segments(STREAM)) == 1


@pytest.mark.parametrize(
    "cut_after_s", sampled([0.02 * step for step in range(1, 16)], one_in=3)
)
async def test_all_connections_may_break_at_any_step_of_a_change(
    cut_after_s: float, autojump_clock: MockClock
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            member = (await place.ensemble())[0]
            place.cluster.network.latency_s = lambda one, other: 0.01
            place.cluster.store.round_trip_s = lambda: 0.02
            await place.cluster.kill(member)
            pending = [writer.append_nowait(value) for value in numbered(3, start=3)]
            await trio.sleep(cut_after_s)
            for node_id in place.cluster.nodes:
                place.cluster.network.reset("client", node_id)
            with trio.fail_after(10):
                for one in pending:
                    await one.wait()
        await place.is_whole()

        assert await values_of(place.log) == numbered(6)


async def test_a_lost_answer_of_metadata_does_no_harm(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        async with place.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            member = (await place.ensemble())[0]
            place.session.lose_next_answer()  # The answer to a write: reads are retried.
            await place.cluster.kill(member)
            with trio.fail_after(20):
                await writer.append(b"two")

            assert [first for first, _ in await place.fragments()] == [0, 1]
        assert await values_of(place.log) == [b"one", b"two"]


async def test_a_copiers_changes_of_earlier_fragments_survive_later_changes_and_the_close(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        ledgers = LedgerMetadata(place.observer, PATHS)

        async def move_a_copy() -> Fragment:
            """Change a member of the first fragment, as a copier does."""
            read = await place.ledger()
            first, *others = read.record.fragments
            turned = Fragment(first.first_entry, first.ensemble[::-1])
            await ledgers.replace(read, attrs.evolve(read.record, fragments=(turned, *others)))
            return turned

        async with place.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            await place.cluster.kill((await place.ensemble())[0])
            await writer.append(b"two")
            await move_a_copy()
            await place.cluster.kill((await place.ensemble())[0])
            await writer.append(b"three")

            assert [first for first, _ in await place.fragments()] == [0, 1, 2]
            turned = await move_a_copy()
        closed = (await place.ledger()).record

    assert closed.state is LedgerState.CLOSED
    assert closed.fragments[0] == turned


async def test_a_writer_taken_over_during_a_change_stops_without_losing_answered_records(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        place.cluster.store.round_trip_s = lambda: 0.1
        with ended_by(geolog.GeologError):
            async with place.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(3))
                member = (await place.ensemble())[0]
                place.session.cut_off(noticed_after_s=60)
                await place.cluster.kill(member)
                pending = writer.append_nowait(b"unknown")
                async with (
                    place.cluster.open_client("us-east", host="rival") as rival,
                    rival.open_writer(STREAM) as taken,
                ):
                    await taken.append(b"of the rival")
                    place.session.restore()
                    await pending.wait()

        values = await values_of(place.log)
        assert [one for one in values if one != b"unknown"] == [*numbered(3), b"of the rival"]


async def test_other_regions_replace_a_lost_one_and_a_better_ledger_follows_when_it_is_back(
    autojump_clock: MockClock,
) -> None:
    regions = {"us-east": 2, "eu-west": 2, "ap-northeast": 1}
    async with (
        open_place(regions, ack_quorum=2, min_regions=2) as place,
        place.log.open_writer(STREAM) as writer,
    ):
        await writer.append(b"one")
        await place.cluster.kill_region("ap-northeast")
        await trio.sleep(15)
        await writer.append(b"two")
        (soft,) = await place.log.list_segments(STREAM)
        await place.cluster.restart_region("ap-northeast")
        await trio.sleep(60)
        await writer.append(b"three")
        *_, strict = await place.log.list_segments(STREAM)

    assert "ap-northeast" not in soft.regions
    assert (soft.adherence, strict.adherence) == ("soft", "strict")
    assert strict.segment == 2


async def show(reader: geolog.Reader, shown: list[bytes]) -> None:
    async for record in reader:
        shown += [record.value]


async def test_a_follower_gets_entries_after_a_change_without_delay(
    autojump_clock: MockClock,
) -> None:
    async with open_place() as place:
        shown: list[bytes] = []

        async def follow() -> None:
            async with (
                place.cluster.open_client("us-east", host="reader") as log,
                log.open_reader(STREAM, follow=True) as reader,
            ):
                await show(reader, shown)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            async with place.log.open_writer(STREAM) as writer:
                for number, value in enumerate(numbered(6)):
                    if number in (2, 4):
                        for member in (await place.ensemble())[:1]:
                            await place.cluster.kill(member)
                    await writer.append(value)
                    await trio.sleep(1)

                    assert shown == numbered(number + 1)
            nursery.cancel_scope.cancel()


async def test_all_members_may_be_replaced_under_a_follower(autojump_clock: MockClock) -> None:
    async with open_place({"us-east": 6}) as place:
        shown: list[bytes] = []

        async def follow() -> None:
            async with (
                place.cluster.open_client("us-east", host="reader") as log,
                log.open_reader(STREAM, follow=True) as reader,
            ):
                await show(reader, shown)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            async with place.log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(2))
                await trio.sleep(1)
                for member in await place.ensemble():
                    place.cluster.network.cut(
                        "client", member
                    )  # The reader still reaches them.
                await append_each(writer, numbered(2, start=2))
                await trio.sleep(5)

                assert shown == numbered(4)
            nursery.cancel_scope.cancel()


# Missing copies.


async def test_a_ledger_closed_by_its_writer_with_all_copies_is_not_queued_for_repair(
    autojump_clock: MockClock,
) -> None:
    async with open_place(ack_quorum=2) as place:
        async with place.log.open_writer(STREAM) as writer:
            far = (await place.ensemble())[0]
            # One member is slower than the two needed.
            place.cluster.network.latency_s = lambda one, other: (
                0.3 if far in (one, other) else 0.0
            )
            await append_each(writer, numbered(5))
        await trio.sleep(1)

        assert await place.wants_repair() == {}


async def test_a_recovered_ledger_is_queued_for_repair(
    autojump_clock: MockClock,
) -> None:
    async with open_place(ack_quorum=2) as place:
        with trio.move_on_after(5):
            async with (
                place.cluster.open_client("us-east", host="dies") as log,
                log.open_writer(STREAM) as writer,
            ):
                await append_each(writer, numbered(5))
                for node_id in place.cluster.nodes:
                    place.cluster.network.cut("dies", node_id)
                writer.append_nowait(b"never")
                await trio.sleep_forever()
        ledger = (await place.ledger()).record.ledger
        async with place.log.open_writer(STREAM):
            await trio.sleep(1)

            assert await place.wants_repair() == {ledger: ["recovered"]}


async def test_the_end_is_found_even_if_all_members_are_replaced_meanwhile(
    autojump_clock: MockClock,
) -> None:
    """Three entries are in flight at the request; other members acknowledge them."""
    async with open_place({"us-east": 6}) as place, place.log.open_writer(STREAM) as writer:
        await append_each(writer, numbered(2))
        before = await place.ensemble()
        for member in before:
            place.cluster.network.cut_one_way(
                member, "client"
            )  # It has all entries, and cannot answer.
        pending = [writer.append_nowait(value) for value in numbered(3, start=2)]
        found: list[list[bytes]] = []

        async def read() -> None:
            async with place.cluster.open_client("us-east", host="reader") as log:
                with trio.fail_after(15):
                    found.append(await values_of(log))

        async with trio.open_nursery() as nursery:
            await trio.sleep(0.5)
            nursery.start_soon(read)
            for one in pending:
                await one.wait()

        assert not set(await place.ensemble()) & set(before)
    assert found == [numbered(5)]
