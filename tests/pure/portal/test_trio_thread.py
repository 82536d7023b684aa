"""The trio thread: what runs there, how it ends, and what a fork leaves."""

import threading

import pytest
import trio

from geolog import blocking
from geolog.blocking.opening import Opening
from geolog.blocking.waiting import wait_for
from geolog.portal.call import Call
from geolog.portal.residence import Residence
from geolog.portal.trio_thread import TrioThread, shared_thread
from tests.pure.portal.clusters import in_trio_thread


def a_thread() -> TrioThread:
    thread = TrioThread()
    thread.start()
    return thread


def call_in(thread: TrioThread) -> Call[int]:
    async def ident() -> int:
        await trio.lowlevel.checkpoint()
        return threading.get_ident()

    call = Call(thread, ident)
    call.start(thread.tasks)
    return call


def test_all_threads_share_one_trio_thread() -> None:
    found: list[TrioThread] = []
    threads = [threading.Thread(target=lambda: found.append(shared_thread())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(found) == {shared_thread()}
    assert wait_for(call_in(shared_thread())) == wait_for(call_in(found[0]))


def test_ending_the_thread_closes_open_blocks_and_refuses_new_calls() -> None:
    thread = a_thread()

    async def wait() -> None:
        await trio.sleep_forever()

    call = Call(thread, wait)
    call.start(thread.tasks)
    thread.end()

    with pytest.raises(blocking.ClosedError):
        call.future.result(0)
    with pytest.raises(blocking.ClosedError, match="ended"):
        call_in(thread)
    assert not thread.is_running
    thread.end()  # Ending it twice is harmless.


def test_the_parents_thread_takes_no_calls_in_a_forked_child() -> None:
    thread = a_thread()
    try:
        thread.is_forked = True

        with pytest.raises(blocking.ForkedError, match="forked"):
            call_in(thread)
        assert not thread.is_running
    finally:
        thread.is_forked = False
        thread.end()


def test_an_inherited_block_ends_in_a_forked_child_and_leaves_the_parent_alone() -> None:
    thread = a_thread()
    entered = []

    class Resident:
        async def __aenter__(self) -> str:
            entered.append("in")
            return "resident"

        async def __aexit__(self, *error: object) -> None:
            entered.append("out")

    residence = Residence[str](thread, Resident)
    try:
        with Opening(lambda: (residence, thread.tasks), lambda _, value: value) as value:
            assert value == "resident"
            thread.is_forked = True
        assert entered == ["in"]
    finally:
        thread.is_forked = False
        thread.end()


def test_an_error_on_closing_is_raised_when_the_block_ends() -> None:
    class Stuck:
        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *error: object) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), in_trio_thread(Stuck):
        pass


def test_a_call_cancelled_before_it_starts_does_not_run() -> None:
    ran = []

    async def run() -> None:
        await trio.lowlevel.checkpoint()
        ran.append("ran")

    thread = shared_thread()
    call = Call(thread, run)
    call.cancel()
    call.start(thread.tasks)

    with pytest.raises(blocking.ClosedError):
        call.future.result(10)
    assert ran == []
