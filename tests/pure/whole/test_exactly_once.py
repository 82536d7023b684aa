"""Named writers: repeated records are recognised, also by another owner (law 16)."""

import random
from functools import partial
from typing import NoReturn

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.writing.partitioner import partition_of_key
from geolog.client.writing.pipeline import REPEATS_MAX, Pipeline
from geolog.partition.read_back import BatchReadBack
from tests.pure.thinned import sampled
from tests.pure.whole.clusters import (
    REGIONS,
    STREAM,
    append_each,
    ended_by,
    numbered,
    open_world,
    records_of,
    values_of,
)

TILL = "till-7"


async def test_a_repeated_record_gets_its_first_position(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            first = [await writer.append(value, seq=n) for n, value in enumerate(numbered(5))]
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            again = [await writer.append(value, seq=n) for n, value in enumerate(numbered(7))]

        assert [one.duplicate for one in again] == [True] * 5 + [False] * 2
        assert [one.dlsn for one in again[:5]] == [one.dlsn for one in first]
        assert [one.sequence for one in again] == list(range(7))
        assert await values_of(world.log) == numbered(7)


async def test_a_repeat_within_one_session_is_recognised(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        world.log.open_writer(STREAM, writer_id=TILL) as writer,
    ):
        first = await writer.append(b"one", seq=10)
        again = await writer.append(b"one", seq=10)

        assert (again.dlsn, again.duplicate) == (first.dlsn, True)


async def test_other_bytes_under_a_used_seq_are_refused(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            await writer.append(b"one", key=b"k", headers={"h": b"1"}, transaction_id=4, seq=0)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for other in (
                {"value": b"other", "key": b"k", "headers": {"h": b"1"}, "transaction_id": 4},
                {"value": b"one", "key": b"l", "headers": {"h": b"1"}, "transaction_id": 4},
                {"value": b"one", "key": b"k", "headers": {"h": b"2"}, "transaction_id": 4},
                {"value": b"one", "key": b"k", "headers": {"h": b"1"}, "transaction_id": 5},
            ):
                with pytest.raises(geolog.ConflictError, match="different bytes") as refused:
                    await writer.append(**other, seq=0)  # type: ignore[arg-type]
                assert refused.value.outcome == "refused"  # These bytes are not in the log.

        assert await values_of(world.log) == [b"one"]


async def test_a_repeat_that_cannot_be_compared_is_a_duplicate_not_refused(
    autojump_clock: MockClock,
) -> None:
    """Law 17: a refused record is never in the log."""
    async with open_world() as world:
        with ended_by(geolog.GeologError):
            async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
                await writer.append(b"one", seq=0)
                for region in REGIONS:
                    await world.cluster.kill_region(region)

                with pytest.raises(geolog.UnavailableError, match="is in the log") as unread:
                    await writer.append(b"one", seq=0)
                with pytest.raises(geolog.GeologError) as unanswered:
                    await writer.append(b"two", seq=1)
                with pytest.raises(geolog.ConflictError, match="in flight") as again:
                    await writer.append(b"two", seq=1)
        for region in REGIONS:
            await world.cluster.restart_region(region)
        there = await values_of(world.log)

    assert (unread.value.outcome, unread.value.retriable) == ("duplicate", True)
    assert (unanswered.value.outcome, again.value.outcome) == ("unknown", "unknown")
    assert there[0] == b"one"


async def test_a_deposed_session_never_gets_refused_for_records_a_newer_one_appended(
    autojump_clock: MockClock,
) -> None:
    outcomes: dict[int, str] = {}
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="newer") as elsewhere,
    ):
        with ended_by(geolog.FencedError):
            async with world.log.open_writer(STREAM, writer_id=TILL) as older:
                await older.append(b"5", seq=5)
                async with elsewhere.open_writer(STREAM, writer_id=TILL) as newer:
                    for seq in (6, 7, 8):
                        await newer.append(b"%d" % seq, seq=seq)
                    for seq in (6, 7, 8):
                        with pytest.raises(geolog.GeologError) as failed:
                            await older.append(b"%d" % seq, seq=seq)
                        outcomes[seq] = failed.value.outcome
                        await trio.sleep(1)  # The older owner has failed by then.
                with pytest.raises(geolog.FencedError) as unnumbered:
                    await older.append(b"nine")
        there = await values_of(world.log)

    assert outcomes == {6: "unknown", 7: "unknown", 8: "unknown"}
    assert unnumbered.value.outcome == "refused"  # This writer has just assigned its seq.
    assert there == [b"5", b"6", b"7", b"8"]


