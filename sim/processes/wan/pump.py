"""Delivers what is due: one task for all flows, so that a piece costs no timer of its own."""

import heapq
import itertools
import math
from typing import Protocol

import trio

EARLY_S = 0.0005
"""The kernel wakes a sleeper up to a millisecond late. Delivering what is due within half of
one puts that evenly about the time asked for, and moves several pieces at a time."""

_TURN_LENGTH = 64
"""Deliveries between two turns of the scheduler."""


class Due(Protocol):
    """What wants to be called when its time has come."""

    def deliver(self, now_s: float) -> None:
        """Deliver all that is due at `now_s`."""
        ...


class Pump:
    """Calls each at its time. Its memory is one row for each call that was asked for."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, Due]] = []
        # The number breaks ties, in the order in which they were asked for.
        self._numbers = itertools.count()
        self._sleep = trio.CancelScope()

    def call_at(self, due_s: float, whom: Due) -> None:
        """Have it called then."""
        heapq.heappush(self._rows, (due_s, next(self._numbers), whom))
        self._sleep.deadline = min(self._sleep.deadline, due_s - EARLY_S)

    async def run(self) -> None:
        """Call each at its time, for ever."""
        while True:
            first_s = self._rows[0][0] - EARLY_S if self._rows else math.inf
            self._sleep = trio.CancelScope(deadline=first_s)
            with self._sleep:
                await trio.sleep_forever()
            for _ in range(_TURN_LENGTH):
                until_s = trio.current_time() + EARLY_S
                if not self._rows or self._rows[0][0] > until_s:
                    break
                heapq.heappop(self._rows)[2].deliver(until_s)
