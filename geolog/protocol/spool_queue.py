"""The frames of a spool: which to send to the log, which are answered, which may be deleted.

Theory of operation. A frame is a batch of a named writer that is synced on the application's
own disk. Frames are numbered, and sent in that order, in sessions of the writer. A new session
sends every record again that has no answer: the log recognises those that it has. It remembers
the last 64 batches of a writer in each partition, so no more than `WINDOW_FRAMES` are sent
above the *mark*: what is below it is answered, and that is on disk. Whenever the application
or its machine dies, the log still remembers what it has of the frames above the mark.

An answer counts for one record. A record that the log refuses for good is kept elsewhere, and
then counts as answered. To know which record a refusal is about, the frames on their way are
sent again record by record: they are *careful*. Each of their records is a batch of its own, so
then the mark moves within a frame, too.

Answered frames stay on disk for a while. If a home was lost with records that it had
acknowledged, they are sent again under their old seqs (`on_lost`).

Invariants:
1. A file is deleted only once every record in it is answered, and the mark is above it. The
   newest file is never deleted.
2. No frame is sent that is `WINDOW_FRAMES` or more above the mark.
3. Frames are sent in the order of their numbers, those that were lost before all others.
4. Between two marks, at most `CAREFUL_ROWS` records are sent one by one.
"""

from collections.abc import Callable, Iterable, Sequence

import attrs

WINDOW_FRAMES = 24
"""Frames sent above the mark. A frame becomes at most two batches in each partition."""

CAREFUL_ROWS = 32
"""Records that are sent one by one before the mark moves behind them."""


@attrs.frozen
class SpooledFrame:
    """A frame on disk."""

    number: int
    file: int
    """Number of its file; files are deleted whole."""
    offset: int
    length_bytes: int
    seq_first: int
    seq_last: int
    count: int


@attrs.frozen
class SpoolFigures:
    """Contents of a spool, in numbers."""

    frames_count: int
    unanswered_records: int
    disk_bytes: int


@attrs.define
class _File:
    """A file and its frames."""

    length_bytes: int = 0
    numbers: list[int] = attrs.field(factory=list)
    wanted_count: int = 0
    """Frames that are above the mark, or have records to send again."""


