"""Waits of the fakes: the same steps as trio's own, without a cancel scope for each.

A simulated history is millions of short waits. trio makes a cancel scope for each, and ends it
with an exception that passes through all frames. An alarm stands among trio's deadlines in the
place of a cancel scope, and wakes its task with a plain value. Like `sim/scheduling.py`, this
file depends on trio's private parts. No history may change by it: a task wakes in the same step
as by the wait that is written in a function's docstring.
"""

import math

import trio
from trio._core import _run
from trio.lowlevel import Abort, RaiseCancelT, Task

_NEVER_S = math.inf


class _Alarm:
    """Wakes a task at a time. To trio's deadlines it is a cancel scope."""

    __slots__ = ("_registered_deadline", "_runner", "_task", "_waiting", "has_rung")

    def __init__(self, task: Task, waiting: set[Task], due_s: float) -> None:
        self._runner = _run.GLOBAL_RUN_CONTEXT.runner
        self._task = task
        self._waiting = waiting
        self._registered_deadline = due_s
        self.has_rung = False
        waiting.add(task)
        self._runner.deadlines.add(due_s, self)  # type: ignore[arg-type]

    def _cancel(self, _reason: object) -> None:
        """The time has come; trio calls this."""
        self.disarm()
        if self._task._abort_func is None:  # noqa: SLF001 - the seam.
            return  # Something else has woken it, and it has not run yet.
        self.has_rung = True
        self._waiting.remove(self._task)
        self._runner.reschedule(self._task)

    def disarm(self) -> None:
        """Ring no more."""
        if self._registered_deadline != _NEVER_S:
            self._registered_deadline = _NEVER_S
            self._runner.deadlines.remove(_NEVER_S, self)  # type: ignore[arg-type]

    def abort(self, _raise_cancel: RaiseCancelT) -> Abort:
        """A scope around the wait was cancelled."""
        self._waiting.remove(self._task)
        self.disarm()
        return Abort.SUCCEEDED

    async def wait(self) -> None:
        """Wait until it rings, or until the task is woken by what it waits for."""
        await trio.lowlevel.wait_task_rescheduled(self.abort)
        self.disarm()
        status = self._task._cancel_status  # noqa: SLF001 - the seam.
        if self.has_rung and status.effectively_cancelled:
            # Both were due at once. A scope of this wait would have passed this on, too.
            reason = status._scope._cancel_reason  # noqa: SLF001 - the seam.
            raise trio.Cancelled._create(  # noqa: SLF001 - the seam.
                source="unknown" if reason is None else reason.source
            )


async def sleep_until(due_s: float) -> None:
    """`await trio.sleep_until(due_s)`."""
    if _is_plain(due_s):
        await _Alarm(trio.lowlevel.current_task(), set(), due_s).wait()
    else:
        await trio.sleep_until(due_s)


async def sleep(duration_s: float) -> None:
    """`await trio.sleep(duration_s)`."""
    if duration_s > 0:
        await sleep_until(trio.current_time() + duration_s)
    else:
        await trio.sleep(duration_s)


async def wait_until(event: trio.Event, due_s: float) -> bool:
    """`with trio.move_on_at(due_s): await event.wait()`; whether the event woke the task."""
    if due_s == _NEVER_S:
        await event.wait()
        return True
    if _is_plain(due_s) and not event.is_set():
        waiting = event._tasks  # noqa: SLF001 - the seam.
        alarm = _Alarm(trio.lowlevel.current_task(), waiting, due_s)
        await alarm.wait()
        return not alarm.has_rung
    with trio.move_on_at(due_s) as scope:
        await event.wait()
    return not scope.cancelled_caught


def _is_plain(due_s: float) -> bool:
    """Whether an alarm can do it: in another loop's guest, that loop has to hear of it."""
    runner = _run.GLOBAL_RUN_CONTEXT.runner
    return trio.current_time() < due_s < _NEVER_S and not runner.is_guest
