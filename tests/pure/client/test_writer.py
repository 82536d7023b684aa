"""How records become batches, and how many may be in flight, over a fake sink."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.client.writing.partition_batcher import WriterConfig
from geolog.client.writing.partitioner import partition_of_key
from geolog.client.writing.writer import Writer, open_linger
from geolog.client.writing.writer_pending import Pending
from geolog.protocol.owner_answers import AppendRefused, Unknown
from geolog.protocol.stream_state import PartitionName, StreamName
from geolog.wire.limits import BATCH_BYTES_MAX, RECORD_BYTES_MAX
from tests.pure.client.fake_sink import FakeSink, a_session, a_writer
from topology.errors import (
    ConflictError,
    FencedError,
    GeologError,
    InvalidArgumentError,
    OutcomeUnknownError,
    TooLargeError,
)


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


@pytest.fixture
async def writer(sink: FakeSink) -> AsyncIterator[Writer]:
    """A writer with a linger of 10 ms; batches in flight at the end are acknowledged."""
    async with open_linger(a_writer(sink)) as writer:
        yield writer
        await trio.sleep(1)
        sink.answer(len(sink.taken))
        sink.answer(0)


async def test_a_single_append_is_sent_at_once(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.append, b"one")
        await trio.testing.wait_all_tasks_blocked()
        assert sink.values() == [[b"one"]]
        assert trio.current_time() == started_s
        sink.answer()


async def test_records_appended_in_one_turn_are_sent_as_one_batch(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    for value in (b"one", b"two", b"three"):
        writer.append_nowait(value)
    await trio.testing.wait_all_tasks_blocked()

    assert sink.values() == [[b"one", b"two", b"three"]]


async def test_a_batch_lingers_while_others_are_in_flight(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    writer.append_nowait(b"first")
    await trio.testing.wait_all_tasks_blocked()
    started_s = trio.current_time()
    writer.append_nowait(b"second")
    await trio.sleep(0.004)
    writer.append_nowait(b"third")
    await trio.sleep(0.1)

    assert sink.values() == [[b"first"], [b"second", b"third"]]
    assert sink.taken[1].at_s - started_s == pytest.approx(0.01)


async def test_a_lingering_batch_is_sent_once_nothing_is_in_flight(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    async with open_linger(a_writer(sink, linger_s=1000)) as writer:
        writer.append_nowait(b"first")
        await trio.testing.wait_all_tasks_blocked()
        writer.append_nowait(b"second")
        await trio.testing.wait_all_tasks_blocked()
        sink.answer()
        assert sink.values() == [[b"first"], [b"second"]]
        sink.answer()


async def test_a_batch_waits_a_few_turns_while_the_processor_is_busy(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    await trio.testing.wait_all_tasks_blocked()
    writer.append_nowait(b"one")
    autojump_clock.jump(0.01)
    await trio.testing.wait_all_tasks_blocked()
    assert sink.values() == []

    writer.append_nowait(b"two")
    autojump_clock.jump(0.05)
    await trio.testing.wait_all_tasks_blocked()
    assert sink.values() == [[b"one", b"two"]]


async def test_waiting_appends_get_room_for_a_whole_batch(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    window = {"batch_bytes": 4096, "in_flight_bytes": 16384}
    async with open_linger(a_writer(sink, linger_s=0.001, **window)) as writer:
        with suppress(trio.WouldBlock):
            while True:
                writer.append_nowait(b"x" * 96)
                await trio.sleep(0.002)  # Each one is sent as a batch of its own.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.wait_writable)
            while nursery.child_tasks:
                sink.answer()
                await trio.testing.wait_all_tasks_blocked()
        assert 12_000 < writer.statistics().in_flight_bytes <= 16384 - 4096
        sink.answer(len(sink.taken))


async def test_a_batch_is_sent_when_the_next_record_would_exceed_its_size(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, linger_s=1000)
    for letter in (b"a", b"b", b"c"):
        writer.append_nowait(letter * 400)

    assert sink.values() == [[b"a" * 400, b"b" * 400]]


async def test_a_record_as_large_as_a_batch_fills_one(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, linger_s=1000)
    writer.append_nowait(b"small")
    writer.append_nowait(b"x" * 5000)

    assert sink.values() == [[b"small"], [b"x" * 5000]]


async def test_columns_that_start_late_are_blank_before(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    writer.append_nowait(b"plain")
    writer.append_nowait(b"keyed", key=b"k")
    writer.append_nowait(b"numbered", transaction_id=7)
    writer.append_nowait(b"headed", headers={"h": b"1"})
    writer.append_nowait(b"empty key", key=b"")
    await trio.testing.wait_all_tasks_blocked()

    (batch,) = [one.batch for one in sink.taken]
    assert [batch.key(row) for row in range(5)] == [None, b"k", None, None, b""]
    assert [batch.transaction_id(row) for row in range(5)] == [None, None, 7, None, None]
    assert [batch.headers(row) for row in range(5)] == [{}, {}, {}, {"h": b"1"}, {}]


async def test_headers_are_copied_when_the_record_is_appended(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    headers = {"trace": b"1"}
    writer.append_nowait(b"one", headers=headers)
    headers["trace"] = b"2"
    await trio.testing.wait_all_tasks_blocked()

    assert sink.taken[0].batch.headers(0) == {"trace": b"1"}


async def test_each_record_of_a_batch_has_its_place_in_its_receipt(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    pending = [writer.append_nowait(b"%d" % number) for number in range(3)]
    await trio.testing.wait_all_tasks_blocked()
    sink.answer()
    receipts = [one.receipt_nowait() for one in pending]

    assert [str(receipt.dlsn) for receipt in receipts] == ["1-0-0", "1-0-1", "1-0-2"]
    assert [receipt.sequence for receipt in receipts] == [0, 1, 2]
    assert {receipt.position.home_epoch for receipt in receipts} == {1}


async def test_a_pending_append_is_not_done_before_its_answer(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    pending = writer.append_nowait(b"one")
    seen = [pending.is_done]
    await trio.testing.wait_all_tasks_blocked()
    seen.append(pending.is_done)
    with pytest.raises(trio.WouldBlock):
        pending.receipt_nowait()
    sink.answer()
    seen.append(pending.is_done)

    assert seen == [False, False, True]
    assert (await pending.wait()).sequence == 0


# Records refused before they are sent.


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"value": "text"}, "value must be bytes, not str"),
        ({"value": bytearray(b"x")}, "value must be bytes, not bytearray"),
        ({"value": b"x", "key": "k"}, "key must be bytes, not str"),
        ({"value": b"x", "headers": {"h": "text"}}, "not str and str"),
        ({"value": b"x", "headers": {b"h": b"1"}}, "not bytes and bytes"),
        ({"value": b"x", "headers": {"\ud800": b"1"}}, "cannot be encoded"),
        ({"value": b"x", "transaction_id": 1 << 63}, "9223372036854775808"),
        ({"value": b"x", "transaction_id": -1}, "transaction_id is -1; .* from 0 to"),
        ({"value": b"x", "transaction_id": "7"}, "'7'"),
    ],
)
async def test_a_bad_record_is_refused_alone(
    sink: FakeSink,
    writer: Writer,
    record: dict[str, object],
    says: str,
    autojump_clock: MockClock,
) -> None:
    good = [writer.append_nowait(b"before")]
    with pytest.raises(InvalidArgumentError, match=says):
        writer.append_nowait(**record)  # type: ignore[arg-type]
    good.append(writer.append_nowait(b"behind"))
    await trio.testing.wait_all_tasks_blocked()
    sink.answer()

    assert [one.receipt_nowait().sequence for one in good] == [0, 1]


@pytest.mark.parametrize(
    ("value_bytes", "key_bytes", "header_bytes"),
    [(RECORD_BYTES_MAX + 1, 0, 0), (RECORD_BYTES_MAX, 1, 0), (10, 0, RECORD_BYTES_MAX)],
)
async def test_a_record_over_the_limit_is_refused_with_its_size(
    sink: FakeSink,
    value_bytes: int,
    key_bytes: int,
    header_bytes: int,
    autojump_clock: MockClock,
) -> None:
    writer = a_writer(sink)
    with pytest.raises(TooLargeError, match=rf"\b10[0-9]+ bytes; .* {RECORD_BYTES_MAX}\b"):
        writer.append_nowait(
            bytes(value_bytes),
            key=bytes(key_bytes) if key_bytes else None,
            headers={"h": bytes(header_bytes)} if header_bytes else None,
        )

    assert writer.statistics().in_flight_bytes == 0


async def test_a_record_at_the_limit_is_taken(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink)
    writer.append_nowait(random.Random(1).randbytes(RECORD_BYTES_MAX))

    assert [len(one.batch.value(0)) for one in sink.taken] == [RECORD_BYTES_MAX]


@pytest.mark.parametrize("value_bytes", [0, 1, 100, 1 << 20])
async def test_the_largest_batches_are_within_their_limit(
    sink: FakeSink, value_bytes: int, autojump_clock: MockClock
) -> None:
    rng = random.Random(value_bytes)
    writer = a_writer(sink, batch_bytes=BATCH_BYTES_MAX - 1024, linger_s=1000)
    record_bytes = 1 << 20 if value_bytes == 1 << 20 else value_bytes
    value = rng.randbytes(record_bytes - 50 if record_bytes == 1 << 20 else record_bytes)
    pending: list[Pending] = []
    transaction_id = 0
    while not sink.taken:
        transaction_id += rng.getrandbits(40)
        pending.append(
            writer.append_nowait(
                value, key=b"k", transaction_id=transaction_id, headers={"h": b"1"}
            )
        )
    sink.answer(1)

    done = [one.receipt_nowait().sequence for one in pending if one.is_done]
    assert done == list(range(len(done)))


def test_invalid_settings_are_refused() -> None:
    for settings in (
        {"linger_s": -1},
        {"linger_s": float("inf")},
        {"batch_bytes": 0},
        {"batch_bytes": BATCH_BYTES_MAX + 1},
        {"in_flight_bytes": 1000, "batch_bytes": 1001},
    ):
        with pytest.raises(InvalidArgumentError):
            WriterConfig(**settings)


# The window.


async def test_a_full_window_blocks_until_there_is_room_for_that_record(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=2000)
    rng = random.Random(1)
    writer.append_nowait(rng.randbytes(900))
    writer.append_nowait(rng.randbytes(900))
    with pytest.raises(trio.WouldBlock):
        writer.append_nowait(rng.randbytes(900))
    async with trio.open_nursery() as nursery:
        waited = trio.Event()

        async def wait() -> None:
            await writer.wait_writable()
            waited.set()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not waited.is_set()
        sink.answer()
    writer.append_nowait(rng.randbytes(900))

    assert writer.statistics().in_flight_bytes <= 2000


async def test_a_small_window_never_spins(sink: FakeSink, autojump_clock: MockClock) -> None:
    """Half of the window is free and the record needs more, so it can only wait."""
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=1000)
    rng = random.Random(1)
    writer.append_nowait(rng.randbytes(300))
    with trio.move_on_after(10) as patience:
        await writer.append(rng.randbytes(800))

    assert patience.cancelled_caught, "it was taken without room"
    assert len(sink.taken) == 1


async def test_an_append_waits_for_room_and_is_then_sent(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=1000)
    rng = random.Random(1)
    writer.append_nowait(rng.randbytes(300))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.append, rng.randbytes(800))
        await trio.testing.wait_all_tasks_blocked()
        sink.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert [one.sealed.record_count for one in sink.taken] == [1, 1]
        sink.answer()


async def test_a_record_larger_than_the_window_is_refused(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=2000)

    with pytest.raises(TooLargeError, match="in_flight_bytes is 2000"):
        await writer.append(bytes(3000))


async def test_all_waiting_appends_get_room(sink: FakeSink, autojump_clock: MockClock) -> None:
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=3000, linger_s=0)
    rng = random.Random(1)
    async with open_linger(writer), trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(writer.append, rng.randbytes(rng.choice((1, 500, 2500))))
            if number % 7 == 0:
                await trio.testing.wait_all_tasks_blocked()
        while writer.statistics().records_count < 50 or not sink.is_idle:
            await trio.sleep(0.01)
            if not sink.is_idle:
                sink.answer()
            assert writer.statistics().in_flight_bytes <= 3000


# Flushing.


async def test_appends_that_wait_for_room_get_different_seqs(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    """A record gets its seq with its room; earlier, two waiting records would get the same."""
    writer = Writer(
        [sink],
        WriterConfig(batch_bytes=1000, in_flight_bytes=1000),
        session=a_session(),
        home_epoch=1,
        now_us=lambda: 0,
    )
    rng = random.Random(1)
    async with open_linger(writer), trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(writer.append, rng.randbytes(900))
        for _ in range(5):
            await trio.testing.wait_all_tasks_blocked()
            sink.answer()

    stamps = [one.terms.writer for one in sink.taken]
    assert [None if one is None else one.seqs.first for one in stamps] == [0, 1, 2, 3, 4]


def a_till(sink: FakeSink) -> Writer:
    """A named writer with one record per batch."""
    return Writer(
        [sink],
        WriterConfig(linger_s=0.01, batch_bytes=100, in_flight_bytes=1 << 20),
        session=a_session(),
        home_epoch=1,
        now_us=lambda: int(trio.current_time() * 1e6),
    )


@pytest.fixture
async def till(sink: FakeSink) -> AsyncIterator[Writer]:
    async with open_linger(a_till(sink)) as writer:
        yield writer
        while not sink.is_idle:
            sink.answer()
            await trio.testing.wait_all_tasks_blocked()


def fill(writer: Writer) -> int:
    """Append until there is no room; return the count."""
    count = 0
    with suppress(trio.WouldBlock):
        while True:
            writer.append_nowait(bytes(99))
            count += 1
    return count


async def test_a_named_writer_has_at_most_as_many_unanswered_batches_as_the_log_remembers(
    sink: FakeSink, till: Writer, autojump_clock: MockClock
) -> None:
    assert fill(till) == 65  # The last one is held back.
    assert len(sink.taken) == 64
    assert till.seq_highest == 64
    await trio.sleep(1)
    assert len(sink.taken) == 64

    sink.answer()
    assert len(sink.taken) == 65
    assert fill(till) == 1
    sink.answer(10)
    assert fill(till) == 10


async def test_a_held_back_batch_keeps_filling(
    sink: FakeSink, till: Writer, autojump_clock: MockClock
) -> None:
    for _ in range(64):
        till.append_nowait(bytes(99))
    for value in (b"1", b"2", b"3"):
        till.append_nowait(value)
        await trio.sleep(1)
    with pytest.raises(trio.WouldBlock):
        till.append_nowait(b"4")  # Three of them fit.
    assert len(sink.taken) == 64

    sink.answer()
    assert sink.values()[64:] == [[b"1", b"2", b"3"]]


async def test_each_answer_lets_one_waiting_append_go_on(
    sink: FakeSink, till: Writer, autojump_clock: MockClock
) -> None:
    fill(till)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(till.post, bytes(99))
        for waiting in (3, 2, 1):
            await trio.sleep(1)
            assert len(nursery.child_tasks) == waiting
            sink.answer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(till.wait_writable)
        await trio.sleep(1)
        assert nursery.child_tasks
        sink.answer()
    assert len(sink.taken) == 68


async def test_flush_waits_for_a_held_back_batch(
    sink: FakeSink, till: Writer, autojump_clock: MockClock
) -> None:
    fill(till)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(till.flush)
        await trio.sleep(1)
        sink.answer(64)
        await trio.sleep(1)
        assert len(sink.taken) == 65
        assert nursery.child_tasks
        sink.answer()


async def test_refused_records_do_not_raise_the_highest_seq(
    autojump_clock: MockClock,
) -> None:
    """The writer keeps the highest seq itself, so a refusal must lower it again."""
    sinks = [FakeSink(), FakeSink()]
    sinks[1].name = PartitionName(StreamName("a", "b"), 1)
    writer = Writer(
        sinks, WriterConfig(), session=a_session(len(sinks)), home_epoch=1, now_us=lambda: 0
    )
    one, other = (
        next(b"%d" % n for n in range(9) if partition_of_key(b"%d" % n, 2) == number)
        for number in range(2)
    )
    for seq, key in enumerate([one, other, one, other]):
        writer.append_nowait(b"", key=key, seq=10 * seq)
    for lane in writer.lanes:
        lane.seal()
    writer.append_nowait(b"", key=one, seq=77)
    writer.append_nowait(b"", key=other, seq=88, expect_sequence=5)
    assert writer.seq_highest == 88

    writer.lanes[1].seal()
    assert writer.seq_highest == 77
    writer.append_nowait(b"", key=one, seq=78, expect_sequence=5)
    writer.lanes[0].seal()
    assert writer.seq_highest == 77
    writer.append_nowait(b"", key=one)
    assert writer.seq_highest == 78


async def test_a_held_back_batch_is_refused_when_the_writer_fails(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_till(sink)

    async def post_until_it_fails() -> None:
        async with open_linger(writer) as till:
            fill(till)
            await till.post(bytes(99))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_fenced, post_until_it_fails)
        await trio.sleep(1)
        sink.fail(FencedError("another"))
    assert writer.seq_highest == 63


async def test_flush_waits_for_all_appended_records(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    writer.append_nowait(b"one")
    await trio.testing.wait_all_tasks_blocked()
    writer.append_nowait(b"two")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.flush)
        await trio.testing.wait_all_tasks_blocked()
        assert sink.values() == [[b"one"], [b"two"]]
        sink.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        sink.answer()


async def test_flush_does_not_wait_for_later_appends(
    sink: FakeSink, writer: Writer, autojump_clock: MockClock
) -> None:
    writer.append_nowait(b"one")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.flush)
        await trio.testing.wait_all_tasks_blocked()
        writer.append_nowait(b"two")
        await trio.sleep(1)
        sink.answer()
        await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
    assert not sink.is_idle


async def test_flush_with_nothing_appended_returns(
    writer: Writer, autojump_clock: MockClock
) -> None:
    await writer.flush()


# Failure.


async def test_after_a_failure_sent_records_are_unknown_and_unsent_ones_refused(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=100)
    sent = writer.append_nowait(bytes(100))
    gathered = writer.append_nowait(b"gathered")
    sink.fail(FencedError("another writes"))

    with pytest.raises(FencedError):
        writer.append_nowait(b"late")
    with pytest.raises(OutcomeUnknownError):
        await sent.wait()
    with pytest.raises(FencedError):
        await gathered.wait()
    with pytest.raises(FencedError):
        await writer.flush()


async def test_waiting_appends_fail_when_the_writer_fails(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink, batch_bytes=1000, in_flight_bytes=1000)
    rng = random.Random(1)
    writer.append_nowait(rng.randbytes(900))
    async with trio.open_nursery() as nursery:

        async def append() -> None:
            with pytest.raises(FencedError):
                await writer.append(rng.randbytes(900))

        nursery.start_soon(append)
        await trio.testing.wait_all_tasks_blocked()
        sink.fail(FencedError("another writes"))


async def test_waiting_appends_fail_when_another_lane_fails(
    autojump_clock: MockClock,
) -> None:
    """A failed lane may fill the window, and would never make room."""
    sinks = [FakeSink(), FakeSink()]
    writer = Writer(
        sinks,
        WriterConfig(batch_bytes=1000, in_flight_bytes=1000),
        home_epoch=1,
        now_us=lambda: 0,
    )
    key_of = {partition_of_key(key, 2): key for key in (b"a", b"b", b"c", b"d")}
    writer.append_nowait(random.Random(1).randbytes(900), key=key_of[1])
    sinks[0].fail(FencedError("fenced"))
    await writer.lanes[0].run_end_watch()

    with pytest.raises(FencedError):
        await writer.append(bytes(900), key=key_of[1])


async def expect_fenced(act: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(FencedError):
        await act()


async def test_waiting_appends_hear_of_a_lane_that_fails_with_nothing_in_flight(
    autojump_clock: MockClock,
) -> None:
    sinks = [FakeSink(), FakeSink()]
    config = WriterConfig(batch_bytes=1000, in_flight_bytes=1000)
    writer = Writer(sinks, config, home_epoch=1, now_us=lambda: 0)
    key = next(key for key in (b"a", b"b", b"c", b"d") if partition_of_key(key, 2) == 1)

    async def append_until_one_fails() -> None:
        async with open_linger(writer):
            writer.append_nowait(bytes(900), key=key)
            with trio.fail_after(1):
                await writer.append(bytes(900), key=key)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_fenced, append_until_one_fails)
        await trio.testing.wait_all_tasks_blocked()
        sinks[0].fail(FencedError("fenced"))


async def test_an_append_waits_for_its_answer_while_another_lane_fails(
    autojump_clock: MockClock,
) -> None:
    """If it were woken without room, it would ask for ever, and no other task would run."""
    sinks = [FakeSink(), FakeSink()]
    writer = Writer(
        sinks,
        WriterConfig(batch_bytes=100, in_flight_bytes=1 << 20),
        session=a_session(2),
        home_epoch=1,
        now_us=lambda: 0,
    )
    key = next(key for key in (b"a", b"b", b"c", b"d") if partition_of_key(key, 2) == 1)
    with suppress(trio.WouldBlock):
        while True:
            writer.append_nowait(bytes(99), key=key)
    sinks[0].fail(FencedError("fenced"))
    await writer.lanes[0].run_end_watch()

    with trio.move_on_after(1) as patience:
        await writer.append(bytes(99), key=key)
    assert patience.cancelled_caught, "it was taken without room"
    sinks[1].fail(FencedError("fenced"))
    await writer.lanes[1].run_end_watch()
    with pytest.raises(FencedError):
        await writer.append(bytes(99), key=key)


@pytest.mark.parametrize("answer", [Unknown, AppendRefused])
async def test_flush_raises_once_what_happened_to_a_posted_record(
    sink: FakeSink,
    answer: Callable[[GeologError], Unknown | AppendRefused],
    autojump_clock: MockClock,
) -> None:
    """The owner goes on, so nothing else would tell that the record may be lost."""
    writer = a_writer(sink)
    await writer.post(b"posted")
    sink.answer(answer=answer(ConflictError("not there")))

    with pytest.raises(ConflictError, match="not there"):
        await writer.flush()
    await writer.flush()


async def test_flush_leaves_the_error_of_an_append_to_its_answer(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    writer = a_writer(sink)
    appended = writer.append_nowait(b"appended")
    writer.lanes[0].seal()
    sink.answer(answer=Unknown(OutcomeUnknownError("lost")))

    await writer.flush()
    with pytest.raises(OutcomeUnknownError):
        await appended.wait()


async def test_a_refused_batch_takes_no_room(sink: FakeSink, autojump_clock: MockClock) -> None:
    """No other batch is in flight whose answer would wake the waiting append."""
    config = {"batch_bytes": 1000, "in_flight_bytes": 1000}
    async with open_linger(a_writer(sink, **config)) as writer:
        refused = writer.append_nowait(b"a" * 800, expect_sequence=5)
        with trio.fail_after(1):
            await writer.post(b"b" * 800)
        sink.answer()
        with pytest.raises(ConflictError):
            await refused.wait()
    assert sink.values() == [[b"b" * 800]]


async def test_waiting_appends_get_the_room_of_a_refused_batch(
    sink: FakeSink, autojump_clock: MockClock
) -> None:
    config = {"batch_bytes": 1000, "in_flight_bytes": 1000}
    writer = a_writer(sink, **config)
    writer.append_nowait(b"a" * 800, expect_sequence=5)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(1):
            nursery.start_soon(writer.wait_writable)
            await trio.testing.wait_all_tasks_blocked()
            writer.lanes[0].seal()  # Like its linger.
            await trio.testing.wait_all_tasks_blocked()
        assert not nursery.child_tasks
