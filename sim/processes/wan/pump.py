"""Delivers pieces when they are due: one task for all flows, so no piece needs a timer."""

import heapq
import itertools
import math
from typing import Protocol

import trio

EARLY_S = 0.0005
"""The kernel wakes a sleeper up to a millisecond late. Delivering everything due within half a
millisecond centres that error on the due time, and moves several pieces at once."""

_TURN_LENGTH = 64
"""Deliveries between two turns of the scheduler."""


class Due(Protocol):
    """An object to call at a given time."""

    def deliver(self, now_s: float) -> None:
        """Deliver everything that is due at `now_s`."""
        ...


class Pump:
    """Calls each object at its time. It keeps one row per pending call."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, Due]] = []
        # The number breaks ties in the order of the requests.
        self._numbers = itertools.count()
        self._sleep = trio.CancelScope()

    def call_at(self, due_s: float, whom: Due) -> None:
        """Schedule a call at `due_s`."""
        heapq.heappush(self._rows, (due_s, next(self._numbers), whom))
        self._sleep.deadline = min(self._sleep.deadline, due_s - EARLY_S)

    async def run(self) -> None:
        """Make each call at its time, forever."""
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
