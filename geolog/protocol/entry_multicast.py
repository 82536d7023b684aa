"""Entries of an owner on their way to the relays of its region, and those that are dropped.

Theory of operation. The owner of a relayed partition notes each entry as it sends it to the
ledger; once the entry is acknowledged, it goes into the queue of each relay. Relays get the
owner's own bytes in the owner's order, so all of them number alike. The multicast only makes
the relay faster: a relay reads the tail of the log, too, and finds there what the multicast
loses. So nothing here waits. A queue that is full drops its oldest entries, which the relay's
reader has first; an owner whose ledger ends forgets what was not acknowledged there, because
those entries are written again to the next ledger.

Invariants:

1. Only acknowledged entries leave, in the order in which they were sent, each at most once.
2. A queue holds at most `bytes_max`, or one larger entry.

Rules: PROTOCOL T4.
"""

from collections import deque
from typing import Generic, TypeVar

import attrs

T = TypeVar("T")


class SentEntries(Generic[T]):
    """Entries of one open ledger that are not acknowledged yet."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, T]] = deque()

    def __repr__(self) -> str:
        return f"SentEntries({len(self._sent)})"

    def __len__(self) -> int:
        return len(self._sent)

    def on_ledger(self) -> None:
        """Another ledger is open: nothing of the one before is acknowledged any more."""
        self._sent.clear()

    def on_sent(self, entry: int, sent: T) -> None:
        """The entry of this number was sent to the open ledger."""
        assert not self._sent or entry == self._sent[-1][0] + 1, f"entry {entry} is not next"
        self._sent.append((entry, sent))

    def on_acknowledged(self, lac: int) -> list[T]:
        """All entries up to this one are acknowledged: those that were not, in order."""
        found = []
        while self._sent and self._sent[0][0] <= lac:
            found.append(self._sent.popleft()[1])
        return found


@attrs.frozen(kw_only=True)
class MulticastStatistics:
    """Entries of the multicast to one relay so far."""

    queued_count: int
    queued_bytes: int
    taken_count: int
    dropped_count: int


class MulticastQueue(Generic[T]):
    """Entries on their way to one relay."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._queued: deque[tuple[T, int]] = deque()
        self._queued_bytes = 0
        self._taken_count = 0
        self._dropped_count = 0

    def __repr__(self) -> str:
        return f"MulticastQueue({len(self._queued)}, {self._queued_bytes} B)"

    def __len__(self) -> int:
        return len(self._queued)

    def push(self, entry: T, length_bytes: int) -> None:
        """Add an entry; drop the oldest ones if there is no room."""
        self._queued.append((entry, length_bytes))
        self._queued_bytes += length_bytes
        while self._queued_bytes > self._bytes_max and len(self._queued) > 1:
            _, dropped_bytes = self._queued.popleft()
            self._queued_bytes -= dropped_bytes
            self._dropped_count += 1

    def take(self, bytes_max: int) -> list[T]:
        """The next entries, of at most so many bytes together, or one larger entry."""
        taken: list[T] = []
        taken_bytes = 0
        while self._queued:
            entry, length_bytes = self._queued[0]
            if taken and taken_bytes + length_bytes > bytes_max:
                break
            self._queued.popleft()
            taken.append(entry)
            taken_bytes += length_bytes
        self._queued_bytes -= taken_bytes
        self._taken_count += len(taken)
        return taken

    def drop_all(self) -> None:
        """Drop everything: the relay is not connected."""
        self._dropped_count += len(self._queued)
        self._queued.clear()
        self._queued_bytes = 0

    def statistics(self) -> MulticastStatistics:
        """Counts so far."""
        return MulticastStatistics(
            queued_count=len(self._queued),
            queued_bytes=self._queued_bytes,
            taken_count=self._taken_count,
            dropped_count=self._dropped_count,
        )