async def test_a_record_with_a_seq_that_waits_while_its_owner_fails_is_not_refused(
    autojump_clock: MockClock,
) -> None:
    """A fenced owner stops sending, and briefly asks metadata who fenced it."""
    async with (
        open_world() as world,
        world.cluster.open_client("eu-west", host="newer") as elsewhere,
    ):
        with ended_by(geolog.FencedError) as ended:
            async with world.log.open_writer(STREAM, writer_id=TILL) as older:
                await older.append(b"5", seq=5)
                async with elsewhere.open_writer(STREAM, writer_id=TILL) as newer:
                    await newer.append(b"6", seq=6)
                    await newer.append(b"7", seq=7)
                world.session.cut_off()
                sent = older.append_nowait(b"6", seq=6)
                await trio.sleep(0.1)
                waiting = older.append_nowait(b"7", seq=7)
                older.lanes[0].seal()
                assert not waiting.is_done
                for one, kind in (
                    (sent, geolog.OutcomeUnknownError), (waiting, geolog.FencedError)
                ):  # fmt: skip
                    with pytest.raises(kind) as failed:
                        await one.wait()
                    assert failed.value.outcome == "unknown"

    assert "2 unanswered records may be in the log" in str(ended.error)


async def test_a_repeat_of_a_lost_record_is_a_data_loss_error_not_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(_self: object, _name: object, _batch: object) -> NoReturn:
        raise geolog.DataLostError("none of its 3 replicas has it")

    # No fault loses all copies in a moment.
    monkeypatch.setattr(BatchReadBack, "read", lost)
    async with (
        open_world() as world,
        world.log.open_writer(STREAM, writer_id=TILL) as writer,
    ):
        await writer.append(b"one", seq=0)
        with pytest.raises(geolog.DataLostError, match="was appended, and is lost") as found:
            await writer.append(b"one", seq=0)
    assert found.value.outcome == "duplicate"


