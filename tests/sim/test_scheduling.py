"""trio's private scheduler, as far as `sim.scheduling` depends on it.

If one of these tests fails with a new version of trio, the simulator no longer replays: read
the loop in `trio._core._run.unrolled_run` and fix `sim/scheduling.py`.
"""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
import trio.testing
from trio._core import _run

from sim.scheduling import (
    EndlessMomentError,
    RunQueue,
    SchedulerSeamError,
    enter_process,
    run_seeded,
)


async def _order_of_waking(count: int) -> list[int]:
    order: list[int] = []
    go = trio.Event()

    async def wait(number: int) -> None:
        await go.wait()
        for _ in range(3):
            order.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    return order


def test_equal_seeds_give_equal_orders_and_other_seeds_other_orders() -> None:
    orders = [run_seeded(_order_of_waking, 40, seed=seed) for seed in (7, 7, 8)]

    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_a_thread_that_runs_trio_meanwhile_changes_no_order() -> None:
    """The blocking API leaves such a thread behind, with tasks that never rest."""
    alone = run_seeded(_order_of_waking, 40, seed=7)

    with _another_trio_thread():
        orders = [run_seeded(_order_of_waking, 40, seed=7) for _ in range(4)]

    assert orders == [alone] * 4


@contextmanager
def _another_trio_thread() -> Iterator[None]:
    is_over = threading.Event()
    has_begun = threading.Event()

    async def spin() -> None:
        while not is_over.is_set():
            has_begun.set()
            await trio.lowlevel.checkpoint()

    async def spin_together() -> None:
        async with trio.open_nursery() as nursery:  # A lone task needs no order.
            for _ in range(5):
                nursery.start_soon(spin)

    thread = threading.Thread(target=trio.run, args=(spin_together,))
    thread.start()
    has_begun.wait()
    switched_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # So that both threads draw in turn.
    try:
        yield
    finally:
        sys.setswitchinterval(switched_s)
        is_over.set()
        thread.join()


def test_many_different_orders_are_tried() -> None:
    orders = {tuple(run_seeded(_order_of_waking, 3, seed=seed)[:3]) for seed in range(25)}

    assert len(orders) == 6


def test_time_jumps_over_waits() -> None:
    async def sleep_long() -> float:
        begun_s = trio.current_time()
        await trio.sleep(3600.0)
        return trio.current_time() - begun_s

    assert run_seeded(sleep_long, seed=1) == pytest.approx(3600.0)


def test_trio_is_restored_after_a_seeded_run() -> None:
    state, switch = _run._r.getstate(), _run._ALLOW_DETERMINISTIC_SCHEDULING  # noqa: SLF001 - the seam.

    run_seeded(trio.sleep, 1.0, seed=1)

    assert _run._r.getstate() == state  # noqa: SLF001 - the seam.
    assert switch is _run._ALLOW_DETERMINISTIC_SCHEDULING  # noqa: SLF001 - the seam.


def test_a_trio_without_the_seam_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_run, "_r")

    with pytest.raises(SchedulerSeamError, match=r"trio 0\."):
        run_seeded(trio.sleep, 1.0, seed=1)


async def _count_up(seen: list[float]) -> None:
    enter_process("p")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tick, seen)  # A task started by a process belongs to it.


async def _tick(seen: list[float]) -> None:
    while True:
        await trio.sleep(1.0)
        seen.append(trio.current_time())


def test_tasks_of_a_held_process_wait_and_the_others_run() -> None:
    async def story() -> tuple[list[float], list[float]]:
        queue = RunQueue.install()
        held: list[float] = []
        free: list[float] = []
        begun_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_count_up, held)
            nursery.start_soon(_tick, free)
            await trio.sleep(2.5)
            queue.hold("p")
            await trio.sleep(3.0)
            queue.release("p")
            await trio.sleep(1.25)
            nursery.cancel_scope.cancel()
        return [each - begun_s for each in held], [each - begun_s for each in free]

    held, free = run_seeded(story, seed=3)

    assert held == pytest.approx([1.0, 2.0, 5.5, 6.5])
    assert free == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


def test_a_task_that_is_ready_when_its_process_is_held_does_not_run() -> None:
    async def story() -> list[str]:
        queue = RunQueue.install()
        done: list[str] = []
        go = trio.Event()

        async def wait() -> None:
            enter_process("p")
            await go.wait()
            done.append("ran")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1.0)
            go.set()
            queue.hold("p")
            await trio.sleep(1.0)
            done.append("released")
            queue.release_all()
        return done

    assert run_seeded(story, seed=1) == ["released", "ran"]


def test_an_endless_moment_is_an_error() -> None:
    async def spin() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async def story() -> None:
        queue = RunQueue.install(steps_in_a_moment_max=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)
            nursery.start_soon(queue.watch_time)

    with pytest.raises(ExceptionGroup) as caught:
        run_seeded(story, seed=1)

    assert caught.group_contains(EndlessMomentError, match="^1000 task steps")


def test_the_garbage_collector_is_off_during_a_seeded_run() -> None:
    async def is_on() -> bool:
        return gc.isenabled()

    assert not run_seeded(is_on, seed=1)
    assert gc.isenabled()
