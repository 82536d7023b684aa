"""Law 27: only the reader that has a partition commits, forwards, and what it is done with."""

from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.cursor_state import NO_READER, PartitionStanding
from geolog.protocol.home_record import Fork
from geolog.protocol.ids import Position
from sim.laws.state.seen import CursorLook, Look


@attrs.define
class CommitsInOrder:
    """Keeps the cursor as seen last, and how far its commits were compared with deliveries."""

    _before: CursorLook | None = None
    _checked_to: dict[int, Position] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Compare the records of the cursor's partitions with those seen last."""
        if now.cursor is None:
            return
        for partition, standing in sorted(now.cursor.standings.items()):
            if self._before is not None and partition in self._before.standings:
                before = self._before.standings[partition]
                yield from _wrong_step(partition, before, standing, self._before, now.cursor)
            yield from self._undelivered(now, partition, standing)
        self._before = now.cursor

    def _undelivered(
        self, now: Look, partition: int, standing: PartitionStanding
    ) -> Iterator[str]:
        """Sequences before the position that no reader was done with."""
        position = standing.record.position
        if position is None:
            return
        trim = now.trims[partition].first_sequence if partition in now.trims else 0
        checked = self._checked_to.get(partition)
        # In another home epoch a sequence may name another record.
        is_same_epoch = checked is not None and checked.home_epoch == position.home_epoch
        first = max(trim, checked.sequence if checked is not None and is_same_epoch else 0)
        forks = now.history.forks_of(partition)
        for sequence in range(first, position.sequence):
            homes = _homes_of(sequence, position.home_epoch, forks)
            if not any(
                now.history.cursor.is_done(partition, home_epoch, sequence)
                for home_epoch in homes
            ):
                yield (
                    f"the cursor is at {position} of partition {partition}, but no reader was"
                    f" done with {sequence}"
                )
        sequence = max(first, position.sequence)
        self._checked_to[partition] = Position(position.home_epoch, sequence)


def _homes_of(sequence: int, home_epoch: int, forks: Sequence[Fork]) -> range:
    """The home epochs in which a record may have been appended, by the forks until one of them.

    A partition that was added at a later home has no fork of that one, and began there.
    """
    known = [fork for fork in forks if fork.home_epoch <= home_epoch]
    began = [fork.home_epoch for fork in known if fork.sequence <= sequence]
    if began:
        return range(max(began), max(began) + 1)
    return range(1, min((fork.home_epoch for fork in known), default=home_epoch + 1))


def _wrong_step(
    partition: int,
    before: PartitionStanding,
    after: PartitionStanding,
    seen: CursorLook,
    now: CursorLook,
) -> Iterator[str]:
    old, new = before.record, after.record
    place = f"partition {partition}, version {after.version}"
    was, is_now = old.position, new.position
    is_sought = new.seeks != old.seeks
    if not is_sought and was is not None and (is_now is None or is_now < was):
        yield f"the cursor went back from {was} to {is_now} ({place})"
    if is_sought or before.version is None or after.version != before.version + 1:
        return  # A seek, more than one step, or none.
    is_claim = new.reader not in (old.reader, NO_READER)
    if is_claim and is_now != was:
        yield f"{new.reader} committed {is_now}, but {old.reader} had {place}"
    if new.reader == old.reader and not {new.reader} & (seen.readers | now.readers):
        yield f"{new.reader} committed {is_now} without a lease ({place})"
