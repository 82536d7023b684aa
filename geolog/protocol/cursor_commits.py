"""Decides when a reader of a cursor commits, and what: at most once a second per partition.

Theory of operation. The application says how far it is done in a partition (`on_done`). The
core keeps that position and the one that metadata has. A commit is due when the first is ahead
of the second, a second after the partition's last commit began. A position of the application
that is not ahead of an earlier one is ignored, so commits never go back. A position counts as
one of the latest home that the reader has come from: records of earlier homes follow a place
that was sought, or trimmed, since the home moved. A `seek` is no commit:
the partition is dropped, and read again from elsewhere.

Each time a partition is gained it gets a new *hold*. Reports on an earlier hold are never
committed: meanwhile another reader, or a seek, may have moved the position. The last hold that
ended is remembered: what was done in it is stored if its last commit was, and otherwise lost.

Invariants:
1. The positions committed in one hold rise.
2. Two commits of a partition begin at least `COMMIT_S` apart, unless it is given up.

Rules: PROTOCOL K4 and K5.
"""

import math
from collections.abc import Iterable

import attrs

from geolog.protocol.ids import Position

COMMIT_S = 1.0
"""A partition's position is committed at most once in this time."""


@attrs.define
class _Held:
    hold: int
    stored: Position | None
    """The position in metadata, as far as known."""
    done: Position | None
    committed_s: float = -math.inf
    """When the last commit began."""

    @property
    def is_ahead(self) -> bool:
        return self.done is not None and (self.stored is None or self.done > self.stored)


class CursorCommits:
    """Positions of one reader in the partitions that it reads."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._ended: dict[int, _Held] = {}  # The hold before, by partition.
        self._holds_count = 0

    def __repr__(self) -> str:
        return f"CursorCommits({self._held})"

    @property
    def partitions(self) -> list[int]:
        """The partitions that it reads, sorted."""
        return sorted(self._held)

    def on_gained(self, partition: int, stored: Position | None) -> int:
        """The reader reads this partition from now on; the number of this hold."""
        assert partition not in self._held, f"partition {partition} is held already"
        self._holds_count += 1
        self._held[partition] = _Held(self._holds_count, stored, None)
        return self._holds_count

    def on_dropped(self, partition: int) -> None:
        """The reader no longer reads this partition."""
        self._ended[partition] = self._held.pop(partition)

    def hold_of(self, partition: int) -> int | None:
        """The number of the current hold; None if the partition is not held."""
        held = self._held.get(partition)
        return None if held is None else held.hold

    def on_done(self, partition: int, hold: int, position: Position) -> None:
        """The application is done with everything before this position."""
        held = self._of(partition, hold)
        if held is None:
            return
        position = position.reached_from(held.done or held.stored)
        if held.done is None or position > held.done:
            held.done = position

    def on_stored(self, partition: int, stored: Position | None) -> None:
        """Metadata has this position."""
        self._held[partition].stored = stored

    def on_last_stored(self, partition: int, stored: Position | None) -> None:
        """Metadata has this position from the hold that ended last."""
        self._ended[partition].stored = stored

    def is_stored(self, partition: int, hold: int) -> bool:
        """Whether everything that was done in this hold is in metadata."""
        held = self._of(partition, hold)
        return held is not None and not held.is_ahead

    def position_to_commit(self, partition: int) -> Position | None:
        """The position to commit; None if metadata has it."""
        held = self._held[partition]
        return held.done if held.is_ahead else None

    def due(self, now_s: float) -> list[int]:
        """The partitions to commit now, sorted."""
        return [one for one, due_s in self._due_s() if due_s <= now_s]

    def next_due_s(self) -> float:
        """When the next commit is due, if nothing happens until then."""
        return min((due_s for _, due_s in self._due_s()), default=math.inf)

    def on_commit_begins(self, partitions: Iterable[int], now_s: float) -> None:
        """Metadata is about to be asked to store these."""
        for partition in partitions:
            self._held[partition].committed_s = now_s

    def _of(self, partition: int, hold: int) -> _Held | None:
        """The hold of this number; None if it ended before the last one."""
        for held in (self._held.get(partition), self._ended.get(partition)):
            if held is not None and held.hold == hold:
                return held
        return None

    def _due_s(self) -> list[tuple[int, float]]:
        return [
            (partition, self._held[partition].committed_s + COMMIT_S)
            for partition in self.partitions
            if self._held[partition].is_ahead
        ]
