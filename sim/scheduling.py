"""Task order drawn from a seed: the one file that touches trio's private scheduler.

Theory of operation. Tasks that are ready run in batches. trio's own order within a batch comes
from iterating over sets and from a random bit, so it differs from run to run. With trio's
switch for deterministic scheduling on, a batch is sorted by the age of its tasks and shuffled
by a random source of trio's, in whose place a seeded one stands here. Time is a clock like
trio's mock clock, which jumps to the next deadline when all tasks wait. Nothing else may wake a
task: no thread, no socket, no signal. The garbage collector is off during a seeded run, because
collecting wakes tasks too: the finalizers of asynchronous generators.

trio has one source for all threads. A thread that runs trio for other purposes, as that of the
blocking API does, would draw from it in between, so it keeps the source that it had.

`RunQueue` replaces trio's queue of ready tasks. It holds back the tasks of a process that is
paused or killed: they do not run, while their timers expire and bytes arrive for them, as with
SIGSTOP and SIGKILL. A task belongs to the process that it, or the task that started it,
entered.
"""

import gc
import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import ClassVar, Protocol, TypeVar, TypeVarTuple

import trio
from trio._core import _run
from trio.abc import Clock
from trio.lowlevel import Task
from trio.testing import MockClock

from topology.errors import GeologError

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_STEPS_IN_A_MOMENT_MAX = 500_000
"""This many task steps without time passing are an endless loop."""

_TURNS_BETWEEN_EVENTS = 100
"""Asking for events is a system call."""

_LONG_S = 999_999_999.0

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

    async def run() -> T:
        _lighten()
        return await async_function(*arguments)

    with _seeded_order(seed), _collector_off():
        return trio.run(run, clock=_JumpingClock())


def enter_process(process: str) -> None:
    """Make the current task, and every task that it starts, belong to that process."""
    _process_of_task.set(process)


def current_process() -> str:
    """The process that this code runs in; empty outside of all processes."""
    return _process_of_task.get()


@MockClock.register
class _JumpingClock(Clock):
    """trio's mock clock where time only jumps, so it never looks at the real clock.

    trio knows it by its registration: its own class is final.
    """

    def __init__(self) -> None:
        self._now_s = 0.0

    def start_clock(self) -> None:
        _run.GLOBAL_RUN_CONTEXT.runner.clock_autojump_threshold = 0.0

    def current_time(self) -> float:
        return self._now_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0 if deadline <= self._now_s else _LONG_S

    def _autojump(self) -> None:
        """Jump to the next deadline; trio calls this when all tasks wait."""
        jump_s = _run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline() - self._now_s
        if 0 < jump_s < math.inf:
            self._now_s += jump_s


class _Events(Protocol):
    """What asks the system for events, by a way of its own on each."""

    def get_events(self, timeout: float) -> list[tuple[int, int]]: ...

    def process_events(self, events: list[tuple[int, int]]) -> None: ...


class _RareEvents:
    """trio's input and output, asked once in many turns: a seeded run waits for none."""

    def __init__(self, behind: "_Events") -> None:
        self._behind = behind
        self._turns_count = 0

    def get_events(self, timeout: float) -> list[tuple[int, int]]:
        """Events from outside, such as Ctrl-C."""
        self._turns_count += 1
        if self._turns_count % _TURNS_BETWEEN_EVENTS:
            return []
        return self._behind.get_events(timeout)

    def process_events(self, events: list[tuple[int, int]]) -> None:
        """Act on them."""
        if events:
            self._behind.process_events(events)

    def __getattr__(self, name: str) -> object:
        return getattr(self._behind, name)


class _NoInstruments(dict[str, object]):
    """A plain dict in place of trio's, which it asks several times in each step."""


def _lighten() -> None:
    """Take from the current trio run what no seeded run needs; no order changes."""
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    if any(runner.instruments.values()):
        raise SchedulerSeamError("instruments do not go with a seeded run")
    runner.instruments = _NoInstruments()  # type: ignore[assignment]
    runner.io_manager = _RareEvents(runner.io_manager)  # type: ignore[assignment]


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
        if len(x) > 1:  # For one task nothing is drawn.
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
