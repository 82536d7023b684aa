"""What waits to be sent to a ledger, and which of it shares the next entry.

Theory of operation. An entry costs the owner and each member of its write set much the same,
however little it holds: a message, a place in the journal, an answer. One writer's lane fills
its batches while others are in flight. Nobody does so for the small batches of many writers, so
the owner puts them into one entry.

Nothing waits for a clock, nor for an acknowledgement, which may take a round trip between
regions. While few entries are unanswered, a part leaves at once. Beyond that it waits until the
tasks that are ready have run: what they append shares the entry. The busier the process, the
longer such a turn and the larger the entry. During a roll everything waits for the next ledger
anyway, and then shares entries, too.

Parts leave in the order in which they came. An entry has a bounded size, since readers fetch
all of it for one record; a part that is larger is an entry of its own. So is a fence.
Local-only parts share entries only with each other: a relay strips whole entries.

Rules: PROTOCOL H26 and S31.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

ENTRIES_AT_ONCE = 4
"""While fewer entries are unanswered, a part leaves at once."""

SHARED_BYTES_MAX = 128 << 10
"""Bytes of the batches that share an entry. Above this an entry costs little per byte."""

SHARED_PARTS_MAX = 512
"""Batches that share an entry: the lines for them, at their longest, fit its header."""


class Part(Protocol):
    """A batch, or something else that is part of an entry."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its batch."""
        ...

    @property
    def is_alone(self) -> bool:
        """Whether it must be an entry of its own."""
        ...

    @property
    def is_local_only(self) -> bool:
        """Whether it shares an entry only with others that must not leave the region."""
        ...


P = TypeVar("P", bound=Part)


class WaitingParts(Generic[P]):
    """A queue of parts, taken from it as entries.

    Invariant: parts are taken in the order in which they were pushed, each once.
    """

    def __init__(self) -> None:
        self._parts: deque[P] = deque()
        self._size_bytes = 0

    def __repr__(self) -> str:
        return f"WaitingParts({len(self._parts)}, {self._size_bytes} bytes)"

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[P]:
        return iter(self._parts)

    def __reversed__(self) -> Iterator[P]:
        return reversed(self._parts)

    def __getitem__(self, place: int) -> P:
        return self._parts[place]

    def push(self, part: P) -> None:
        """Add a part behind the others."""
        self._parts.append(part)
        self._size_bytes += part.size_bytes

    def leave_at_once(self, *, entries_unanswered: int) -> bool:
        """Whether to send what waits now, or after the turn of the tasks that are ready."""
        return entries_unanswered < ENTRIES_AT_ONCE or self._size_bytes >= SHARED_BYTES_MAX

    def take_entry(self) -> list[P]:
        """Take the parts of the next entry; there must be one."""
        parts = self._parts
        taken = [parts.popleft()]
        size_bytes = taken[0].size_bytes
        if parts and not taken[0].is_alone:
            while parts and len(taken) < SHARED_PARTS_MAX and not parts[0].is_alone:
                shared_bytes = size_bytes + parts[0].size_bytes
                if shared_bytes > SHARED_BYTES_MAX:
                    break
                if parts[0].is_local_only != taken[0].is_local_only:
                    break
                taken.append(parts.popleft())
                size_bytes = shared_bytes
        self._size_bytes -= size_bytes
        return taken
