"""Decides how the home of a stream is moved by plan: in which order, and when to give up.

Theory of operation. No record may be lost, and no record may be appended at two homes. So the
steps follow each other, and each is certain before the next begins:

1. Mark the stream as moving. From then on its home opens no segment any more. Owners see the
   mark, answer what they have taken, and close their segments.
2. Wait until the last segment of each partition is completed. An owner that does not hurry is
   taken over, which closes its ledger. The log is final then.
3. Wait until the mirror at the new home ends where the log ends. The relay goes on meanwhile.
4. Take the mirror over, so that its last row is completed, too, and compare the last entries of
   both logs: their places and the checksums of their headers. If they differ, the relay is
   given the mirror back, and step 3 begins again.
5. Once all partitions are equal: make the new region the home, with the fork of each partition,
   in one step that also checks that nobody has taken a mirror over since. If somebody has, step
   3 begins again for that partition.

The stream's home decides nothing before step 5. If a step fails, or all take too long, the move
is given up by the same compare-and-set: so it cannot be given up and have happened.

Segments of the new home get numbers above all that any home has opened: the number of the row
in its list, and an offset that the fork keeps.

Invariants:
1. The home changes only if the last entry at home and that of the mirror are equal in each
   partition, and final.
2. Each fork lies directly behind the last entry of its partition.
3. Whatever is effected last is the flip, or giving up.

Rules: PROTOCOL H16 and H18.
"""

import attrs

from geolog.protocol.home_record import Fork
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark
from topology.errors import GeologError, UnavailableError

_NO_SEGMENT = 0


@attrs.frozen
class HomeEnded:
    """A partition's log at the old home, which is final."""

    last: Watermark | None
    """Its last entry; None if it has none."""
    segment_highest: int
    """The highest segment number that this home, or one before it, has opened."""
    sequence_next: Sequence
    """The sequence behind its last record."""


@attrs.frozen
class MirrorEnded:
    """A partition's mirror at the new home, which was taken over."""

    last: Watermark | None
    row_highest: int
    """The highest number of a row in its list."""


@attrs.frozen
class MarkMoving:
    """Mark the stream as moving; `on_marked`."""


@attrs.frozen
class EndAtHome:
    """Wait until the partition's last segment is completed, or complete it; `on_home_ended`."""

    number: int


@attrs.frozen
class AwaitMirror:
    """Wait until the mirror ends where the home does; `on_mirror_near`."""

    number: int
    last: Watermark | None


@attrs.frozen
class TakeMirror:
    """Take the mirror over, complete its last row; `on_mirror_ended`."""

    number: int


@attrs.frozen
class ReturnMirror:
    """Give the mirror back to the relay; `on_returned`."""

    number: int


@attrs.frozen
class Flip:
    """Make the new region the home; `on_flipped`, or `on_reclaimed`."""

    forks: tuple[Fork, ...]


@attrs.frozen
class GiveUp:
    """Have the stream stay at home, and raise the error; then nothing."""

    error: GeologError


Effect = MarkMoving | EndAtHome | AwaitMirror | TakeMirror | ReturnMirror | Flip | GiveUp


@attrs.define
class _Partition:
    home: HomeEnded | None = None
    mirror: MirrorEnded | None = None
    """As it was taken over last; None while the relay has it."""


