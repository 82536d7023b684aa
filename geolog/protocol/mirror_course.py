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

Invariants:
1. Entries are taken without holes, and each once: the last one only moves forward.
2. Home epochs never fall.
3. A mirror that has stopped takes nothing.

Rules: PROTOCOL H5 to H7.
"""

from collections import OrderedDict

import attrs

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

    def __init__(self, name: str, durable: Watermark | None) -> None:
        """durable: the last entry that the mirror has; None if it is empty."""
        self._name = name
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
