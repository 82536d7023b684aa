"""Decides what a mirror does with each entry that it is sent.

Theory of operation. Each entry is sent with a name for itself and for the entry before it: home
epoch, segment, number, and the checksum of its header. The mirror takes an entry only exactly
behind the last one that it took. So whatever the senders do (two at a time, one that pauses and
resumes, one that starts again anywhere), the mirror is a prefix of its home's log.

An entry that the mirror has already is a repeat. It is compared by its checksum with what was
taken, as far back as checksums are remembered, and dropped. If they differ, two logs claim the
same place: the mirror stops, and takes nothing more until an operator has looked at it. An
entry further back cannot be compared, so it is refused like one that leaves a hole: the sender
then asks for the watermark, and goes on behind it.

An empty mirror begins with the first entry of a segment: a snapshot, or sequence 0. Anything
else could not be recovered from the mirror alone.

A home that was failed over may still send what nobody took over from it. Entries beyond the
branch point of their home epoch are refused, as is everything of an earlier home.

Invariants:
1. Entries are taken without holes, and each once: the last one only moves forward.
2. Home epochs never fall, and no entry of a dead branch is taken.
3. A mirror that has stopped takes nothing.

Rules: PROTOCOL H5 to H7, and H21.
"""

from collections import OrderedDict
from collections.abc import Sequence as Several

import attrs

from geolog.protocol.home_record import Fork, branch_point
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark
from topology.errors import ConflictError, FencedError

REMEMBERED_MAX = 4096
"""Checksums of taken entries to keep. Repeats of earlier entries are refused."""


class NotBehindError(ConflictError):
    """The entry does not come directly behind the mirror's last: ask for its watermark."""


class OldHomeError(FencedError):
    """The entry was sent by a home that another region has taken over since: stop sending."""


class MirrorDivergedError(ConflictError):
    """The mirror and its home differ in an entry that both have: an operator must look."""


@attrs.frozen(kw_only=True)
class SentEntry:
    """An entry as its sender names it."""

    previous: Watermark | None
    """The entry before it; None if the mirror is to begin with it."""
    mark: Watermark
    """The entry itself."""
    first_sequence: Sequence
    is_control: bool
    """Whether it is a note of the log's own, such as a part of a snapshot."""


@attrs.frozen
class TakeEntry:
    """Write it behind all that was taken."""


@attrs.frozen
class DropRepeat:
    """Do nothing: the mirror has it, byte for byte."""


@attrs.frozen
class RefuseEntry:
    """Tell the sender; the mirror goes on."""

    error: NotBehindError | OldHomeError


@attrs.frozen
class StopMirror:
    """Take nothing more, and raise an alarm."""

    error: MirrorDivergedError


Verdict = TakeEntry | DropRepeat | RefuseEntry | StopMirror


class MirrorCourse:
    """The entries of one mirror under one owner epoch."""

    def __init__(self, name: str, durable: Watermark | None, forks: Several[Fork] = ()) -> None:
        """durable: the last entry that the mirror has; None if it is empty.

        forks: of the partition, as far as they are known; `durable` lies before them.
        """
        self._name = name
        self._forks = tuple(forks)
        self._epoch_latest = max((one.home_epoch for one in forks), default=0)
        self._last = durable
        self._stopped: MirrorDivergedError | None = None
        self._crcs: OrderedDict[tuple[int, int, SegmentEntry], int] = OrderedDict()
        if durable is not None:
            self._remember(durable)

    def __repr__(self) -> str:
        return f"MirrorCourse({self._name}, behind {self._last})"

    @property
    def last(self) -> Watermark | None:
        """The last entry that was taken, durable or not."""
        return self._last

    def on_entry(self, sent: SentEntry) -> Verdict:
        """An entry was sent; `TakeEntry` takes it."""
        if self._stopped is not None:
            return StopMirror(self._stopped)
        mark, last = sent.mark, self._last
        if mark.home_epoch < self._epoch_latest and self._is_off(mark):
            return RefuseEntry(
                OldHomeError(
                    f"{self._name} takes nothing of {mark}: a later home has forked before it"
                )
            )
        if last is None:
            return self._begin(sent)
        remembered = self._crcs.get(_place(mark))
        if remembered is not None:
            return DropRepeat() if remembered == mark.header_crc else self._stop(mark)
        if mark.home_epoch < last.home_epoch:
            return RefuseEntry(
                OldHomeError(
                    f"{self._name} is of home epoch {last.home_epoch}; it takes nothing of home"
                    f" epoch {mark.home_epoch}"
                )
            )
        previous = sent.previous
        if previous is None or _place(previous) != _place(last):
            return self._refuse(f"{mark} is not directly behind {last}")
        if previous != last:
            return self._stop(last)
        is_next = last.is_just_before(mark.home_epoch, mark.segment, mark.entry)
        if not is_next or sent.first_sequence != last.sequence_next:
            return self._refuse(
                f"{mark}, sequence {sent.first_sequence}, cannot follow {last}, whose next"
                f" sequence is {last.sequence_next}"
            )
        return self._take(mark)

    def _is_off(self, mark: Watermark) -> bool:
        """Whether the entry is part of a dead branch."""
        end = branch_point(self._forks, mark.home_epoch)
        return end is not None and end.is_before(mark.segment, mark.entry)

    def _begin(self, sent: SentEntry) -> Verdict:
        if sent.previous is not None or sent.mark.entry != 0:
            return self._refuse(f"it is empty, so {sent.mark} cannot be taken")
        if sent.first_sequence > 0 and not sent.is_control:
            return self._refuse(
                f"it can begin with a snapshot or with sequence 0, not with sequence"
                f" {sent.first_sequence}"
            )
        return self._take(sent.mark)

    def _take(self, mark: Watermark) -> TakeEntry:
        self._last = mark
        self._remember(mark)
        return TakeEntry()

    def _remember(self, mark: Watermark) -> None:
        self._crcs[_place(mark)] = mark.header_crc
        if len(self._crcs) > REMEMBERED_MAX:
            self._crcs.popitem(last=False)

    def _refuse(self, why: str) -> RefuseEntry:
        return RefuseEntry(NotBehindError(f"mirror {self._name}: {why}"))

    def _stop(self, place: Watermark) -> StopMirror:
        self._stopped = MirrorDivergedError(
            f"mirror {self._name} differs from its home at {place}: the checksums of the two"
            " entries are not equal; the mirror takes nothing more"
        )
        return StopMirror(self._stopped)


def _place(mark: Watermark) -> tuple[int, int, SegmentEntry]:
    return mark.home_epoch, mark.segment, mark.entry
