"""Task order drawn from a seed: the only file that touches trio's private scheduler.

Theory of operation. Tasks that are ready run in batches. trio's own order within a batch comes
from iterating over sets and from a random bit, so it differs from run to run. With trio's
switch for deterministic scheduling on, a batch is sorted by the age of its tasks and shuffled
by a random source of trio's, in whose place a seeded one stands here. Time is trio's mock
clock, which jumps to the next deadline when all tasks wait. Nothing else may wake a task: no
thread, no socket, no signal. The garbage collector is off during a seeded run, because
collecting wakes tasks too: the finalizers of asynchronous generators.

trio has one source for all threads. A thread that runs trio for other purposes, as that of the
blocking API does, would draw from it in between, so it keeps the source that it had.

`RunQueue` replaces trio's queue of ready tasks. It holds back the tasks of a process that is
paused or killed: they do not run, while their timers expire and bytes arrive for them, as with
SIGSTOP and SIGKILL. A task belongs to the process that it, or the task that started it,
entered.
"""

import gc
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import ClassVar, TypeVar, TypeVarTuple

import trio
from trio._core import _run
from trio.lowlevel import Task
from trio.testing import MockClock

from topology.errors import GeologError

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_STEPS_IN_A_MOMENT_MAX = 500_000
"""This many task steps without time passing are an endless loop."""

_NO_PROCESS = ""

_process_of_task: ContextVar[str] = ContextVar("process", default=_NO_PROCESS)


class SchedulerSeamError(GeologError):
    """This version of trio has another scheduler: adapt `sim/scheduling.py`."""


class EndlessMomentError(GeologError):
    """Tasks wake each other endlessly while no time passes: a defect of the simulated code."""

    retriable: ClassVar[bool] = False


def run_seeded(
    async_function: Callable[[*Arguments], Awaitable[T]], *arguments: *Arguments, seed: int
) -> T:
    """`trio.run` with time that jumps, and with task order drawn from the seed."""
    with _seeded_order(seed), _collector_off():
        return trio.run(async_function, *arguments, clock=MockClock(autojump_threshold=0))


def enter_process(process: str) -> None:
    """Make the current task, and every task that it starts, belong to that process."""
    _process_of_task.set(process)


def current_process() -> str:
    """The process that this code runs in; empty outside of all processes."""
    return _process_of_task.get()


class RunQueue(deque[Task]):
    """trio's queue of ready tasks, without those that are held. `install` creates it."""

    def __init__(self, ready: deque[Task], steps_in_a_moment_max: int) -> None:
        super().__init__(ready)
        self._steps_in_a_moment_max = steps_in_a_moment_max
        self.steps_count = 0
        self._endless = trio.Event()
        self._held: dict[str, list[Task]] = {}
        self._moment_s = trio.current_time()
        self._steps_limit = steps_in_a_moment_max

    @classmethod
    def install(cls, *, steps_in_a_moment_max: int = _STEPS_IN_A_MOMENT_MAX) -> "RunQueue":
        """Replace the queue of the current trio run."""
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        if not isinstance(getattr(runner, "runq", None), deque):
            raise SchedulerSeamError(f"trio {trio.__version__} has no queue of ready tasks")
        queue = cls(runner.runq, steps_in_a_moment_max)
        runner.runq = queue
        return queue

    def append(self, task: Task) -> None:
        """Add a ready task: it runs in the next batch, or when its process is released."""
        if self._held:
            held = self._held.get(_process_of(task))
            if held is not None:
                held.append(task)
                return
        super().append(task)

    def clear(self) -> None:
        """Empty the queue: the scheduler has taken all ready tasks, to run them now."""
        self.steps_count += len(self)
        super().clear()
        if self.steps_count > self._steps_limit:
            self._check_time_passes()

    async def watch_time(self) -> None:
        """Wait as long as time passes; raise EndlessMomentError when it does not."""
        await self._endless.wait()
        raise EndlessMomentError(
            f"{self._steps_in_a_moment_max} task steps at {self._moment_s:.6f} s:"
            " no time has passed"
        )

    def hold(self, process: str) -> None:
        """Stop the tasks of the process from their next step on."""
        assert process not in self._held, f"{process} is already held"
        held = [task for task in self if _process_of(task) == process]
        for task in held:
            self.remove(task)
        self._held[process] = held

    def release(self, process: str) -> None:
        """Let the tasks of the process run again, with everything that arrived meanwhile."""
        for task in self._held.pop(process):
            super().append(task)

    def release_all(self) -> None:
        """Let every task run: the world ends, and each process may unwind."""
        for process in list(self._held):
            self.release(process)

    def _check_time_passes(self) -> None:
        now_s = trio.current_time()
        if now_s == self._moment_s:
            self._endless.set()
        self._moment_s = now_s
        self._steps_limit = self.steps_count + self._steps_in_a_moment_max


class _SeededHere(Random):
    """trio's random source, seeded for the current thread; others draw as before."""

    def __init__(self, seed: int, elsewhere: Random) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._here = Random(seed)
        self._elsewhere = elsewhere

    def random(self) -> float:
        """A number between 0 and 1, on which all other draws but `shuffle` rest."""
        return self._source().random()

    def shuffle(self, x: MutableSequence[object]) -> None:
        """Shuffle a batch of tasks."""
        self._source().shuffle(x)

    def _source(self) -> Random:
        return self._here if threading.get_ident() == self._thread else self._elsewhere


@contextmanager
def _seeded_order(seed: int) -> Iterator[None]:
    chance = getattr(_run, "_r", None)
    is_deterministic = getattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", None)
    if not isinstance(chance, Random) or not isinstance(is_deterministic, bool):
        raise SchedulerSeamError(
            f"trio {trio.__version__} lacks the seeded task order of 0.35 in trio._core._run"
        )
    _run._r = _SeededHere(seed, chance)  # noqa: SLF001 - the seam.
    _set_deterministic(is_on=True)
    try:
        yield
    finally:
        _set_deterministic(is_on=is_deterministic)
        _run._r = chance  # noqa: SLF001 - the seam.


def _set_deterministic(*, is_on: bool) -> None:
    setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", is_on)  # noqa: B010 - mypy: it is Final.


def _process_of(task: Task) -> str:
    return task.context.get(_process_of_task, _NO_PROCESS)


@contextmanager
def _collector_off() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
