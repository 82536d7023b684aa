"""The log, used from event loops."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import geolog
from geolog import aio, blocking
from geolog.aio.log import log_of
from geolog.client.spooling.spool_directory import read_spool
from sim.in_process import InProcessCluster
from tests.pure.portal.clusters import client_of, filled, numbered, sequences_of


@asynccontextmanager
async def connected(cluster: InProcessCluster, host: str = "aio") -> AsyncIterator[aio.Log]:
    async with log_of(client_of(cluster, host)) as log:
        yield log


async def values_of(log: aio.Log, stream: str) -> list[bytes]:
    async with log.open_reader(stream) as reader:
        return [record.value async for record in reader]


def test_records_appended_by_tasks_are_read_back_one_by_one_and_in_batches(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            async with log.open_writer(stream) as writer:
                first = await writer.append(b"alone", key=b"k", headers={"h": b"1"})
                receipts = await asyncio.gather(*map(writer.append, numbered(1000)))
                pending = [writer.append_nowait(value) for value in numbered(1000, 1000)]
                receipts += [await one.wait() for one in pending]
            async with log.open_reader(stream) as reader:
                record = await anext(reader)
                batches = [batch.values() async for batch in reader.batches()]
            assert (record.key, record.headers) == (b"k", {"h": b"1"})
            assert [value for values in batches for value in values] == numbered(2000)
            assert sequences_of([first, *receipts]) == list(range(2001))

    asyncio.run(program())


def test_many_records_are_appended_in_order_through_a_small_window(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            async with log.open_writer(
                stream, batch_bytes=4096, in_flight_bytes=8192
            ) as writer:
                receipts = await writer.append_many(numbered(3000))
                with pytest.raises(geolog.InvalidArgumentError, match="record 1 of"):
                    await writer.append_many([b"right", "wrong"])  # type: ignore[list-item]
            assert sequences_of(receipts) == list(range(3000))
            assert await values_of(log, stream) == numbered(3000)

    asyncio.run(program())


def test_a_full_window_holds_appends_back_until_there_is_room(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            async with log.open_writer(
                stream, batch_bytes=4096, in_flight_bytes=8192
            ) as writer:
                filled_count = filled(
                    lambda: writer.append_nowait(bytes(1000)), until=aio.WouldBlock
                )
                assert filled_count >= 7
                await asyncio.gather(*(writer.append(bytes(1000)) for _ in range(50)))
                await writer.flush()
            assert len(await values_of(log, stream)) == filled_count + 50

    asyncio.run(program())


def test_a_cancelled_wait_for_the_next_record_loses_nothing(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with (
            connected(cluster) as log,
            log.open_reader(stream, follow=True) as reader,
            log.open_writer(stream) as writer,
        ):
            for value in numbered(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(reader), 0.02)
                await writer.append(value)
                assert (await asyncio.wait_for(anext(reader), 30)).value == value

    asyncio.run(program())


def test_a_cancelled_append_is_stored_once_or_not_at_all(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            async with log.open_writer(stream) as writer:
                tasks = [asyncio.create_task(writer.append(value)) for value in numbered(300)]
                await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
            values = await values_of(log, stream)

        cancelled, kept = ended[::2], ended[1::2]
        assert len(values) == len(set(values))
        assert set(numbered(300)[1::2]) <= set(values)
        assert all(isinstance(one, geolog.Receipt) for one in kept)
        # The answer may have come first: it comes from another thread.
        assert all(
            isinstance(one, geolog.Receipt | asyncio.CancelledError) for one in cancelled
        )
        assert any(isinstance(one, asyncio.CancelledError) for one in cancelled)

    asyncio.run(program())


def test_a_cancelled_call_has_ended_before_the_task_goes_on(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0), log.open_writer(stream):
                        pass
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(log.verify_stream(stream), 0)
            async with log.open_writer(stream) as writer:
                await writer.append(b"after")
            assert await values_of(log, stream) == [b"after"]

    asyncio.run(program())


def test_a_task_cancelled_in_its_block_closes_what_it_opened(
    cluster: InProcessCluster, stream: str
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            opened = asyncio.Event()

            async def append_then_wait() -> None:
                async with log.open_writer(stream) as writer:
                    await writer.append(b"kept")
                    opened.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(append_then_wait())
            await opened.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await values_of(log, stream) == [b"kept"]

    asyncio.run(program())


def test_errors_of_the_log_are_raised_unchanged(cluster: InProcessCluster) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            with pytest.raises(geolog.NoSuchStreamError) as refused:
                await log.describe_stream("test/nowhere")
            assert refused.value.code == 404
            with pytest.raises(geolog.NoSuchStreamError):
                async with log.open_reader("test/nowhere"):
                    pass
        with pytest.raises(aio.ClosedError):
            await log.list_streams()

    asyncio.run(program())


def test_progress_is_reported_in_the_event_loop(cluster: InProcessCluster, stream: str) -> None:
    async def program() -> None:
        told: list[tuple[int, int, int]] = []
        async with connected(cluster) as log:
            async with log.open_writer(stream) as writer:
                for value in numbered(20):
                    await writer.append(value)
            report = await log.verify_stream(
                stream,
                progress=lambda done, total: told.append((done, total, threading.get_ident())),
            )
        assert report.is_good
        assert told[-1][0] == told[-1][1]
        assert {ident for _, _, ident in told} == {threading.get_ident()}

    asyncio.run(program())


def test_event_loops_and_ordinary_threads_share_the_trio_thread(
    cluster: InProcessCluster, log: blocking.Log, stream: str
) -> None:
    names = [f"{stream}-{number}" for number in range(6)]
    for name in names:
        log.create_stream(name, survive="1 region")

    async def in_a_loop(name: str) -> int:
        async with connected(cluster, f"host of {name}") as own:
            async with own.open_writer(name) as writer:
                await asyncio.gather(*map(writer.append, numbered(200)))
            return len(await values_of(own, name))

    def in_a_thread(name: str) -> int:
        with log.open_writer(name) as writer:
            for value in numbered(50):
                writer.append(value)
        with log.open_reader(name) as reader:
            return sum(1 for _ in reader)

    with ThreadPoolExecutor(6) as pool:
        loops = [pool.submit(asyncio.run, in_a_loop(name)) for name in names[:3]]
        threads = [pool.submit(in_a_thread, name) for name in names[3:]]

        assert [one.result() for one in loops] == [200] * 3
        assert [one.result() for one in threads] == [50] * 3


def test_a_loop_that_closed_with_appends_in_flight_disturbs_nobody(
    cluster: InProcessCluster, log: blocking.Log, stream: str
) -> None:
    async def abandon() -> None:
        opening = log_of(client_of(cluster, "abandoned"))
        own = await opening.__aenter__()
        writer = await own.open_writer(stream).__aenter__()
        for value in numbered(100):
            writer.append_nowait(value)

    asyncio.run(abandon())

    with log.open_writer(stream) as writer:
        assert writer.append(b"after").sequence <= 100


def test_a_wrong_type_is_reported_with_its_parameter_as_under_trio(
    cluster: InProcessCluster, stream: str
) -> None:
    async def ask() -> None:
        async with log_of(client_of(cluster)) as log:
            with pytest.raises(geolog.InvalidArgumentError, match=r"start=geolog\.EARLIEST"):
                await log.open_reader(stream, start="earliest").__aenter__()  # type: ignore[arg-type]
            with pytest.raises(geolog.InvalidArgumentError, match="name is None"):
                await log.describe_stream(None)  # type: ignore[arg-type]

    asyncio.run(ask())


def test_records_of_a_writer_with_a_spool_are_on_disk_first_and_then_in_the_log(
    cluster: InProcessCluster, stream: str, tmp_path: Path
) -> None:
    async def program() -> None:
        async with connected(cluster) as log:
            opening = log.open_writer(stream, writer_id="till", spool=tmp_path / "spool")
            async with opening as writer:
                await asyncio.gather(*map(writer.post, numbered(100)))
                on_disk = sum(one.count for one in read_spool(tmp_path / "spool").frames)
                pending = writer.append_nowait(b"last")
                await writer.wait_spooled()
                receipt = await writer.append(b"very last")
                await writer.flush()
                figures = writer.spool_statistics()
            async with log.open_writer(stream) as plain:
                with pytest.raises(geolog.InvalidArgumentError, match="has no spool"):
                    await plain.wait_spooled()
                with pytest.raises(geolog.InvalidArgumentError, match="has no spool"):
                    plain.spool_statistics()
            assert on_disk == 100
            assert ((await pending.wait()).sequence, receipt.sequence) == (100, 101)
            assert figures.unanswered_records == 0
            assert sorted(await values_of(log, stream)) == sorted(
                [*numbered(100), b"last", b"very last"]
            )

    asyncio.run(program())


def test_a_pattern_is_followed_and_resumed_from_saved_positions(
    cluster: InProcessCluster, stream: str
) -> None:
    pattern = f"{stream}*"

    async def program() -> None:
        async with connected(cluster) as log:
            async with log.open_writer(stream) as writer:
                await asyncio.gather(*map(writer.append, numbered(10)))
            async with log.open_reader(pattern, follow=True) as reader:
                taken = [(await anext(reader)).value for _ in range(4)]
                positions = await reader.positions()
            async with log.open_reader(pattern, positions=positions) as reader:
                rest = [record.value async for record in reader]
                at_end = await reader.positions()
            async with log.open_reader(stream) as reader:
                with pytest.raises(geolog.InvalidArgumentError, match="is one stream"):
                    await reader.positions()
        assert taken + rest == numbered(10)
        assert [text.partition("@")[0] for text in at_end.values()] == ["10"]

    asyncio.run(program())
