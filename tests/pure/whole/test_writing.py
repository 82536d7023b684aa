"""Promises of a writer, in a whole cluster: outcomes, rolls, failovers, leaving."""

import random

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.catalog.partition_config import PartitionConfig
from geolog.client.log import LogConfig
from geolog.ledger.ledger_metadata import LedgerMetadata
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import LedgerState
from sim.fakes.memory_metadata import MemoryMetadata
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import (
    REGIONS,
    STREAM,
    World,
    append_each,
    ended_by,
    is_owned,
    numbered,
    open_world,
    values_of,
)


def fail() -> None:
    raise ZeroDivisionError


async def outcome_of(pending: geolog.Pending) -> str:
    try:
        await pending.wait()
    except geolog.GeologError as error:
        return error.outcome
    return "ok"


# Leaving the block.


async def test_the_callers_own_error_passes_through_unchanged(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"one")
                fail()

        assert await values_of(world.log) == [b"one"]


async def test_many_records_wait_for_room_and_get_receipts_in_order(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(
            STREAM, batch_bytes=4096, in_flight_bytes=8192
        ) as writer:
            assert await writer.append_many(iter([])) == []
            receipts = await writer.append_many(numbered(3000))
            with pytest.raises(geolog.TooLargeError, match="record 1 of append_many"):
                await writer.append_many([b"right", bytes(64 << 20)])
        assert [receipt.sequence for receipt in receipts] == list(range(3000))
        assert await values_of(world.log) == numbered(3000)


async def test_the_first_error_of_many_records_is_raised(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append_many([b"one", b"two"])
        with pytest.raises(geolog.ClosedError):
            await writer.append_many([b"three"])
        assert await values_of(world.log) == [b"one", b"two"]


async def test_appends_in_flight_when_the_block_fails_are_unknown(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.cluster.network.latency_s = lambda one, other: 0.1
        pending: list[geolog.Pending] = []
        with ended_by(ZeroDivisionError):
            async with world.log.open_writer(STREAM) as writer:
                pending.append(writer.append_nowait(b"sent"))
                await trio.sleep(0.05)
                pending.append(writer.append_nowait(b"gathered"))
                fail()

        with trio.fail_after(30):
            assert [await outcome_of(one) for one in pending] == ["unknown", "refused"]
            assert b"gathered" not in await values_of(world.log)


async def test_a_writer_refuses_appends_after_its_block(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
        with pytest.raises(geolog.GeologError) as refused:
            await writer.append(b"two")

        assert refused.value.outcome == "refused"
        assert await values_of(world.log) == [b"one"]


async def test_the_next_writer_continues_after_a_cancelled_block(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        pending: list[geolog.Pending] = []
        with trio.move_on_after(5):
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"one")
                pending.append(writer.append_nowait(b"two"))
                await trio.sleep_forever()
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"three")

        assert await values_of(world.log) == [b"one", b"two", b"three"]
        assert [await outcome_of(one) for one in pending] == ["ok"]


async def test_a_block_without_an_error_leaves_everything_closed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            for value in numbered(20):
                writer.append_nowait(value)

        (segment,) = await world.log.list_segments(STREAM)
        owner = await world.log.describe_stream(STREAM)

    assert (segment.state, segment.last_sequence) == ("closed", 19)
    assert not owner.partition_list[0].owner_is_alive


async def test_leaving_with_a_lost_answer_of_metadata_leaves_everything_closed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            world.session.lose_next_answer()

        assert await values_of(world.log) == numbered(3)
        assert not await is_owned(world.log)


async def test_leaving_during_a_short_loss_of_metadata_releases_the_owner(
    autojump_clock: MockClock,
) -> None:
    """The session outlives the loss, so nobody else may consider its owner gone."""
    async with open_world() as world:
        async with trio.open_nursery() as nursery, world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            world.session.cut_off()
            nursery.start_soon(restore_later, world.session, 3)

        assert await values_of(world.log) == numbered(3)
        assert not await is_owned(world.log)


async def restore_later(session: MemoryMetadata, delay_s: float) -> None:
    await trio.sleep(delay_s)
    session.restore()


# Outcomes after a fence.


async def test_a_fenced_writer_tells_sent_records_from_unsent_ones(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        outcomes: list[str] = []
        with ended_by(geolog.FencedError):
            async with world.log.open_writer(STREAM, linger_s=100) as first:
                await first.append(b"before")
                world.cluster.network.latency_s = lambda one, other: (
                    0.5 if "client" in (one, other) else 0.0
                )
                async with (
                    world.cluster.open_client("eu-west", host="rival") as rival,
                    rival.open_writer(STREAM) as second,
                ):
                    await second.append(b"of the second")
                    sent = first.append_nowait(b"sent")
                    await trio.sleep(0.1)
                    gathered = first.append_nowait(b"gathered")
                    outcomes += [await outcome_of(sent), await outcome_of(gathered)]
                await first.append(b"late")

        assert outcomes == ["unknown", "refused"]
        assert await values_of(world.log) == [b"before", b"of the second"]


async def test_two_writers_in_one_process_take_turns(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with ended_by(geolog.FencedError):
            async with world.log.open_writer(STREAM) as first:
                await first.append(b"one")
                async with world.log.open_writer(STREAM) as second:
                    await second.append(b"two")
                    with pytest.raises(geolog.GeologError):
                        await first.append(b"never")
                    await second.append(b"three")

        assert await values_of(world.log) == [b"one", b"two", b"three"]


async def test_the_writer_of_a_deleted_stream_is_fenced(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with ended_by(geolog.GeologError) as ended:
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"one")
                await world.log.delete_stream(STREAM)
                await writer.append(b"two")

        assert isinstance(ended.error, geolog.FencedError | geolog.OutcomeUnknownError)
        assert await world.log.list_streams() == []


async def test_a_rolling_writer_does_not_bring_a_deleted_stream_back(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        with ended_by(geolog.GeologError):
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"one")
                await world.log.delete_stream(STREAM)
                for _ in range(100):
                    await writer.append(rng.randbytes(5000))

        assert await world.log.list_streams() == []
        await world.log.create_stream(STREAM, survive="1 region")


# Rolls.


async def test_segments_roll_at_about_their_size_and_positions_continue(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        values = [rng.randbytes(2000) for _ in range(300)]
        async with world.log.open_writer(STREAM) as writer:
            receipts = await append_each(writer, values)

        segments = await world.log.list_segments(STREAM)
        assert await values_of(world.log) == values

    sizes = [segment.size_bytes for segment in segments[:-1]]
    assert len(sizes) >= 7
    assert all(size is not None and 60_000 <= size <= 80_000 for size in sizes), sizes
    assert [receipt.sequence for receipt in receipts] == list(range(300))
    dlsns = [receipt.dlsn for receipt in receipts]
    assert dlsns == sorted(dlsns)
    assert [segment.segment for segment in segments] == list(range(1, len(segments) + 1))
    ends = [segment.last_sequence for segment in segments[:-1]]
    assert [segment.first_sequence - 1 for segment in segments[1:]] == ends


async def test_a_segment_that_never_fills_rolls_by_its_age(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        await world.log.create_stream("a/aging", survive="1 region", segment_age_s=60)
        async with world.log.open_writer("a/aging") as writer:
            for value in numbered(5):
                await writer.append(value)
                await trio.sleep(22)
        async with world.log.open_reader("a/aging") as reader:
            found = [record.value async for record in reader]

        assert len(await world.log.list_segments("a/aging")) > 1
        assert found == numbered(5)


async def test_the_open_ledger_grows_past_its_size_while_metadata_is_away(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        values = [rng.randbytes(2000) for _ in range(100)]
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, values[:25])  # The next ledger is made ahead.
            await trio.sleep(1)
            world.session.cut_off()
            with trio.fail_after(5):
                await append_each(writer, values[25:])
            world.session.restore()

        assert await values_of(world.log) == values


async def test_appends_that_wait_for_a_roll_fail_in_the_end(
    autojump_clock: MockClock,
) -> None:
    """Metadata is silently cut off: the roll has started and cannot finish."""
    async with open_world(segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        with ended_by(geolog.GeologError), trio.fail_after(300):
            async with world.log.open_writer(STREAM) as writer:
                await append_each(writer, [rng.randbytes(2000) for _ in range(25)])
                await trio.sleep(1)
                world.session.cut_off(noticed_after_s=1e9)
                await append_each(writer, [rng.randbytes(2000) for _ in range(100)])


# Lost members.


async def test_pending_appends_survive_an_ensemble_change_in_order(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, batch_bytes=1000) as writer:
            await writer.append(b"first")
            ensemble = (await world.log.list_segments(STREAM))[-1].ensemble
            for node_id in ensemble[:2]:
                world.cluster.network.cut("client", node_id)
            pending = [writer.append_nowait(value) for value in numbered(200)]
            receipts = [await one.wait() for one in pending]

        assert [receipt.sequence for receipt in receipts] == list(range(1, 201))
        records = await values_of(world.log)
        assert records == [b"first", *numbered(200)]
        (segment,) = await world.log.list_segments(STREAM)
        assert not set(segment.ensemble) & set(ensemble[:2])


async def test_an_ensemble_change_waits_for_metadata_and_then_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"first")
            ensemble = (await world.log.list_segments(STREAM))[-1].ensemble
            world.session.cut_off()
            for node_id in ensemble[:2]:
                world.cluster.network.cut("client", node_id)
            pending = writer.append_nowait(b"second")
            await trio.sleep(4)
            assert not pending.is_done
            world.session.restore()
            await pending.wait()

        assert await values_of(world.log) == [b"first", b"second"]


async def test_an_append_that_no_ledger_takes_becomes_unknown(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(partition=PartitionConfig(append_timeout_s=20.0))
    async with open_world(config=config) as world:
        with ended_by(geolog.UnavailableError) as ended:
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"first")
                await world.cluster.kill_region("us-east")
                await world.cluster.kill_region("eu-west")
                started_s = trio.current_time()
                with pytest.raises(geolog.OutcomeUnknownError):
                    await writer.append(b"second")
                waited_s = trio.current_time() - started_s
                await writer.append(b"third")

        assert "the oldest append has waited" in str(ended.error)
        assert 20 <= waited_s <= 25


async def test_opening_a_writer_without_metadata_is_an_error(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.session.cut_off()
        with pytest.raises(geolog.GeologError) as unavailable, trio.fail_after(60):
            async with world.log.open_writer(STREAM):
                pass

        assert unavailable.value.retriable


# The owner's session.


async def test_a_lost_session_is_shown_again_and_readers_leave_the_owner_alone(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="other") as other,
    ):
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one")
            world.session.expire()
            await trio.sleep(5)
            assert await is_owned(other)
            pending = writer.append_nowait(b"two")
            assert await values_of(other) in ([b"one"], [b"one", b"two"])
            await pending.wait()

        assert await values_of(other) == [b"one", b"two"]


# Remains.


async def test_unused_ledgers_leave_no_record(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(partition=PartitionConfig(append_timeout_s=40.0))
    async with open_world(config=config, segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, [rng.randbytes(2000) for _ in range(25)])
            await trio.sleep(1)  # A ledger is made ahead in vain.
        before_count = world.cluster.store.statistics().nodes_count
        with pytest.raises(geolog.OutcomeUnknownError):
            await append_while_cut_off(world)

        # One segment and its ledger, after forty seconds of trying to get another.
        assert world.cluster.store.statistics().nodes_count == before_count + 2


async def allocated(world: World) -> list[int]:
    """Ids of ledgers made and not used."""
    ledgers = LedgerMetadata(world.session, ClusterPaths("default"))
    bucket = ClusterPaths("default").ledger_bucket(LedgerId(1))
    ids = [LedgerId(int(name)) for name in await world.session.children(bucket)]
    return [
        one for one in ids if (await ledgers.read(one)).record.state is LedgerState.ALLOCATED
    ]


async def test_an_old_ledger_made_ahead_is_replaced_by_a_new_one(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(partition=PartitionConfig(prepared_age_s_max=30.0))
    async with open_world(config=config, segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, [rng.randbytes(2000) for _ in range(20)])
            await trio.sleep(1)
            before = await allocated(world)
            await trio.sleep(35)
            after = await allocated(world)

    assert len(before) == len(after) == 1
    assert before != after


async def test_an_expired_ledger_made_ahead_is_replaced_at_the_roll(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        rng = random.Random(1)
        values = [rng.randbytes(2000) for _ in range(60)]
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, values[:20])
            await trio.sleep(1)
            (unused,) = await allocated(world)
            await world.session.delete(ClusterPaths("default").ledger(LedgerId(unused)))
            with trio.fail_after(5):
                await append_each(writer, values[20:])

        assert await values_of(world.log) == values


async def append_while_cut_off(world: World) -> None:
    async with world.log.open_writer(STREAM) as writer:
        await writer.append(b"first")
        for node_id in world.cluster.nodes:
            world.cluster.network.cut("client", node_id)
        await writer.append(b"second")


@pytest.mark.parametrize("seed", sampled(range(4), one_in=2))
async def test_a_writer_places_its_first_ledger_outside_of_a_silent_region(
    seed: int, autojump_clock: MockClock
) -> None:
    """Its nodes answer nothing and refuse no connection, so they seem to be up."""
    async with open_world(seed=seed) as world:
        await world.log.create_stream(
            "shop/pairs", ensemble_size=2, write_quorum=2, ack_quorum=2, min_regions=2
        )
        for node in world.cluster.nodes.values():
            if node.region == "eu-west":
                world.cluster.network.cut("late", node.node_id)
        async with world.cluster.open_client("us-east", host="late") as log:
            with trio.fail_after(20):
                async with log.open_writer("shop/pairs") as writer:
                    receipt = await writer.append(b"through")
    assert receipt.sequence == 0


async def test_leaving_a_writer_with_all_servers_gone_ends_and_reports_unknown_records(
    autojump_clock: MockClock,
) -> None:
    config = LogConfig(partition=PartitionConfig(append_timeout_s=10.0, close_timeout_s=5.0))
    async with open_world(config=config) as world:
        with ended_by(geolog.UnavailableError) as ended:
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"zero")
                for region in REGIONS:
                    await world.cluster.kill_region(region)
                world.session.cut_off()
                gone_s = trio.current_time()
                pending = [writer.append_nowait(value) for value in numbered(3)]
        left_s = trio.current_time() - gone_s

    assert left_s <= 10.0 + 5.0 + 2.0
    assert ended.error is not None
    assert "3 unanswered records may be in the log" in str(ended.error)
    assert ended.error.outcome == "unknown"
    for one in pending:
        with pytest.raises(geolog.OutcomeUnknownError):
            one.receipt_nowait()
