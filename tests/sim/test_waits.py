"""The fakes' waits make the same steps as trio's own."""

import math
from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio

from sim import waits
from sim.scheduling import RunQueue, enter_process, run_seeded

Log = list[tuple[float, int, str]]

_SLEEPS_S = (0.0, 0.1, 0.1, 0.2, 0.3)
"""Few lengths, so that much is due at once."""


class _TriosOwn:
    """The same waits as trio makes them."""

    @staticmethod
    async def sleep(duration_s: float) -> None:
        await trio.sleep(duration_s)

    @staticmethod
    async def sleep_until(due_s: float) -> None:
        await trio.sleep_until(due_s)

    @staticmethod
    async def wait_until(event: trio.Event, due_s: float) -> bool:
        with trio.move_on_at(due_s) as scope:
            await event.wait()
        return not scope.cancelled_caught


class _Ours:
    sleep = staticmethod(waits.sleep)
    sleep_until = staticmethod(waits.sleep_until)
    wait_until = staticmethod(waits.wait_until)


def _crowd(kind: type[_TriosOwn | _Ours], seed: int) -> Callable[[], Awaitable[Log]]:
    """A run of tasks that wait, wake and cancel each other, and are held for a while."""

    async def run() -> Log:
        log: Log = []
        events = [trio.Event() for _ in range(3)]
        scopes: dict[int, trio.CancelScope] = {}
        queue = RunQueue.install()

        async def wait_some(number: int) -> None:
            enter_process(f"process {number % 3}")
            rng = Random(seed * 100 + number)
            for _ in range(20):
                await wait_once(number, rng)

        async def wait_once(number: int, rng: Random) -> None:
            told = "cancelled"
            with trio.move_on_after(rng.choice(_SLEEPS_S[1:])) as scopes[number]:
                place = rng.randrange(3)
                due_s = trio.current_time() + rng.choice((-0.1, *_SLEEPS_S, math.inf))
                match rng.randrange(4):
                    case 0:
                        await kind.sleep(rng.choice(_SLEEPS_S))
                        told = "slept"
                    case 1:
                        await kind.sleep_until(due_s)
                        told = "slept until"
                    case 2:
                        told = f"event {await kind.wait_until(events[place], due_s)}"
                    case 3:
                        events[place].set()
                        events[place] = trio.Event()
                        scopes[rng.choice(sorted(scopes))].cancel()
                        told = "woke others"
            log.append((trio.current_time(), number, told))

        async def hold_some() -> None:
            rng = Random(seed)
            for _ in range(5):
                process = f"process {rng.randrange(3)}"
                queue.hold(process)
                await trio.sleep(rng.choice(_SLEEPS_S))
                queue.release(process)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold_some)
            for number in range(9):
                nursery.start_soon(wait_some, number)
        log.append((trio.current_time(), queue.steps_count, "steps"))
        return log

    return run


@pytest.mark.parametrize("seed", range(40))
def test_a_crowd_wakes_in_the_same_steps(seed: int) -> None:
    theirs = run_seeded(_crowd(_TriosOwn, seed), seed=seed)
    ours = run_seeded(_crowd(_Ours, seed), seed=seed)

    assert ours == theirs
    assert {told for _, _, told in ours} >= {"cancelled", "slept", "woke others"}


async def test_no_alarm_stays_behind() -> None:
    event = trio.Event()
    deadlines = trio._core._run.GLOBAL_RUN_CONTEXT.runner.deadlines  # noqa: SLF001 - the seam.
    before_count = deadlines._active  # noqa: SLF001 - the seam.

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits.wait_until, event, trio.current_time() + 60.0)
        nursery.start_soon(waits.sleep, 60.0)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        nursery.cancel_scope.cancel()

    assert deadlines._active == before_count  # noqa: SLF001 - the seam.
    assert not event._tasks  # noqa: SLF001 - the seam.
