"""Tasks in the background change nothing in what a block raises."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from geolog.background import open_background


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    async def run_block() -> None:
        async with open_background() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await run_block()


async def test_an_interrupt_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyboardInterrupt):
        async with open_background():
            raise KeyboardInterrupt


async def test_an_interrupt_of_a_background_task_comes_out_as_it_is() -> None:
    async def be_struck() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await _wait_beside(be_struck)


async def test_an_error_of_a_background_task_is_a_group() -> None:
    async def break_down() -> None:
        raise ValueError("a defect")

    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a defect")):
        await _wait_beside(break_down)


async def _wait_beside(task: Callable[[], Awaitable[None]]) -> None:
    async with open_background(), open_background() as nursery:
        nursery.start_soon(task)
        await trio.sleep_forever()
