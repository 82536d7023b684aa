"""When bytes arrive: the link that carries them, and the lane that keeps them in order.

Theory of operation. A link is one direction between two regions. Bytes of all connections
enter it one after another, at its bandwidth, and then travel for its delay. A lane is one
direction of one connection on a link. Its pieces arrive in order: a piece that jitter or a
stall delays also delays the pieces behind it.

Two bounds keep the bytes in flight small. A lane takes no more than its window, so a receiver
that does not read blocks only its own connection. A link takes no more than a short queue ahead
of its bandwidth, so connections share it piece by piece. The emulator asks both before it reads
from a sender; not reading puts back pressure on the sender.
"""

import enum
import random
from collections import deque

import attrs

from sim.processes.wan.conditions import Conditions

QUEUE_S = 0.010
"""How long the queue before a link may be, in time at its bandwidth."""

PIECE_S = 0.002
"""How long a piece may take to enter the link: what two connections take turns by."""

PIECE_BYTES_MIN, PIECE_BYTES_MAX = 1 << 10, 128 << 10

WINDOW_BYTES_MIN = 256 << 10
"""Minimum window of a lane: sockets have buffers too."""

HEADER_BYTES = 64
"""Overhead added to each piece, like the headers of a packet. It bounds tiny pieces too."""


class Ended(enum.Enum):
    """How a stream ends."""

    FINISHED = "finished"
    RESET = "reset"


Piece = bytes | Ended


@attrs.define(eq=False)
class Link:
    """One direction between two regions.

    Invariant: nothing is let in before what came earlier has entered.
    """

    conditions: Conditions
    _rng: random.Random = attrs.field(repr=False)
    carried_bytes: int = 0
    _entered_s: float = 0.0
    """When all that was let in will have entered."""

    @property
    def window_bytes(self) -> int:
        """What one connection may have on its way: bandwidth x delay, and the queue."""
        now = self.conditions
        travel_s = now.delay_s + now.jitter_s + QUEUE_S
        return max(WINDOW_BYTES_MIN, int(now.bandwidth_bytes_per_s * travel_s))

    @property
    def piece_bytes(self) -> int:
        """How much is let in at a time."""
        size = int(self.conditions.bandwidth_bytes_per_s * PIECE_S)
        return min(max(size, PIECE_BYTES_MIN), PIECE_BYTES_MAX)

    @property
    def room_at_s(self) -> float:
        """When the queue has room for another piece."""
        return self._entered_s - QUEUE_S

    def carry(self, size_bytes: int, now_s: float) -> float:
        """Let bytes in; when they arrive, if nothing is before them on their lane."""
        now = self.conditions
        self.carried_bytes += size_bytes
        self._entered_s = max(self._entered_s, now_s) + size_bytes / now.bandwidth_bytes_per_s
        arrives_s = self._entered_s + now.delay_s
        if now.jitter_s:
            arrives_s += self._rng.uniform(-now.jitter_s, now.jitter_s)
        if now.stall_rate and self._rng.random() < now.stall_rate:
            arrives_s += now.stall_s
        return arrives_s


@attrs.define(eq=False)
class Lane:
    """One direction of one connection: pieces on their way, the oldest first.

    Invariants:
    1. Pieces arrive in the order in which they were put in.
    2. `held_bytes` is what was put in and not taken out. The window bounds it, but for one
       piece and the end.
    """

    link: Link
    held_bytes: int = 0
    _pieces: deque[tuple[float, Piece]] = attrs.field(factory=deque, repr=False)
    _last_s: float = 0.0
    _not_before_s: float = 0.0

    @property
    def has_room(self) -> bool:
        """Its window is not full."""
        return self.held_bytes < self.link.window_bytes

    @property
    def due_s(self) -> float | None:
        """When its oldest piece arrives; None if it is empty."""
        return max(self._pieces[0][0], self._not_before_s) if self._pieces else None

    def put(self, piece: Piece, now_s: float) -> None:
        """Send a piece on its way."""
        self._last_s = max(self._last_s, self.link.carry(size_bytes_of(piece), now_s))
        self._pieces.append((self._last_s, piece))
        self.held_bytes += size_bytes_of(piece)

    def take_due(self, now_s: float) -> list[Piece]:
        """Take out what has arrived."""
        arrived: list[Piece] = []
        if self._not_before_s > now_s:
            return arrived
        while self._pieces and self._pieces[0][0] <= now_s:
            arrived.append(self._pieces.popleft()[1])
            self.held_bytes -= size_bytes_of(arrived[-1])
        return arrived

    def give_back(self, rest: list[Piece], now_s: float) -> None:
        """Put back in front what the receiver did not take."""
        for piece in reversed(rest):
            self._pieces.appendleft((now_s, piece))
            self.held_bytes += size_bytes_of(piece)

    def send_again(self, now_s: float) -> None:
        """Send the bytes in flight again: the link was cut and is healed now."""
        self._not_before_s = now_s + self.link.conditions.delay_s

    def drop(self) -> None:
        """Forget what is on its way: there is nobody left to receive it."""
        self._pieces.clear()
        self.held_bytes = 0


def size_bytes_of(piece: Piece) -> int:
    """Size of a piece with its overhead."""
    return HEADER_BYTES + (len(piece) if isinstance(piece, bytes) else 0)
