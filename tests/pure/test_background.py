"""Background tasks do not change what a block raises."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from geolog.background import all_of, both, open_background
from tests.pure.garbage import only_collected
from topology.errors import ConflictError, UnavailableError


async def test_an_error_of_the_block_comes_out_unwrapped() -> None:
    async def run_block() -> None:
        async with open_background() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run_block()


async def test_an_interrupt_of_the_block_comes_out_unwrapped() -> None:
    with pytest.raises(KeyboardInterrupt):
        async with open_background():
            raise KeyboardInterrupt


async def test_an_interrupt_of_a_background_task_comes_out_unwrapped() -> None:
    async def be_struck() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await _wait_alongside(be_struck)


async def test_an_exit_of_the_block_comes_out_unwrapped() -> None:
    with pytest.raises(SystemExit) as ended:
        async with open_background(), open_background():
            sys.exit(0)
    assert ended.value.code == 0


async def test_an_exit_in_a_nursery_of_the_block_comes_out_unwrapped() -> None:
    with pytest.raises(SystemExit) as ended:
        async with open_background(), trio.open_nursery():
            sys.exit(3)
    assert ended.value.code == 3


async def test_the_only_error_of_a_background_task_comes_out_unwrapped() -> None:
    async def break_down() -> None:
        raise UnavailableError("away")

    with pytest.raises(UnavailableError, match="away"):
        await _wait_alongside(break_down)


async def break_down_at_the_end() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("a defect")


async def end_with(error: BaseException) -> None:
    async with open_background() as nursery:
        nursery.start_soon(break_down_at_the_end)
        await trio.testing.wait_all_tasks_blocked()
        raise error


async def test_an_exit_wins_over_background_errors_and_has_them_as_its_cause() -> None:
    with pytest.raises(SystemExit) as ended:
        await end_with(SystemExit(0))
    assert "a defect" in repr(ended.value.__cause__)


async def test_errors_of_the_block_and_of_a_task_come_out_as_one_group() -> None:
    with pytest.RaisesGroup(KeyError, ValueError):
        await end_with(KeyError("mine"))


async def test_a_group_that_the_block_raises_is_left_unchanged() -> None:
    group = ExceptionGroup("mine", [KeyError("mine")])
    with pytest.RaisesGroup(KeyError) as ended:
        async with open_background():
            raise group
    assert ended.value is group


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(3)])
async def test_an_interrupt_or_exit_of_one_of_several_calls_comes_out_unwrapped(
    ending: BaseException,
) -> None:
    async def be_struck() -> None:
        await trio.testing.wait_all_tasks_blocked()
        raise ending

    with pytest.raises(type(ending)) as ended:
        await both(trio.sleep_forever, be_struck)
    assert ended.value is ending


async def test_the_first_error_of_several_calls_comes_out_unwrapped() -> None:
    async def fail() -> None:
        await trio.testing.wait_all_tasks_blocked()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await all_of([trio.sleep_forever, fail, trio.sleep_forever])


async def _wait_alongside(task: Callable[[], Awaitable[None]]) -> None:
    async with open_background(), open_background() as nursery:
        nursery.start_soon(task)
        await trio.sleep_forever()


async def test_a_cancelled_block_leaves_nothing_for_the_garbage_collector() -> None:
    async def cancelled_block() -> None:
        with trio.CancelScope() as scope:
            async with open_background() as nursery:
                nursery.start_soon(trio.sleep_forever)
                scope.cancel(reason="the test ends it")
                await trio.sleep_forever()

    with only_collected() as found:
        await cancelled_block()

    assert found == []


async def test_a_call_that_fails_leaves_nothing_for_the_garbage_collector() -> None:
    async def fail() -> None:
        raise ConflictError("no")

    with only_collected() as found, suppress(ConflictError):
        await all_of([fail, trio.sleep_forever])

    assert found == []
