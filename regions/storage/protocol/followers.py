"""Followers that wait for the LAC of a ledger: bounded, without a task for each.

Theory of operation. A waiter is in three indices: by ledger and first entry, so that a moving
LAC finds the waiters it serves and touches no others; by the tick in which its time is up; and
by client and request number, so that the client's end removes all of them, and the client can
cancel each. Ticks are coarse: one timer for each
tick, not for each waiter. So a waiter may wait one tick longer than it asked. Waiters to wake
are taken out in slices, so that a crowd at one tail does not hold up everything else.

Invariants.
1. A waiter is in all three indices or in none; those that `on_…` returns are in none.
2. There are never more waiters than allowed, for all clients or for one.
3. Ticks kept are at most those between now and the longest wait, however many waiters come.

Rules: PROTOCOL N17.
"""

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

import attrs

from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.messages import Follow

TICK_S = 0.05

C = TypeVar("C")


@attrs.frozen(eq=False)
class WaitingFollow(Generic[C]):
    """A waiting follow and its client."""

    client: C
    follow: Follow
    due_tick: int


class _Tail(Generic[C]):
    """The waiters of one ledger."""

    def __init__(self) -> None:
        self.firsts: list[EntryId] = []  # Sorted, each once.
        self.waiters: dict[EntryId, dict[WaitingFollow[C], None]] = {}

    def add(self, waiter: WaitingFollow[C]) -> None:
        first = waiter.follow.first
        if first not in self.waiters:
            insort(self.firsts, first)
            self.waiters[first] = {}
        self.waiters[first][waiter] = None

    def discard(self, waiter: WaitingFollow[C]) -> None:
        first = waiter.follow.first
        del self.waiters[first][waiter]
        if not self.waiters[first]:
            del self.waiters[first]
            del self.firsts[bisect_left(self.firsts, first)]

    def through(self, lac: EntryId) -> Iterator[WaitingFollow[C]]:
        """Those that wait for the LAC or less, in order of the entry they wait for."""
        for first in self.firsts[: bisect_right(self.firsts, lac)]:
            yield from self.waiters[first]

    def all(self) -> Iterator[WaitingFollow[C]]:
        """All of them, in the same order."""
        for first in self.firsts:
            yield from self.waiters[first]


class Followers(Generic[C]):
    """Waiters of all ledgers of a node. `C` is hashable by identity."""

    def __init__(
        self, *, waiters_max: int, waiters_max_per_client: int, wait_s_max: float
    ) -> None:
        self._waiters_max = waiters_max
        self._waiters_max_per_client = waiters_max_per_client
        self._wait_s_max = wait_s_max
        self._count = 0
        self._tails: dict[LedgerId, _Tail[C]] = {}
        self._clients: dict[C, dict[WaitingFollow[C], None]] = {}
        # The newest of each number; a client does not use a number twice at a time.
        self._numbers: dict[tuple[C, int], WaitingFollow[C]] = {}
        self._ticks: dict[int, dict[WaitingFollow[C], None]] = {}
        self._ticks_ahead: list[int] = []  # A heap of the keys of `_ticks`.

    def __len__(self) -> int:
        return self._count

    def __contains__(self, ledger: LedgerId) -> bool:
        return ledger in self._tails

    def __repr__(self) -> str:
        return f"Followers({self._count} of {len(self._tails)} ledgers)"

    @property
    def next_due_s(self) -> float:
        """When `on_time` may next return something; infinite if nobody waits."""
        return self._ticks_ahead[0] * TICK_S if self._ticks_ahead else math.inf

    def wait(self, client: C, follow: Follow, now_s: float) -> bool:
        """Add a waiting follow; False if too many wait."""
        own = self._clients.get(client, {})
        if self._count >= self._waiters_max or len(own) >= self._waiters_max_per_client:
            return False
        due_s = now_s + min(follow.wait_ms / 1000, self._wait_s_max)
        waiter = WaitingFollow(client, follow, math.ceil(due_s / TICK_S))
        self._clients.setdefault(client, own)[waiter] = None
        self._numbers[client, follow.request] = waiter
        self._tails.setdefault(follow.ledger, _Tail()).add(waiter)
        if waiter.due_tick not in self._ticks:
            self._ticks[waiter.due_tick] = {}
            heapq.heappush(self._ticks_ahead, waiter.due_tick)
        self._ticks[waiter.due_tick][waiter] = None
        self._count += 1
        return True

    def on_lac(self, ledger: LedgerId, lac: EntryId, count_max: int) -> list[WaitingFollow[C]]:
        """The ledger's LAC is now `lac`: take out the waiters it serves, ordered by entry.

        At most `count_max` of them; if it returns that many, call again.
        """
        tail = self._tails.get(ledger)
        return self._taken(islice(tail.through(lac), count_max)) if tail is not None else []

    def on_end(self, ledger: LedgerId, count_max: int) -> list[WaitingFollow[C]]:
        """The ledger's LAC moves no more, or the ledger is gone: take out all its waiters."""
        tail = self._tails.get(ledger)
        return self._taken(islice(tail.all(), count_max)) if tail is not None else []

    def on_time(self, now_s: float, count_max: int) -> list[WaitingFollow[C]]:
        """Take out waiters whose time is up, in order of time."""
        over: list[WaitingFollow[C]] = []
        while self._ticks_ahead and self._ticks_ahead[0] * TICK_S <= now_s:
            tick = self._ticks[self._ticks_ahead[0]]
            over += self._taken(islice(tick, count_max - len(over)))
            if tick:
                break
            del self._ticks[heapq.heappop(self._ticks_ahead)]
        return over

    def cancel(self, client: C, request: int) -> bool:
        """Drop the client's follow with this number; False if it does not wait."""
        waiter = self._numbers.get((client, request))
        if waiter is not None:
            self._taken([waiter])
        return waiter is not None

    def forget(self, client: C) -> None:
        """Drop all waiters of a client that is gone."""
        self._taken(list(self._clients.get(client, ())))

    def _taken(self, waiters: Iterable[WaitingFollow[C]]) -> list[WaitingFollow[C]]:
        """Take these out of all indices."""
        taken = list(waiters)
        for waiter in taken:
            ledger = waiter.follow.ledger
            tail = self._tails[ledger]
            tail.discard(waiter)
            if not tail.firsts:
                del self._tails[ledger]
            own = self._clients[waiter.client]
            del own[waiter]
            if not own:
                del self._clients[waiter.client]
            number = waiter.client, waiter.follow.request
            if self._numbers.get(number) is waiter:
                del self._numbers[number]
            del self._ticks[waiter.due_tick][waiter]  # An empty tick stays: see invariant 3.
            self._count -= 1
        return taken