class SwitchOver:
    """The planned move of one stream. Effects of one event may be performed concurrently."""

    def __init__(self, name: str, *, to: str, home_epoch: int, partitions: int) -> None:
        """home_epoch: of the home that the stream has now."""
        self._name = name
        self._to = to
        self._home_epoch = home_epoch
        self._partitions = [_Partition() for _ in range(partitions)]
        self._is_over = False
        self.has_moved = False
        """Whether the new region is the home."""

    def __repr__(self) -> str:
        equal = sum(one.mirror is not None for one in self._partitions)
        return f"SwitchOver({self._name} to {self._to}, {equal} of {len(self._partitions)})"

    def begin(self) -> list[Effect]:
        """Begin to move."""
        return [MarkMoving()]

    def on_marked(self) -> list[Effect]:
        """The home opens nothing more."""
        if self._is_over:
            return []
        return [EndAtHome(number) for number in range(len(self._partitions))]

    def on_home_ended(self, number: int, ended: HomeEnded) -> list[Effect]:
        """A partition's log at home is final."""
        self._partitions[number].home = ended
        return [] if self._is_over else [AwaitMirror(number, ended.last)]

    def on_mirror_near(self, number: int) -> list[Effect]:
        """A mirror seems to have everything."""
        return [] if self._is_over else [TakeMirror(number)]

    def on_mirror_ended(self, number: int, ended: MirrorEnded) -> list[Effect]:
        """A mirror was taken over; its last row is completed."""
        one = self._partitions[number]
        assert one.home is not None, f"{self}: mirror {number} was taken too early"
        if self._is_over:
            return [ReturnMirror(number)]
        if not _are_equal(one.home.last, ended.last):
            return [ReturnMirror(number)]
        one.mirror = ended
        if any(each.mirror is None for each in self._partitions):
            return []
        return [Flip(tuple(map(self._fork, self._partitions)))]

    def on_returned(self, number: int) -> list[Effect]:
        """The relay can have the mirror again."""
        home = self._partitions[number].home
        assert home is not None
        return [] if self._is_over else [AwaitMirror(number, home.last)]

    def on_reclaimed(self, numbers: list[int]) -> list[Effect]:
        """The relay has taken these mirrors over meanwhile; the home has not changed."""
        if self._is_over:
            return []
        effects: list[Effect] = []
        for number in numbers:
            one = self._partitions[number]
            assert one.home is not None
            one.mirror = None
            effects.append(AwaitMirror(number, one.home.last))
        return effects

    def on_flipped(self) -> list[Effect]:
        """The new region is the home."""
        self.has_moved = self._is_over = True
        return []

    def on_failed(self, error: GeologError) -> list[Effect]:
        """A step has failed for good, or another process ended the move."""
        if self._is_over:
            return []
        self._is_over = True
        return [GiveUp(error)]

    def on_late(self, after_s: float) -> list[Effect]:
        """The time for all steps is over."""
        return self.on_failed(
            UnavailableError(
                f"{self._name} did not move to {self._to} within {after_s:g} s:"
                f" {self.why_not_yet()}. It stays where it is"
            )
        )

    def why_not_yet(self) -> str:
        """The reason why the move is not over yet."""
        open_at_home = [n for n, one in enumerate(self._partitions) if one.home is None]
        if open_at_home:
            return f"{_named(open_at_home)} could not be closed at home"
        behind = [n for n, one in enumerate(self._partitions) if one.mirror is None]
        if behind:
            return f"the mirror of {_named(behind)} in {self._to} does not have everything"
        return "metadata did not answer"

    def _fork(self, one: _Partition) -> Fork:
        assert one.home is not None
        assert one.mirror is not None
        return fork_behind(
            one.home.last,
            home_epoch=self._home_epoch + 1,
            sequence=one.home.sequence_next,
            segment_highest=one.home.segment_highest,
            row_highest=one.mirror.row_highest,
        )


def fork_behind(
    last: Watermark | None,
    *,
    home_epoch: int,
    sequence: Sequence,
    segment_highest: int,
    row_highest: int,
) -> Fork:
    """The fork of a home whose log goes on directly behind this entry, at this sequence.

    segment_highest: of any home before. row_highest: of the list of the new home.
    """
    offset = max(0, segment_highest - row_highest)
    return Fork(
        home_epoch=home_epoch,
        segment=_NO_SEGMENT if last is None else last.segment,
        entry=SegmentEntry(0 if last is None else last.entry + 1),
        sequence=sequence,
        segment_offset=offset,
        segment_next=row_highest + offset + 1,
    )


def _are_equal(home: Watermark | None, mirror: Watermark | None) -> bool:
    """Whether both logs end with the same entry, byte for byte."""
    if home is None or mirror is None:
        return home is mirror
    return home == mirror


def _named(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:4]))
    more = f" and {len(numbers) - 4} more" if len(numbers) > 4 else ""
    return f"partition{'s' if len(numbers) > 1 else ''} {shown}{more}"
