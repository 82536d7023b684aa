"""Taking a stream over, step by step: recoverers that die, rivals, lost answers.

Nothing tells a test where a step of recovery ends, so time does: requests to metadata and
between hosts take a tenth of a second each, and who recovers is ended after any number of them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import geolog
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import open_in_process_cluster
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import (
    STREAM,
    World,
    append_each,
    numbered,
    open_world,
    values_of,
)

STEP_S = 0.1


@asynccontextmanager
async def open_orphan() -> AsyncIterator[World]:
    """A stream whose owner died: three records answered, two on one node, ledger open."""
    async with open_world() as world:
        with trio.move_on_after(1):
            async with (
                world.cluster.open_client("eu-west", host="dies") as log,
                log.open_writer(STREAM) as writer,
            ):
                await append_each(writer, numbered(3))
                for node_id in (await log.list_segments(STREAM))[-1].ensemble[1:]:
                    world.cluster.network.cut("dies", node_id)
                writer.append_nowait(b"at one")
                await trio.sleep(0.1)
                writer.append_nowait(b"at one too")
                await trio.sleep_forever()
        yield world


def slow_down(world: World) -> None:
    """Let each step take a while from now on."""
    world.cluster.network.latency_s = lambda one, other: STEP_S / 2
    world.cluster.store.round_trip_s = lambda: STEP_S


def speed_up(world: World) -> None:
    world.cluster.network.latency_s = lambda one, other: 0.0
    world.cluster.store.round_trip_s = lambda: 0.0


async def holds_its_own(world: World) -> None:
    """Check that the stream can be owned, written and read, and kept its answered records."""
    async with world.log.open_writer(STREAM) as writer:
        receipt = await writer.append(b"last")
    values = await values_of(world.log)
    report = await world.log.verify_stream(STREAM)
    assert values[:3] == numbered(3)
    assert values[-1] == b"last"
    assert values[3:-1] in ([], [b"at one"], [b"at one", b"at one too"])
    assert receipt.sequence == len(values) - 1
    assert report.is_good, report.problems


async def take_over(world: World, host: str, after_s: float = 0.0) -> str:
    """Open a writer; return the outcome."""
    await trio.sleep(after_s)
    try:
        async with (
            world.cluster.open_client("ap-northeast", host=host) as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"of " + host.encode())
    except geolog.GeologError as error:
        return type(error).__name__
    return "ok"


async def own_until_the_end(world: World, host: str) -> None:
    """Open a writer and keep it open until cancelled."""
    async with (
        world.cluster.open_client("us-east", host=host) as log,
        log.open_writer(STREAM),
    ):
        await trio.sleep_forever()


@pytest.mark.parametrize("step", sampled(range(45), one_in=4))
async def test_a_recoverer_may_die_at_any_step(step: int, autojump_clock: MockClock) -> None:
    async with open_orphan() as world:
        slow_down(world)
        with trio.move_on_after(step * STEP_S):
            await own_until_the_end(world, "recoverer")
        speed_up(world)

        await holds_its_own(world)


@pytest.mark.parametrize("step", sampled(range(1, 45, 2), one_in=4))
async def test_a_recoverer_may_be_cut_off_at_any_step_and_come_back(
    step: int, autojump_clock: MockClock
) -> None:
    """It does not know that another came meanwhile; its later steps have no effect."""
    async with open_orphan() as world:
        slow_down(world)
        sessions: list[MemoryMetadata] = []
        outcomes: list[str] = []
        async with trio.open_nursery() as nursery:

            async def recover() -> None:
                try:
                    async with (
                        world.cluster.open_client(
                            "us-east", host="recoverer", on_session=sessions.append
                        ) as log,
                        log.open_writer(STREAM) as writer,
                    ):
                        for value in numbered(3, start=100):
                            await writer.append(value)
                            outcomes.append("ok")
                            await trio.sleep(3)
                except geolog.GeologError as error:
                    outcomes.append(error.outcome)

            nursery.start_soon(recover)
            await trio.sleep(step * STEP_S)
            for node_id in world.cluster.nodes:
                world.cluster.network.cut("recoverer", node_id)
            sessions[0].cut_off(noticed_after_s=2)
            assert await take_over(world, "second") == "ok"
            for node_id in world.cluster.nodes:
                world.cluster.network.mend("recoverer", node_id)
            sessions[0].restore()
        speed_up(world)
        values = await values_of(world.log)

    assert values[:3] == numbered(3)
    assert values.count(b"of second") == 1
    answered = [b"record %d" % (100 + number) for number in range(outcomes.count("ok"))]
    assert [value for value in values if value in answered] == answered


@pytest.mark.parametrize("step", sampled(range(20), one_in=4))
async def test_the_last_of_rival_recoverers_wins_and_the_others_get_an_error(
    step: int, autojump_clock: MockClock
) -> None:
    async with open_orphan() as world:
        slow_down(world)
        outcomes: list[str] = []
        async with trio.open_nursery() as nursery:

            async def rival(host: str, after_s: float) -> None:
                outcomes.append(await take_over(world, host, after_s))

            for number, host in enumerate(("first", "second", "third")):
                nursery.start_soon(rival, host, number * step * STEP_S / 2)
        speed_up(world)
        values = await values_of(world.log)

        assert "ok" in outcomes
        assert set(outcomes) <= {"ok", "FencedError", "OutcomeUnknownError"}
        assert len([value for value in values if value.startswith(b"of ")]) >= outcomes.count(
            "ok"
        )
        assert values[:3] == numbered(3)


@pytest.mark.parametrize("lost", sampled(range(8), one_in=2))
async def test_any_answer_of_metadata_may_be_lost(lost: int, autojump_clock: MockClock) -> None:
    """Carry out the n-th write and lose its answer: opening may fail, but nothing worse."""
    async with open_orphan() as world:
        slow_down(world)
        async with trio.open_nursery() as nursery:

            async def lose_later() -> None:
                await trio.sleep(lost * STEP_S * 2)
                world.session.lose_next_answer()

            nursery.start_soon(lose_later)
            try:
                async with world.log.open_writer(STREAM) as writer:
                    await writer.append(b"of the first try")
            except geolog.GeologError as error:
                assert error.retriable, repr(error)  # noqa: PT017 - It may pass, or be this.
        speed_up(world)

        await holds_its_own_after(world, b"of the first try")


async def holds_its_own_after(world: World, value: bytes) -> None:
    async with world.log.open_writer(STREAM) as writer:
        await writer.append(b"last")
    values = await values_of(world.log)
    assert values[:3] == numbered(3)
    assert values[-1] == b"last"
    assert values.count(value) <= 1


async def test_a_first_activation_whose_answer_was_lost_is_recognised(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        for lost in range(1, 5):
            for _ in range(lost):
                world.session.lose_next_answer()
            try:
                async with world.log.open_writer(STREAM) as writer:
                    await writer.append(b"%d" % lost)
            except geolog.OutcomeUnknownError:
                continue
        while True:
            try:
                async with world.log.open_writer(STREAM) as writer:
                    await writer.append(b"last")
                break
            except geolog.OutcomeUnknownError:
                continue
        values = await values_of(world.log)

    assert values[-1] == b"last"
    assert len(set(values)) == len(values)


async def test_a_reader_finishes_the_recovery_of_a_dead_recoverer(
    autojump_clock: MockClock,
) -> None:
    async with open_orphan() as world:
        slow_down(world)
        for step in range(0, 14, 2):
            with trio.move_on_after(step * STEP_S):
                await own_until_the_end(world, f"dies-{step}")
            with trio.fail_after(30):
                assert (await values_of(world.log))[:3] == numbered(3)
        speed_up(world)

        await holds_its_own(world)


async def test_a_joining_node_counts_for_its_own_region_in_a_recovery(
    autojump_clock: MockClock,
) -> None:
    """Two of three regions are left; the third copy counts for the joining node's region."""
    regions = {"us-east": 2, "eu-west": 1, "ap-northeast": 1}
    gone = ("us-east-2", "ap-northeast-1")
    async with (
        open_in_process_cluster(regions) as cluster,
        cluster.open_client("us-east", host="admin") as log,
    ):
        await log.create_stream(
            STREAM, ensemble_size=4, write_quorum=4, ack_quorum=3, min_regions=3
        )
        with trio.move_on_after(1):
            async with (
                cluster.open_client("us-east", host="dies") as dies,
                dies.open_writer(STREAM) as writer,
            ):
                await writer.append(b"answered")
                for node_id in gone:
                    cluster.network.cut("dies", node_id)
                writer.append_nowait(b"at two")
                await trio.sleep_forever()
        for node_id in gone:
            await cluster.kill(node_id)
        await cluster.add_node("sa-1", "/sa-east/rack-1")
        with trio.fail_after(10):
            await log.seal_stream(STREAM)
        for node_id in gone:
            await cluster.start(node_id)

        assert await values_of(log) == [b"answered", b"at two"]


