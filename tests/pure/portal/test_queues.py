"""The two queues between a program and the trio thread: bounds, order and outcomes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import geolog
from geolog.client.log import Log
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.portal.inlet import Inlet, QueuedAppend
from geolog.portal.outlet import Outlet
from geolog.portal.trio_thread import TrioThread
from tests.pure.portal.clusters import numbered
from tests.pure.whole.clusters import STREAM, ended_by, open_world
from topology.errors import ClosedError


class TrioHere(TrioThread):
    """Runs posted functions in the test's own trio instead of a thread."""

    def start(self) -> None:
        self._token = trio.lowlevel.current_trio_token()


def here() -> TrioHere:
    thread = TrioHere()
    thread.start()
    return thread


def wake_events(waiters: Sequence[trio.Event]) -> None:
    for waiter in waiters:
        waiter.set()


@asynccontextmanager
async def open_inlet(
    log: Log, *, in_flight_bytes: int = 1 << 20, **settings: int
) -> AsyncIterator[tuple[Inlet[trio.Event], Writer]]:
    inlet = Inlet[trio.Event](here(), in_flight_bytes=in_flight_bytes, wake=wake_events)
    opening = log.open_writer(STREAM, in_flight_bytes=in_flight_bytes, **settings)  # type: ignore[arg-type]
    async with inlet.open(opening) as writer:
        yield inlet, writer


def put(inlet: Inlet[trio.Event], value: bytes, **terms: int) -> QueuedAppend[trio.Event]:
    return inlet.put_nowait(RecordFields(value=value, **terms))  # type: ignore[arg-type]


async def done(inlet: Inlet[trio.Event], append: QueuedAppend[trio.Event]) -> geolog.Receipt:
    waiter = trio.Event()
    if inlet.wait_done(append, waiter):
        await waiter.wait()
    return append.receipt_nowait()


async def values_of(log: Log) -> list[bytes]:
    async with log.open_reader(STREAM) as reader:
        return [record.value async for record in reader]


async def test_appends_are_answered_in_the_order_they_were_queued(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_inlet(world.log) as (inlet, _):
        appends = [put(inlet, value) for value in numbered(2000)]
        assert inlet.unanswered_bytes >= 2000 * len(b"record 0")

        receipts = [await done(inlet, append) for append in appends]

        assert [receipt.sequence for receipt in receipts] == list(range(2000))
        assert inlet.unanswered_bytes == 0


async def test_a_record_withdrawn_before_it_crossed_is_not_in_the_log(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with open_inlet(world.log) as (inlet, _):
            appends = [put(inlet, value) for value in numbered(4)]
            assert [inlet.withdraw(append) for append in appends[1:3]] == [True, True]
            await done(inlet, appends[3])
            assert not inlet.withdraw(appends[0])
            with pytest.raises(ClosedError, match="withdrawn"):
                appends[1].receipt_nowait()

        assert inlet.unanswered_bytes == 0
        assert await values_of(world.log) == [b"record 0", b"record 3"]


async def test_answers_make_room_in_a_full_window(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_inlet(world.log, in_flight_bytes=4096, batch_bytes=4096) as (inlet, _),
    ):
        for _ in range(3):
            put(inlet, bytes(1000))
        with pytest.raises(trio.WouldBlock):
            put(inlet, bytes(1000))
        room, forgotten = trio.Event(), trio.Event()
        assert inlet.wait_room(room)
        assert inlet.wait_room(forgotten)
        inlet.forget(forgotten)

        await room.wait()
        put(inlet, bytes(1000))

        assert not forgotten.is_set()


async def test_a_refused_post_is_raised_in_the_next_call(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, open_inlet(world.log) as (inlet, writer):
        for transaction_id in (5, 4):
            fields = RecordFields(value=b"posted", transaction_id=transaction_id)
            inlet.put_nowait(fields, is_posted=True)
        with pytest.raises(geolog.ConflictError):
            await inlet.flush(writer)
        await inlet.flush(writer)

        inlet.put_nowait(RecordFields(value=b"p", transaction_id=3), is_posted=True)
        await wait_all_tasks_blocked()
        with pytest.raises(geolog.ConflictError):
            put(inlet, b"next")


async def test_a_duplicate_that_cannot_be_compared_now_is_an_error_not_a_loop(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        settings = {"writer_id": "till-7"}
        async with open_inlet(world.log, **settings) as (inlet, _):  # type: ignore[arg-type]
            await done(inlet, put(inlet, b"once", seq=0))
            await done(inlet, put(inlet, b"never read back", seq=1))
        async with open_inlet(world.log, **settings) as (inlet, _):  # type: ignore[arg-type]
            assert (await done(inlet, put(inlet, b"once", seq=0))).duplicate
            with pytest.raises(geolog.ConflictError, match="different bytes"):
                await done(inlet, put(inlet, b"other", seq=0))
            for region in ("us-east", "eu-west", "ap-northeast"):
                await world.cluster.kill_region(region)
            with pytest.raises(geolog.GeologError):
                await done(inlet, put(inlet, b"never read back", seq=1))


async def test_a_writer_closed_by_an_error_gives_each_append_its_outcome(
    autojump_clock: MockClock,
) -> None:
    appends: list[QueuedAppend[trio.Event]] = []
    async with open_world() as world:
        with ended_by(ZeroDivisionError):
            async with open_inlet(world.log) as (inlet, _):
                appends.append(put(inlet, b"answered"))
                await done(inlet, appends[0])
                appends.append(put(inlet, b"sent"))
                await wait_all_tasks_blocked()
                appends.append(put(inlet, b"queued"))
                fail()

        outcomes = [outcome_of(append) for append in appends]
        assert outcomes[0] == "acknowledged"
        assert outcomes[1] in ("acknowledged", "unknown")
        assert outcomes[2] == "refused"
        assert b"queued" not in await values_of(world.log)
        with pytest.raises(ClosedError):
            put(inlet, b"late")


def fail() -> None:
    raise ZeroDivisionError


def outcome_of(append: QueuedAppend[trio.Event]) -> str:
    try:
        append.receipt_nowait()
    except geolog.GeologError as error:
        return error.outcome
    return "acknowledged"


async def test_a_reader_whose_runs_are_not_taken_stops_at_the_bound(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        async with world.log.open_writer(STREAM, batch_bytes=4096) as writer:
            for _ in range(400):
                await writer.append(bytes(1000))
        outlet = Outlet[trio.Event](here(), wake=wake_events, ahead_bytes=20_000)
        async with outlet.open(world.log.open_reader(STREAM)):
            await trio.sleep(10)
            taken = outlet.take_nowait()
            assert 20 <= sum(len(run) for run in taken if not isinstance(run, geolog.Gap)) < 30

            records = 0
            while taken:
                records += sum(len(run) for run in taken if not isinstance(run, geolog.Gap))
                waiter = trio.Event()
                if outlet.wait_some(waiter):
                    await waiter.wait()
                taken = outlet.take_nowait()
            assert records == 400
            assert outlet.take_nowait() == []
