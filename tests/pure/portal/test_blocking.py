"""The log, used from ordinary threads."""

import signal
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import geolog
from geolog import blocking
from geolog.blocking.log import log_of
from geolog.blocking.waiting import wait_for
from geolog.client.spooling.spool_directory import read_spool
from geolog.portal.call import Call
from geolog.portal.trio_thread import shared_thread
from sim.in_process import InProcessCluster
from tests.pure.portal.clusters import (
    TRIES,
    client_of,
    filled,
    in_trio_thread,
    numbered,
    sequences_of,
)
from tests.pure.whole.clusters import ended_by


def values_of(log: blocking.Log, stream: str) -> list[bytes]:
    with log.open_reader(stream) as reader:
        return [record.value for record in reader]


def test_many_records_are_appended_in_order_or_none_if_one_is_wrong(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        assert writer.append_many([]) == []
        receipts = writer.append_many(numbered(1000), key=b"k", headers={"h": b"1"})
        with pytest.raises(geolog.TooLargeError, match="record 1 of append_many"):
            writer.append_many([b"right", bytes(64 << 20)])

    assert sequences_of(receipts) == list(range(1000))
    with log.open_reader(stream) as reader:
        records = list(reader)
    assert [record.value for record in records] == numbered(1000)
    assert {(record.key, record.headers["h"]) for record in records} == {(b"k", b"1")}


def test_appended_records_are_read_back_one_by_one_and_in_batches(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        first = writer.append(b"alone", key=b"k", headers={"h": b"1"}, transaction_id=7)
        pending = [writer.append_nowait(value) for value in numbered(1000)]
        receipts = [first, *(one.wait() for one in pending)]

    with log.open_reader(stream) as reader:
        record = next(reader)
        values = [value for batch in reader.batches() for value in batch.values()]
    assert (record.key, record.headers, record.transaction_id) == (b"k", {"h": b"1"}, 7)
    assert values == numbered(1000)
    assert sequences_of(receipts) == list(range(1001))


def test_a_block_without_an_error_flushes_at_its_end(log: blocking.Log, stream: str) -> None:
    with log.open_writer(stream) as writer:
        for value in numbered(5000):
            writer.append_nowait(value)

    assert values_of(log, stream) == numbered(5000)


def test_flush_returns_once_all_earlier_appends_are_acknowledged(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        pending = [writer.append_nowait(value) for value in numbered(3000)]
        writer.flush()
        assert values_of(log, stream) == numbered(3000)
        assert sequences_of([one.wait() for one in pending]) == list(range(3000))


def test_a_full_window_refuses_append_nowait_and_holds_back_append(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream, batch_bytes=4096, in_flight_bytes=8192) as writer:
        filled_count = filled(
            lambda: writer.append_nowait(bytes(1000)), until=blocking.WouldBlock
        )
        receipts = [writer.append(bytes(1000)) for _ in range(20)]

    assert filled_count >= 7
    assert sequences_of(receipts) == list(range(filled_count, filled_count + 20))


def test_a_record_larger_than_the_window_is_refused_at_once(
    log: blocking.Log, stream: str
) -> None:
    with (
        log.open_writer(stream, batch_bytes=4096, in_flight_bytes=8192) as writer,
        pytest.raises(geolog.TooLargeError, match="in_flight_bytes"),
    ):
        writer.append_nowait(bytes(9000))


def test_threads_share_a_writer_and_each_gets_its_own_receipts(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer, ThreadPoolExecutor(8) as pool:

        def append_some(number: int) -> list[tuple[int, bytes]]:
            values = numbered(50, start=50 * number)
            return [(writer.append(value).sequence, value) for value in values]

        placed = [one for some in pool.map(append_some, range(8)) for one in some]

    assert [value for _, value in sorted(placed)] == values_of(log, stream)
    assert sorted(value for _, value in placed) == sorted(numbered(400))


def test_errors_of_the_log_are_raised_unchanged(log: blocking.Log) -> None:
    with pytest.raises(geolog.NoSuchStreamError) as refused:
        log.describe_stream("test/nowhere")
    assert (refused.value.code, refused.value.outcome) == (404, "refused")
    with pytest.raises(geolog.NoSuchStreamError), log.open_reader("test/nowhere"):
        pass
    with pytest.raises(geolog.InvalidArgumentError), log.open_writer("no-namespace"):
        pass


def test_the_next_append_of_a_fenced_writer_fails(
    cluster: InProcessCluster, log: blocking.Log, stream: str
) -> None:
    with (
        ended_by(geolog.GeologError) as ended,
        log.open_writer(stream) as first,
    ):
        first.append(b"of the first")
        with (
            log_of(client_of(cluster, "other")) as other,
            other.open_writer(stream) as second,
        ):
            second.append(b"of the second")
        first.append(b"too late")

    assert isinstance(ended.error, geolog.FencedError | geolog.OutcomeUnknownError)
    assert values_of(log, stream) == [b"of the first", b"of the second"]


def test_a_timeout_while_waiting_for_the_next_record_loses_nothing(
    log: blocking.Log, stream: str
) -> None:
    with log.open_reader(stream, follow=True) as reader, log.open_writer(stream) as writer:
        for value in numbered(3):
            with pytest.raises(TimeoutError), blocking.fail_after(0.02):
                next(reader)
            writer.append(value)
            with blocking.fail_after(30):
                assert next(reader).value == value


def test_a_call_that_times_out_has_ended_when_it_raises() -> None:
    told: list[str] = []

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            told.append("ended")

    thread = shared_thread()
    call = Call(thread, wait)
    call.start(thread.tasks)
    with pytest.raises(TimeoutError), blocking.fail_after(0.02):
        wait_for(call)

    assert told == ["ended"]


def test_a_block_that_does_not_open_in_time_is_closed_when_it_raises() -> None:
    told: list[str] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[None]:
        try:
            await trio.Event().wait()
            yield
        finally:
            told.append("closed")

    with pytest.raises(TimeoutError), blocking.fail_after(0.02), in_trio_thread(opening):
        pass

    assert told == ["closed"]


def test_a_call_that_finished_just_in_time_returns_its_result() -> None:
    async def seven() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    thread = shared_thread()
    call = Call(thread, seven)
    call.start(thread.tasks)
    call.future.result()
    with blocking.fail_after(0):
        assert wait_for(call) == 7


def test_many_appends_that_time_out_leave_no_gap_behind_those_in_the_log(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        with (
            pytest.raises(TimeoutError, match=r"was not sent|may or may not"),
            blocking.fail_after(0),
        ):
            writer.append_many(numbered(1000))
        writer.append(b"after")

    values = values_of(log, stream)
    assert values.pop() == b"after"
    assert values == numbered(len(values))


def test_an_append_that_times_out_says_whether_it_may_be_in_the_log(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        with (
            pytest.raises(TimeoutError, match=r"was not sent|may or may not"),
            blocking.fail_after(0),
        ):
            writer.append(b"late")
        writer.append(b"in time")

    assert values_of(log, stream)[-1] == b"in time"


def test_the_earliest_deadline_counts_and_each_ends_with_its_block(
    log: blocking.Log, stream: str
) -> None:
    with (
        log.open_reader(stream, follow=True) as reader,
        pytest.raises(TimeoutError),
        blocking.fail_after(0.02),
        blocking.fail_after(60),
    ):
        next(reader)
    assert log.list_streams("nowhere") == []
    with pytest.raises(geolog.InvalidArgumentError), blocking.fail_after(-1):
        pass


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_wait_for_records(log: blocking.Log, stream: str) -> None:
    with log.open_reader(stream, follow=True) as reader:
        main = threading.get_ident()
        timer = threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(reader)
        timer.join()

    assert log.describe_stream(stream).name == stream


def fail() -> None:
    raise ZeroDivisionError


def test_a_block_ended_by_an_error_raises_only_that_error(
    log: blocking.Log, stream: str
) -> None:
    with ended_by(ZeroDivisionError) as ended, log.open_writer(stream) as writer:
        writer.append(b"kept")
        fail()

    assert ended.error is not None
    assert ended.error.__context__ is None
    assert values_of(log, stream) == [b"kept"]


def test_everything_is_closed_outside_of_its_block(
    cluster: InProcessCluster, log: blocking.Log, stream: str
) -> None:
    with (
        log_of(client_of(cluster, "other")) as other,
        other.open_writer(stream) as writer,
        other.open_reader(stream) as reader,
    ):
        pass
    for use in (
        lambda: writer.append(b"late"),
        lambda: writer.append_nowait(b"late"),
        writer.flush,
        lambda: next(reader),
        other.list_streams,
        lambda: other.open_reader(stream).__enter__(),
    ):
        with pytest.raises(blocking.ClosedError):
            use()


def test_a_block_can_be_entered_only_once(log: blocking.Log, stream: str) -> None:
    opening = log.open_reader(stream)
    with opening:
        pass

    with pytest.raises(blocking.ClosedError, match="entered before"):
        opening.__enter__()


def test_statistics_count_records_that_have_not_crossed_yet(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        appended_count = 1
        writer.append_nowait(bytes(1000))
        # The other thread may get the answer first.
        while writer.statistics().in_flight_bytes < 1000 and appended_count < TRIES:
            writer.append_nowait(bytes(1000))
            appended_count += 1
        assert writer.statistics().records_count <= appended_count < TRIES
        writer.flush()
        assert writer.statistics().records_count == appended_count


def test_truncated_records_are_reported_as_a_gap(log: blocking.Log, stream: str) -> None:
    with log.open_writer(stream) as writer:
        for value in numbered(10):
            writer.append(value)
    log.truncate_stream(stream, before=geolog.AtSequence(4))

    with log.open_reader(stream, start=geolog.AtSequence(0)) as reader:
        gap, *records = reader.items()
    with log.open_reader(stream, start=geolog.AtSequence(0)) as reader:
        with pytest.raises(geolog.TrimmedError):
            next(reader)
        assert next(reader).sequence == 4
    assert isinstance(gap, geolog.Gap)
    assert [record.value for record in records if isinstance(record, geolog.Record)] == (
        numbered(6, start=4)
    )


def test_repeated_appends_of_a_named_writer_get_their_first_positions(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream, writer_id="till-7", ack="received") as writer:
        pending = [
            writer.append_nowait(value, seq=seq) for seq, value in enumerate(numbered(50))
        ]
        durable = [one.wait_durable() for one in pending]
        assert all(one.is_durable for one in pending)
        writer.post(b"the last")
    with log.open_writer(stream, writer_id="till-7") as writer:
        assert (writer.seq_highest, writer.is_appended(50)) == (50, True)
        again = [writer.append(value, seq=seq) for seq, value in enumerate(numbered(50))]

    assert not any(receipt.provisional for receipt in durable)
    assert all(receipt.duplicate for receipt in again)
    assert [one.dlsn for one in again] == [one.dlsn for one in durable]
    assert values_of(log, stream) == [*numbered(50), b"the last"]


def test_a_refused_post_is_raised_at_the_end_of_the_block(
    log: blocking.Log, stream: str
) -> None:
    with ended_by(geolog.ConflictError), log.open_writer(stream) as writer:
        writer.post(b"five", transaction_id=5)
        writer.post(b"four", transaction_id=4)


def test_closing_a_log_in_one_thread_wakes_waiting_threads(
    cluster: InProcessCluster, stream: str
) -> None:
    waits = threading.Event()
    seen: list[BaseException] = []

    def follow(log: blocking.Log) -> None:
        try:
            with log.open_reader(stream, follow=True) as reader:
                waits.set()
                next(reader)
        except blocking.ClosedError as error:
            seen.append(error)

    with log_of(client_of(cluster, "other")) as log:
        thread = threading.Thread(target=follow, args=(log,))
        thread.start()
        waits.wait()
    thread.join()

    assert [type(error) for error in seen] == [blocking.ClosedError]


def test_progress_is_reported_in_the_waiting_thread(log: blocking.Log, stream: str) -> None:
    told: list[tuple[int, int, int]] = []
    with log.open_writer(stream) as writer:
        for value in numbered(20):
            writer.append(value)

    report = log.verify_stream(
        stream,
        progress=lambda done, total: told.append((done, total, threading.get_ident())),
    )

    records = {total for _, total, _ in told}
    assert report.is_good
    assert told[-1][0] == told[-1][1]
    assert records == {20}
    assert {ident for _, _, ident in told} == {threading.get_ident()}


def test_an_unsent_record_with_a_seq_may_be_in_the_log_from_an_earlier_try(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream, writer_id="till-8") as writer:
        writer.append(b"one", seq=0)

    with pytest.raises(blocking.ClosedError) as again:
        writer.append(b"one", seq=0)
    with pytest.raises(blocking.ClosedError) as new:
        writer.append(b"two")
    assert (again.value.outcome, new.value.outcome) == ("unknown", "refused")


def test_a_wrong_type_is_reported_with_its_parameter_as_under_trio(
    log: blocking.Log, stream: str
) -> None:
    with pytest.raises(geolog.InvalidArgumentError, match=r"start=geolog\.EARLIEST"):
        log.open_reader(stream, start="earliest").__enter__()  # type: ignore[arg-type]
    with pytest.raises(geolog.InvalidArgumentError, match="writer_id='5'"):
        log.open_writer(stream, writer_id=5).__enter__()  # type: ignore[arg-type]
    with pytest.raises(geolog.InvalidArgumentError, match="name is None"):
        log.describe_stream(None)  # type: ignore[arg-type]
    with log.open_writer(stream) as writer:
        with pytest.raises(geolog.InvalidArgumentError, match=r"mean value.encode\(\)\?"):
            writer.append("text")  # type: ignore[arg-type]
        with pytest.raises(geolog.InvalidArgumentError, match="headers must be a dict"):
            writer.append(b"x", headers=[("a", b"b")])  # type: ignore[arg-type]


def test_a_reader_resumes_at_its_cursor_by_records_and_by_batches(
    log: blocking.Log, stream: str
) -> None:
    with log.open_writer(stream) as writer:
        for value in numbered(6):
            writer.append(value)

    with log.open_reader(stream, cursor="bills") as reader:
        taken = [next(reader).sequence for _ in range(2)]
        reader.commit()
        stored = log.describe_cursor(stream, "bills").partition_list[0].sequence
        taken.append(next(reader).sequence)
    with ended_by(ZeroDivisionError), log.open_reader(stream, cursor="bills") as reader:
        taken += [next(reader).sequence for _ in range(2)]
        assert 1 // (taken[0])  # Raises with a record in hand.
    with log.open_readers(stream, count=1, cursor="bills") as [reader]:
        rest = [batch.first_sequence + batch.first_row for batch in reader.batches()]

    assert (taken, stored) == ([0, 1, 2, 3, 4], 2)
    assert rest == [4, 5]
    assert log.describe_cursor(stream, "bills").lag_records == 0


def test_a_reader_without_a_cursor_commits_nothing(log: blocking.Log, stream: str) -> None:
    with log.open_reader(stream) as reader:
        with pytest.raises(geolog.InvalidArgumentError, match="cursor='NAME'"):
            reader.commit()
        with pytest.raises(geolog.InvalidArgumentError, match="cursor='NAME'"):
            reader.commit_nowait()


def test_a_posted_record_of_a_writer_with_a_spool_is_on_disk_when_post_returns(
    log: blocking.Log, stream: str, tmp_path: Path
) -> None:
    with log.open_writer(stream, writer_id="till", spool=tmp_path / "spool") as writer:
        for count, value in enumerate(numbered(20), start=1):
            writer.post(value)
            assert sum(one.count for one in read_spool(tmp_path / "spool").frames) == count
        pending = writer.append_nowait(b"last")
        writer.wait_spooled()

    assert pending.wait().sequence == 20  # The end of the block waited for the log.
    assert values_of(log, stream) == [*numbered(20), b"last"]