async def test_abandoned_ledgers_made_ahead_do_no_harm(
    autojump_clock: MockClock,
) -> None:
    async with open_world(segment_bytes=64 * 1024) as world:
        with trio.move_on_after(2):
            async with (
                world.cluster.open_client("eu-west", host="dies") as log,
                log.open_writer(STREAM) as writer,
            ):
                await append_each(
                    writer, [value + bytes(range(256)) * 150 for value in numbered(1)]
                )
                await trio.sleep_forever()
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"next")

        assert len(await values_of(world.log)) == 2
        segments = await world.log.list_segments(STREAM)
        assert [segment.segment for segment in segments] == [1, 2]


async def test_owners_that_write_nothing_leave_empty_segments(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        for _ in range(3):
            async with world.log.open_writer(STREAM):
                pass
        async with world.log.open_writer(STREAM) as writer:
            receipt = await writer.append(b"one")
        for _ in range(2):
            async with world.log.open_writer(STREAM):
                pass

        assert receipt.sequence == 0
        assert await values_of(world.log) == [b"one"]
        assert (await world.log.verify_stream(STREAM)).is_good
        segments = await world.log.list_segments(STREAM)
        assert [segment.last_entry for segment in segments] == [-1, -1, -1, 1, -1, -1]


async def test_a_ledger_of_many_small_entries_is_recovered_in_few_round_trips(
    autojump_clock: MockClock,
) -> None:
    """In steps of thirty-two, 1,500 unanswered entries would take a hundred round trips."""
    count = 1500
    async with open_world() as world:
        slow_down(world)
        with trio.CancelScope() as scope:
            async with (
                world.cluster.open_client("eu-west", host="dies") as log,
                log.open_writer(STREAM, batch_bytes=1) as writer,
            ):
                for value in numbered(count):
                    writer.append_nowait(value)
                    await wait_all_tasks_blocked()  # So none shares an entry.
                await trio.sleep(0.8 * STEP_S)  # The answers are in flight.
                scope.cancel()
                await trio.lowlevel.checkpoint()
        told: list[int] = []
        world.log.recovery_progress.tell = told.append
        since_s = trio.current_time()
        async with world.log.open_writer(STREAM):
            took_s = trio.current_time() - since_s
        speed_up(world)

        assert told == sorted(told)  # First the rewrites, then the read-backs.
        assert told[-1] == world.log.recovery_progress.entries_count == 2 * count
        assert await values_of(world.log) == numbered(count)
        assert took_s < 90 * STEP_S