async def test_repeats_in_other_batches_are_recognised(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for value in numbered(40):
                writer.append_nowait(value)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            assert writer.seq_highest == 39
            again = [await writer.append(value, seq=n) for n, value in enumerate(numbered(40))]

        assert all(one.duplicate for one in again)
        assert [one.sequence for one in again] == list(range(40))
        assert await values_of(world.log) == numbered(40)


async def test_seqs_continue_after_those_in_the_log(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            await writer.append(b"one", seq=100)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            await writer.append(b"two")
            assert writer.seq_highest == 101
        async with world.log.open_writer(STREAM, writer_id="other") as writer:
            assert writer.seq_highest == -1


async def test_a_forgotten_seq_is_refused_and_never_appended(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            await append_each(writer, numbered(100))
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            with pytest.raises(geolog.ForgottenSeqError, match="not remembered") as forgotten:
                await writer.append(b"record 3", seq=3)
            assert forgotten.value.outcome == "unknown"  # It may have been left out.
            assert writer.is_appended(3)
            assert (await writer.append(b"record 90", seq=90)).duplicate

        assert await values_of(world.log) == numbered(100)


@pytest.mark.parametrize(
    ("transaction_id", "expect_sequence"),
    [(3, None), (None, 7)],
    ids=["refused by the session", "refused by the owner"],
)
async def test_a_seq_that_another_partition_may_have_is_not_told_refused(
    autojump_clock: MockClock, transaction_id: int | None, expect_sequence: int | None
) -> None:
    """Its first append named a partition; the key of the repeat leads to another."""
    key = next(key for key in map(str.encode, REGIONS) if partition_of_key(key, 2) == 1)
    async with open_world() as world:
        await world.log.update_stream(STREAM, partitions=2)
        async with world.log.open_writer(f"{STREAM}#0", writer_id=TILL) as writer:
            await append_each(writer, numbered(100))
        async with world.log.open_writer(f"{STREAM}#1") as other:
            await other.append(b"other", transaction_id=9)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for seq, outcome in ((3, "unknown"), (200, "refused")):
                with pytest.raises(geolog.ConflictError) as conflict:
                    await writer.append(
                        b"record 3", key=key, seq=seq,
                        transaction_id=transaction_id, expect_sequence=expect_sequence,
                    )  # fmt: skip
                assert conflict.value.outcome == outcome


async def test_gaps_in_the_seqs_are_allowed(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for seq in (0, 1, 5, 6, 20):
                writer.append_nowait(b"%d" % seq, seq=seq)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            again = [await writer.append(b"%d" % seq, seq=seq) for seq in (0, 1, 5, 6, 20)]
            with pytest.raises(geolog.ForgottenSeqError, match="left out") as left_out:
                await writer.append(b"4", seq=4)
            assert left_out.value.outcome == "refused"

        assert [one.sequence for one in again] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", sampled(range(6), one_in=2))
async def test_writers_are_remembered_across_rolls_and_takeovers(
    seed: int, autojump_clock: MockClock
) -> None:
    """The state comes from the snapshot at the start of each ledger but the first."""
    rng = random.Random(seed)
    async with open_world(segment_bytes=65536, seed=seed) as world:
        places: dict[tuple[str, int], int] = {}
        values: dict[tuple[str, int], bytes] = {}
        for _ in range(8):
            name = rng.choice(("a", "b", "c"))
            with ended_by(ZeroDivisionError):
                async with world.log.open_writer(STREAM, writer_id=name) as writer:
                    for seq in range(max(0, writer.seq_highest - 5), writer.seq_highest + 12):
                        value = values.setdefault(
                            (name, seq), rng.randbytes(rng.choice((10, 9000)))
                        )
                        receipt = await writer.append(value, seq=seq)
                        known = places.setdefault((name, seq), receipt.sequence)
                        assert receipt.sequence == known
                    if rng.random() < 0.5:
                        raise ZeroDivisionError  # Leaves its ledger open.
                raise ZeroDivisionError
        found = {record.sequence: record.value for record in await records_of(world.log)}

    assert len(found) == len(places)
    assert all(found[places[which]] == values[which] for which in places)


@pytest.mark.parametrize("seed", range(3))
async def test_writers_of_several_partitions_are_remembered_across_rolls_and_takeovers(
    seed: int, autojump_clock: MockClock
) -> None:
    """Their batches have gaps in their seqs, in the log and in its snapshots."""
    rng = random.Random(seed)
    values = [rng.randbytes(rng.choice((10, 3000))) for _ in range(400)]
    keys = [b"key %d" % rng.randrange(50) for _ in values]
    places: dict[int, tuple[int, int]] = {}
    async with open_world(segment_bytes=65536, seed=seed) as world:
        await world.log.update_stream(STREAM, partitions=3)
        for end in range(50, 401, 50):
            with ended_by(ZeroDivisionError):
                async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
                    sent = [
                        (seq, writer.append_nowait(values[seq], key=keys[seq], seq=seq))
                        for seq in range(max(0, end - rng.randrange(51, 150)), end)
                    ]
                    for seq, pending in sent:
                        receipt = await pending.wait()
                        place = (receipt.partition, receipt.sequence)
                        assert receipt.duplicate is (seq in places)
                        assert places.setdefault(seq, place) == place
                    assert writer.statistics().batches_count < 25
                    if rng.random() < 0.5:
                        raise ZeroDivisionError  # Leaves its ledgers open.
                raise ZeroDivisionError
        found = await values_of(world.log)

    assert sorted(found) == sorted(values)


async def test_a_trimmed_record_is_not_appended_again(autojump_clock: MockClock) -> None:
    """It is a duplicate that cannot be compared; a re-run goes on after it."""
    values = [random.Random(n).randbytes(20_000) for n in range(12)]
    async with open_world(segment_bytes=65536) as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for value in values:
                await writer.append(value)
                await trio.sleep(1)  # Let the next ledger get ready.
        await world.log.truncate_stream(STREAM, before=geolog.LATEST)

        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            with pytest.raises(geolog.ForgottenSeqError, match="trimmed since") as trimmed:
                await writer.append(values[0], seq=0)
            assert trimmed.value.outcome == "duplicate"
            pipeline = Pipeline(writer)
            for seq, value in enumerate([*values, b"new"]):
                await pipeline.push(value, seq=seq, is_forgotten_skipped=True)
            pipeline.close()
            answers = []
            while some := await pipeline.next_answers():
                answers += some

        assert [(len(one), one.is_duplicate) for one in answers] == [(1, True)] * 12 + [
            (1, False)
        ]
        assert await values_of(world.log) == [b"new"]


async def test_an_idle_writer_is_forgotten_after_its_retention_and_its_records(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.create_stream("a/b", survive="1 region", writer_retention_s=360)
        async with world.log.open_writer("a/b", writer_id=TILL) as writer:
            await writer.append(b"one")
        for trim, highest in ((0, 0), (1, -1)):
            await trio.sleep(400)  # A session that only began counts as heard of, too.
            await world.log.truncate_stream("a/b", before=geolog.AtSequence(trim))
            for _ in range(2):
                async with world.log.open_writer("a/b", writer_id="other") as writer:
                    await writer.append(b"two")
            async with world.log.open_writer("a/b", writer_id=TILL) as writer:
                assert writer.seq_highest == highest


async def test_a_writer_without_an_id_takes_no_seqs(autojump_clock: MockClock) -> None:
    async with open_world() as world, world.log.open_writer(STREAM) as writer:
        with pytest.raises(geolog.InvalidArgumentError, match="needs a writer with an id"):
            await writer.append(b"one", seq=1)


async def test_an_empty_writer_id_is_refused(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with pytest.raises(geolog.InvalidArgumentError, match="must have 1 to 255 bytes"):
            async with world.log.open_writer(STREAM, writer_id=""):
                pass


async def test_keyless_records_of_a_named_writer_are_in_one_partition(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        await world.log.create_stream("a/many", survive="1 region", partitions=4)
        async with world.log.open_writer("a/many", writer_id=TILL) as writer:
            receipts = [await writer.append(bytes(30_000)) for _ in range(8)]

    assert len({one.partition for one in receipts}) == 1


@pytest.mark.parametrize("key", [None, b"k"])
async def test_a_repeat_is_recognised_in_its_partition_after_partitions_were_added(
    key: bytes | None, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for value in numbered(20):
                await writer.append(value, key=key)
        await world.log.update_stream(STREAM, partitions=7)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            again = [
                await writer.append(value, key=key, seq=seq)
                for seq, value in enumerate(numbered(25))
            ]

        assert [one.duplicate for one in again] == [True] * 20 + [False] * 5
        assert sorted(await values_of(world.log)) == sorted(numbered(25))


async def test_a_forgotten_record_is_not_appended_again_in_a_new_partition(
    autojump_clock: MockClock,
) -> None:
    """Only the last 64 batches are remembered; older seqs only by their partition."""
    values = {seq: (b"%d" % seq, b"key %d" % (seq % 7)) for seq in range(120)}
    async with open_world() as world:
        for partitions, end in ((2, 80), (5, 110)):
            await world.log.update_stream(STREAM, partitions=partitions)
            async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
                for seq in range(writer.seq_highest + 1, end):
                    value, key = values[seq]
                    await writer.append(value, key=key)
        await world.log.update_stream(STREAM, partitions=9)
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for seq, (value, key) in values.items():
                try:
                    receipt = await writer.append(value, key=key, seq=seq)
                except geolog.ForgottenSeqError:
                    assert seq < 110
                else:
                    assert receipt.duplicate is (seq < 110)

        assert sorted(await values_of(world.log)) == sorted(
            value for value, _ in values.values()
        )


async def test_a_writer_owns_partitions_added_while_it_opens(
    autojump_clock: MockClock,
) -> None:
    """Later sessions use at least as many, so a seq keeps its partition for ever."""
    async with open_world() as world:
        for partitions in range(2, 12):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    partial(world.log.update_stream, STREAM, partitions=partitions)
                )
                async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
                    owned = len(writer.lanes)
            assert owned in (partitions - 1, partitions)
            description = await world.log.describe_stream(STREAM)
            assert len(description.partition_list) == partitions


async def test_repeats_in_other_batches_read_their_first_batch_once(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for value in numbered(200):
                writer.append_nowait(value)
        world.cluster.network.latency_s = lambda sender, receiver: 0.05
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            since_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                for seq, value in enumerate(numbered(200)):
                    nursery.start_soon(partial(writer.append, value, seq=seq))
            for seq, value in enumerate(numbered(200)):
                assert (await writer.append(value, seq=seq)).duplicate

            assert trio.current_time() - since_s < 2  # Read one by one they would take 20 s.


async def test_a_re_run_keeps_to_the_bound_of_repeats(autojump_clock: MockClock) -> None:
    """They are in no window: a long file would be in memory whole before any answer."""
    count = 3 * REPEATS_MAX
    async with open_world() as world:
        async with world.log.open_writer(STREAM, writer_id=TILL) as writer:
            for value in numbered(count):
                writer.append_nowait(value)
        async with (
            world.log.open_writer(STREAM, writer_id=TILL) as writer,
            trio.open_nursery() as nursery,
        ):
            pipeline = Pipeline(writer)

            async def push() -> None:
                for seq, value in enumerate(numbered(count)):
                    await pipeline.push(value, seq=seq, is_forgotten_skipped=True)
                    assert pipeline.unanswered_count <= REPEATS_MAX
                pipeline.close()

            nursery.start_soon(push)
            answered = 0
            while answers := await pipeline.next_answers():
                answered += sum(len(one) for one in answers if one.is_duplicate)

        assert answered == count
