"""Decides which partitions of the streams of a pattern are read, and from where.

Theory of operation. The shell looks at the streams of a pattern again and again, and tells what
it saw. A partition seen for the first time is joined, wherever it comes from: a new stream, one
deleted and made again under its name (another life), or one more partition. One that is seen no
more is left. A partition that was read to its end, because its stream is sealed, is not joined
again in this life.

Invariants:

1. A partition is joined at most once in its life, and left at most once, after it was joined.
2. It is joined at its saved position, if that is of the same life; else at its first record.
   So nothing of a stream that is found late is missed.
3. The positions are where reading is to go on so that the application gets every record that it
   has not taken, and none that it has: of partitions that were seen, and of saved ones that
   were not seen yet.
"""

from collections.abc import Iterable, Mapping

import attrs

from geolog.protocol.ids import Position
from geolog.protocol.stream_state import StreamName


@attrs.frozen(order=True)
class SubscribedPartition:
    """One partition of one life of a stream."""

    stream: StreamName
    number: int
    life: str

    def __str__(self) -> str:
        return f"{self.stream}#{self.number}"


@attrs.frozen
class SeenStream:
    """A stream of the pattern, as the shell saw it."""

    name: StreamName
    life: str
    partitions: int

    def each(self) -> list[SubscribedPartition]:
        """Its partitions."""
        return [
            SubscribedPartition(self.name, number, self.life)
            for number in range(self.partitions)
        ]


@attrs.frozen
class JoinPartition:
    """Read this partition, from this position on; None: from its first record."""

    partition: SubscribedPartition
    position: Position | None


@attrs.frozen
class LeavePartition:
    """Stop reading this partition: its stream, or this life of it, is gone."""

    partition: SubscribedPartition


@attrs.define
class _Progress:
    """How far a partition was read, and how far the application has taken it."""

    read: Position | None
    taken: Position | None
    is_over: bool = False


class Subscription:
    """Joins and leaves partitions. It has no I/O; `open_subscription` is its shell."""

    def __init__(self, saved: Mapping[SubscribedPartition, Position]) -> None:
        self._saved = dict(saved)
        """Positions of partitions that were not seen yet."""
        self._progress: dict[SubscribedPartition, _Progress] = {}

    def __repr__(self) -> str:
        return f"Subscription({len(self._progress)} partitions)"

    def on_streams(self, streams: Iterable[SeenStream]) -> list[JoinPartition | LeavePartition]:
        """The streams of the pattern, as they are now: whom to leave, then whom to join."""
        seen = {one for stream in streams for one in stream.each()}
        effects: list[JoinPartition | LeavePartition] = [
            LeavePartition(one)
            for one in sorted(self._progress.keys() - seen)
            if not self._progress.pop(one).is_over
        ]
        lives = {one.stream: one.life for one in seen}
        for one in list(self._saved):
            if lives.get(one.stream, one.life) != one.life:
                del self._saved[one]  # Of a life that is over.
        for one in sorted(seen - self._progress.keys()):
            position = self._saved.pop(one, None)
            self._progress[one] = _Progress(position, position)
            effects.append(JoinPartition(one, position))
        return effects

    def on_read(self, partition: SubscribedPartition, position: Position) -> None:
        """The partition was read up to here, and handed on."""
        found = self._progress.get(partition)
        if found is not None:
            found.read = position.reached_from(found.read)

    def on_taken(self, partition: SubscribedPartition, position: Position) -> None:
        """The application has taken all before this position."""
        found = self._progress.get(partition)
        if found is not None:
            found.taken = position.reached_from(found.taken)

    def on_over(self, partition: SubscribedPartition) -> None:
        """The partition was read to its end, and gets no more records; or it is gone."""
        found = self._progress.get(partition)
        if found is not None:
            found.is_over = True

    def place_of(self, partition: SubscribedPartition) -> Position | None:
        """Where to go on reading a partition; None: at its first record."""
        found = self._progress.get(partition)
        return None if found is None else found.read

    def positions(self) -> dict[SubscribedPartition, Position]:
        """Where a later subscription is to go on; from the first record of all others."""
        taken = {
            one: found.taken for one, found in self._progress.items() if found.taken is not None
        }
        return self._saved | taken