class SpoolQueue:
    """Decides about the frames of one spool. Give frames in the order of their numbers."""

    def __init__(self, *, mark: int = 0, mark_row: int = 0, kept_bytes_max: int) -> None:
        """mark, mark_row: all frames below are answered, and so many rows of this one.

        kept_bytes_max: keep this much of what is answered, for `on_lost`.
        """
        self.mark = mark
        self.mark_row = mark_row
        self._kept_bytes_max = kept_bytes_max
        self._frames: dict[int, SpooledFrame] = {}  # By number, which rises.
        self._files: dict[int, _File] = {}  # By number, which rises.
        self._left: dict[int, set[int]] = {}  # Rows without an answer, at and above the mark.
        self._lost: dict[int, set[int]] = {}  # Rows below the mark to send again.
        self._next = mark  # The first frame that this session has not sent.
        self._careful_below = 0
        self._is_open = False
        self._unanswered_records = 0
        self._disk_bytes = 0

    def __repr__(self) -> str:
        return f"SpoolQueue({len(self._frames)} frames, mark {self.mark}, next {self._next})"

    @property
    def number_next(self) -> int:
        """The number of the next frame."""
        return max(self.mark, next(reversed(self._frames), -1) + 1)

    @property
    def number_oldest(self) -> int:
        """The number of the oldest frame on disk; that of the next one if there is none."""
        return next(iter(self._frames), self.number_next)

    @property
    def disk_bytes(self) -> int:
        """Bytes of all frames on disk."""
        return self._disk_bytes

    @property
    def needed_bytes(self) -> int:
        """Bytes of the files that cannot be deleted now."""
        newest = next(reversed(self._files), None)
        return sum(
            one.length_bytes
            for file, one in self._files.items()
            if one.wanted_count or file == newest
        )

    def figures(self) -> SpoolFigures:
        """Its contents now, in numbers."""
        return SpoolFigures(len(self._frames), self._unanswered_records, self._disk_bytes)

    # Frames.

    def on_synced(self, frame: SpooledFrame, *, answered_rows: Iterable[int] = ()) -> None:
        """A frame is on disk. answered_rows: those that are kept elsewhere already."""
        assert not self._frames or frame.number > next(reversed(self._frames))
        self._frames[frame.number] = frame
        file = self._files.setdefault(frame.file, _File())
        file.length_bytes += frame.length_bytes
        file.numbers.append(frame.number)
        self._disk_bytes += frame.length_bytes
        if frame.number >= self.mark:
            left = set(range(frame.count)) - set(answered_rows)
            if frame.number == self.mark:
                left -= set(range(self.mark_row))
            self._left[frame.number] = left
            self._unanswered_records += len(left)
            file.wanted_count += 1

    # Sessions.

    def on_session_opened(self) -> None:
        """A session of the writer is open: everything without an answer goes again."""
        self._is_open = True
        self._next = self.mark

    def on_session_ended(self) -> None:
        """The session is over."""
        self._is_open = False

    def on_home_changed(self, refused: Callable[[int], Iterable[int]]) -> None:
        """Answers above the mark may be of a home that is lost: everything there goes again.

        refused: the rows of a frame that were refused for good.
        """
        for number in self._left:
            rows = set(range(self._frames[number].count)) - set(refused(number))
            self._unanswered_records += len(rows) - len(self._left[number])
            self._left[number] = rows

    @property
    def kept(self) -> list[SpooledFrame]:
        """The frames below the mark that are still on disk."""
        return [frame for frame in self._frames.values() if frame.number < self.mark]

    def on_lost(self, number: int, rows: Iterable[int]) -> None:
        """The log lacks these records of a kept frame, which it had acknowledged."""
        lost = set(rows)
        if not lost or number in self._lost:
            return
        assert number < self.mark, f"frame {number} has no answer that could be lost"
        self._lost[number] = lost
        self._unanswered_records += len(lost)
        self._files[self._frames[number].file].wanted_count += 1

    def lost_to_send(self) -> list[tuple[SpooledFrame, Sequence[int]]]:
        """The rows of kept frames to send again, before `next_to_send`."""
        return [(self._frames[one], sorted(self._lost[one])) for one in sorted(self._lost)]

    def next_to_send(self) -> tuple[SpooledFrame, Sequence[int]] | None:
        """The next frame to send now, and its rows; ask again until None. It counts as sent."""
        while self._is_open and self._next < self.mark + WINDOW_FRAMES:
            frame = self._frames.get(self._next)
            if frame is None:
                return None
            self._next += 1
            rows = sorted(self._left[frame.number])
            if rows:
                return frame, rows
        return None

    def is_careful(self, frame: SpooledFrame) -> bool:
        """Whether to send the records of this frame one by one, each after an answer."""
        return frame.number < self._careful_below

    def be_careful(self) -> None:
        """A record was refused among others: send those on their way one by one."""
        self._careful_below = max(self._careful_below, self._next)

    def on_answered(self, number: int, row: int) -> None:
        """A record is in the log, or was refused and is kept elsewhere."""
        is_lost = number in self._lost
        left = (self._lost if is_lost else self._left).get(number)
        if left is None or row not in left:
            return  # It had its answer before.
        left.remove(row)
        self._unanswered_records -= 1
        if is_lost and not left:
            del self._lost[number]
            self._files[self._frames[number].file].wanted_count -= 1

    # Marks and room.

    def mark_due(self) -> tuple[int, int] | None:
        """The mark to write now: a frame, and rows of it. None if it need not move."""
        number, row = self.mark, 0
        while number in self._frames and not self._left[number]:
            number += 1
        if number in self._frames and number < self._careful_below:
            row = min(self._left[number])
        if number > self.mark:
            return number, row
        return (number, row) if row >= self.mark_row + CAREFUL_ROWS else None

    def on_marked(self, number: int, row: int) -> None:
        """The mark is on disk."""
        assert (number, row) >= (self.mark, self.mark_row), "a mark never goes back"
        for one in range(self.mark, number):
            assert not self._left[one], f"frame {one} has no answer"
            del self._left[one]
            self._files[self._frames[one].file].wanted_count -= 1
        self.mark, self.mark_row = number, row
        self._next = max(self._next, number)  # A frame without unanswered rows is not sent.

    def to_delete(self, *, room_bytes: int, limit_bytes: int) -> list[int]:
        """The files to delete now, oldest first: answered, and too many or in the way.

        room_bytes: needed below limit_bytes. The newest file stays: it tells the last seq.
        """
        doomed: list[int] = []
        disk_bytes = self._disk_bytes
        kept_bytes = disk_bytes - self.needed_bytes
        for number, file in list(self._files.items())[:-1]:
            is_in_the_way = disk_bytes + room_bytes > limit_bytes
            if not (is_in_the_way or kept_bytes > self._kept_bytes_max):
                break
            if not file.wanted_count:
                doomed.append(number)
                kept_bytes -= file.length_bytes
                disk_bytes -= file.length_bytes
        return doomed

    def on_deleted(self, file: int) -> None:
        """A file is deleted."""
        gone = self._files.pop(file)
        assert not gone.wanted_count, f"file {file} has records without an answer"
        self._disk_bytes -= gone.length_bytes
        for number in gone.numbers:
            del self._frames[number]
