"""Conditions of an append: a sequence, a transaction id, an answer before the disk."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from tests.pure.whole.clusters import (
    STREAM,
    append_each,
    ended_by,
    numbered,
    open_world,
    records_of,
    values_of,
)


async def test_an_append_gets_its_expected_sequence_or_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            assert (await writer.append(b"three", expect_sequence=3)).sequence == 3
            for wrong in (3, 5):
                with pytest.raises(geolog.ConflictError, match="but the next one is 4"):
                    await writer.append(b"never", expect_sequence=wrong)
            assert (await writer.append(b"four")).sequence == 4

        assert await values_of(world.log) == [*numbered(3), b"three", b"four"]


async def test_a_refused_expectation_affects_no_other_append(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            before = writer.append_nowait(b"before")
            never = writer.append_nowait(b"never", expect_sequence=7)
            after = writer.append_nowait(b"after")
            with pytest.raises(geolog.ConflictError):
                await never.wait()
            assert [(await one.wait()).sequence for one in (before, after)] == [0, 1]

        assert await values_of(world.log) == [b"before", b"after"]


async def test_transaction_ids_never_go_back(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        for number in (5, 5, 9):
            async with world.log.open_writer(STREAM) as writer:
                await writer.append(b"%d" % number, transaction_id=number)
                await writer.append(b"none")
                with pytest.raises(geolog.ConflictError, match=f"already has {number}"):
                    await writer.append(b"never", transaction_id=number - 1)

        ids = [record.transaction_id for record in await records_of(world.log)]
        assert ids == [5, None, 5, None, 9, None]


@pytest.mark.parametrize("every", [1, 3, 10])
async def test_a_read_from_a_transaction_id_begins_there(
    every: int, autojump_clock: MockClock
) -> None:
    """Across segments, and among entries few of which have an id."""
    async with open_world() as world:
        for part in range(3):
            async with world.log.open_writer(STREAM) as writer:
                for number in range(20 * part, 20 * part + 20):
                    has_one = number % every == 0
                    await writer.append(
                        b"%d" % number, transaction_id=10 * number if has_one else None
                    )
        for asked in (0, 5, 10, 195, 200, 390, 400, 585, 590, 600):
            found = await records_of(world.log, start=geolog.AtTransaction(asked))
            expected = next((n for n in range(60) if n % every == 0 and 10 * n >= asked), 60)
            assert [record.sequence for record in found] == list(range(expected, 60))


async def test_the_highest_transaction_id_survives_owners_that_write_none(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"one", transaction_id=7)
        for _ in range(3):
            with ended_by(ZeroDivisionError):
                async with world.log.open_writer(STREAM) as writer:
                    await writer.append(b"none")
                    raise ZeroDivisionError
        async with world.log.open_writer(STREAM) as writer:
            with pytest.raises(geolog.ConflictError, match="already has 7"):
                await writer.append(b"never", transaction_id=6)


async def test_a_received_answer_comes_before_the_durable_one_and_is_provisional(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, ack="received") as writer:
            for node in world.cluster.nodes.values():
                for disk in node.disks:
                    disk.faults.sync_s = 1.0
            began_s = trio.current_time()
            pending = writer.append_nowait(b"one")
            provisional = await pending.wait()
            received_s = trio.current_time() - began_s
            final = await pending.wait_durable()
            durable_s = trio.current_time() - began_s

        assert provisional.provisional
        assert not final.provisional
        assert (provisional.sequence, provisional.dlsn) == (final.sequence, final.dlsn)
        assert received_s < 0.9 <= durable_s
        assert await values_of(world.log) == [b"one"]


async def test_posted_records_are_stored_in_order(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM) as writer:
            for value in numbered(100):
                await writer.post(value)

        assert await values_of(world.log) == numbered(100)


async def test_failed_posts_are_reported_at_the_end(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        with ended_by(geolog.GeologError) as ended:
            async with world.log.open_writer(STREAM) as writer:
                await writer.post(b"one")
                await writer.flush()
                async with world.log.open_writer(STREAM):
                    pass
                await writer.post(b"two")

        assert isinstance(ended.error, geolog.FencedError | geolog.OutcomeUnknownError)


async def test_no_record_of_a_named_writer_is_appended_after_a_refused_one(
    autojump_clock: MockClock,
) -> None:
    """If they were appended, the refused record would count as a repeat."""
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id="till-7") as writer:
            first = writer.append_nowait(b"first", seq=4, expect_sequence=7)
            second = writer.append_nowait(b"second", seq=5)
            for refused in (first, second):
                with pytest.raises(geolog.ConflictError):
                    await refused.wait()
            with pytest.raises(geolog.ConflictError, match="seq 4 was refused"):
                await writer.append(b"third", seq=6)
            for seq, value in ((4, b"first"), (5, b"second")):
                assert not (await writer.append(value, seq=seq)).duplicate

        assert await values_of(world.log) == [b"first", b"second"]


async def test_a_read_that_follows_up_to_a_transaction_id_reaches_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        for number in range(10):
            await writer.append(b"%d" % number, transaction_id=number)
        with trio.fail_after(60):
            async with world.log.open_reader(
                STREAM, stop=geolog.AtTransaction(5), follow=True
            ) as reader:
                found = [record.transaction_id async for record in reader]

    assert found == [0, 1, 2, 3, 4]
