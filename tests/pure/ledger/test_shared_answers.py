"""Many callers that want the same answer at the same time."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from geolog.ledger.reading.shared_answers import SharedAnswers


class Oracle:
    """Answers on command."""

    def __init__(self) -> None:
        self.asked_count = 0
        self.speaks = trio.Event()

    async def __call__(self) -> list[int]:
        self.asked_count += 1
        await self.speaks.wait()
        return [self.asked_count]


async def test_one_request_serves_all_concurrent_callers(autojump_clock: MockClock) -> None:
    shared, oracle, got = SharedAnswers[str, list[int]](), Oracle(), list[list[int]]()

    async def ask() -> None:
        got.append(await shared.ask("tail", oracle))

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        oracle.speaks.set()

    assert oracle.asked_count == 1
    assert len(got) == 50
    assert all(one is got[0] for one in got)


async def test_other_requests_run_concurrently(autojump_clock: MockClock) -> None:
    shared, one, other = SharedAnswers[str, list[int]](), Oracle(), Oracle()
    other.speaks.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared.ask, "here", one)
        await wait_all_tasks_blocked()

        assert await shared.ask("there", other) == [1]
        one.speaks.set()


async def test_a_call_after_the_answer_sends_a_new_request(autojump_clock: MockClock) -> None:
    shared, oracle = SharedAnswers[str, list[int]](), Oracle()
    oracle.speaks.set()

    assert await shared.ask("tail", oracle) == [1]
    assert await shared.ask("tail", oracle) == [2]


async def test_if_the_first_caller_is_cancelled_another_asks(autojump_clock: MockClock) -> None:
    shared, oracle, got = SharedAnswers[str, list[int]](), Oracle(), list[list[int]]()

    async def ask() -> None:
        got.append(await shared.ask("tail", oracle))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as first:
            async with trio.open_nursery() as impatient:
                impatient.start_soon(ask)
                await wait_all_tasks_blocked()
                for _ in range(3):
                    nursery.start_soon(ask)
                await wait_all_tasks_blocked()
                first.cancel()
        await wait_all_tasks_blocked()
        assert oracle.asked_count == 2
        oracle.speaks.set()

    assert got == [[2], [2], [2]]


async def test_an_error_reaches_only_the_caller_that_asked(autojump_clock: MockClock) -> None:
    shared, oracle = SharedAnswers[str, list[int]](), Oracle()
    oracle.speaks.set()

    async def fail() -> list[int]:
        await wait_all_tasks_blocked()
        raise OSError("the line is dead")

    async def fail_alone() -> None:
        with pytest.raises(OSError, match="dead"):
            await shared.ask("tail", fail)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_alone)
        await trio.testing.wait_all_tasks_blocked()
        assert await shared.ask("tail", oracle) == [1]
