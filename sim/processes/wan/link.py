"""Decides when bytes arrive: a link carries them, a lane keeps them in order.

Theory of operation. A link is one direction between two regions. It admits the bytes of all
connections one after another, at its bandwidth; then they travel for its delay. A lane is one
direction of one connection on the link. Pieces in a lane arrive in order, so a piece delayed by
jitter or a stall delays those behind it.

Two bounds limit the bytes in flight. A lane accepts at most its window, so a receiver that does
not read stalls only its own connection. A link accepts at most a short queue in front of its
bandwidth, so connections share it piece by piece. A flow checks both before it reads from the
sender's socket; leaving bytes unread there puts back-pressure on the sender.
"""

import enum
import random
from collections import deque

import attrs

from sim.processes.wan.conditions import Conditions

QUEUE_S = 0.010
"""Maximum queue in front of a link, as time at its bandwidth."""

PIECE_S = 0.002
"""Maximum time for one piece to enter the link: the turn of each connection that shares it."""

PIECE_BYTES_MIN, PIECE_BYTES_MAX = 1 << 10, 128 << 10

WINDOW_BYTES_MIN = 256 << 10
"""Minimum window of a lane: sockets have buffers, too."""

HEADER_BYTES = 64
"""Overhead counted per piece, like packet headers. It also bounds the number of tiny pieces."""


class Ended(enum.Enum):
    """How a stream ends."""

    FINISHED = "finished"
    RESET = "reset"


Piece = bytes | Ended


@attrs.define(eq=False)
class Link:
    """One direction between two regions.

    Invariant: no bytes enter before all earlier ones have entered.
    """

    conditions: Conditions
    _rng: random.Random = attrs.field(repr=False)
    carried_bytes: int = 0
    _entered_s: float = 0.0
    """Time at which all admitted bytes will have entered."""

    @property
    def window_bytes(self) -> int:
        """Maximum bytes in flight per connection: bandwidth x delay, plus the queue."""
        now = self.conditions
        travel_s = now.delay_s + now.jitter_s + QUEUE_S
        return max(WINDOW_BYTES_MIN, int(now.bandwidth_bytes_per_s * travel_s))

    @property
    def piece_bytes(self) -> int:
        """Bytes admitted at a time."""
        size = int(self.conditions.bandwidth_bytes_per_s * PIECE_S)
        return min(max(size, PIECE_BYTES_MIN), PIECE_BYTES_MAX)

    @property
    def room_at_s(self) -> float:
        """Time at which the queue has room for another piece."""
        return self._entered_s - QUEUE_S

    def carry(self, size_bytes: int, now_s: float) -> float:
        """Admit bytes; return when they arrive if no earlier piece delays them."""
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
    """One direction of one connection: pieces in flight, oldest first.

    Invariants:
    1. Pieces arrive in the order in which they were put.
    2. `held_bytes` counts the pieces put and not yet taken. The window bounds it, plus one
       piece and the end of the stream.
    """

    link: Link
    held_bytes: int = 0
    _pieces: deque[tuple[float, Piece]] = attrs.field(factory=deque, repr=False)
    _last_s: float = 0.0
    _not_before_s: float = 0.0

    @property
    def has_room(self) -> bool:
        """Whether its window has room."""
        return self.held_bytes < self.link.window_bytes

    @property
    def due_s(self) -> float | None:
        """Arrival time of its oldest piece; None if the lane is empty."""
        return max(self._pieces[0][0], self._not_before_s) if self._pieces else None

    def put(self, piece: Piece, now_s: float) -> None:
        """Send a piece on its way."""
        self._last_s = max(self._last_s, self.link.carry(size_bytes_of(piece), now_s))
        self._pieces.append((self._last_s, piece))
        self.held_bytes += size_bytes_of(piece)

    def take_due(self, now_s: float) -> list[Piece]:
        """Remove and return the pieces that have arrived."""
        arrived: list[Piece] = []
        if self._not_before_s > now_s:
            return arrived
        while self._pieces and self._pieces[0][0] <= now_s:
            arrived.append(self._pieces.popleft()[1])
            self.held_bytes -= size_bytes_of(arrived[-1])
        return arrived

    def give_back(self, rest: list[Piece], now_s: float) -> None:
        """Put pieces that the receiver did not accept back at the front."""
        for piece in reversed(rest):
            self._pieces.appendleft((now_s, piece))
            self.held_bytes += size_bytes_of(piece)

    def send_again(self, now_s: float) -> None:
        """Make pieces in flight travel again, after a cut link was healed."""
        self._not_before_s = now_s + self.link.conditions.delay_s

    def drop(self) -> None:
        """Discard all pieces in flight: the receiver is gone."""
        self._pieces.clear()
        self.held_bytes = 0


def size_bytes_of(piece: Piece) -> int:
    """Bytes that a piece counts for."""
    return HEADER_BYTES + (len(piece) if isinstance(piece, bytes) else 0)
