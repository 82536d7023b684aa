"""The frames of a spool, against a naive log that forgets, and crashes at any moment."""

import random

import attrs
import pytest

from geolog.protocol.partition_state import BATCHES_REMEMBERED
from geolog.protocol.spool_queue import (
    CAREFUL_ROWS,
    WINDOW_FRAMES,
    SpooledFrame,
    SpoolQueue,
)

FRAME_BYTES = 10
FRAMES_PER_FILE = 4
LANES = 2


@attrs.define
class NaiveLane:
    """One partition of the log: it remembers the last batches of the writer, and no others."""

    batches: list[list[int]] = attrs.field(factory=list)
    forgotten: list[int] = attrs.field(factory=list)

    @property
    def seqs(self) -> list[int]:
        return [seq for batch in self.batches for seq in batch]

    def take(self, seqs: list[int]) -> None:
        """Append the new ones of these, and recognise the others, or fail to."""
        highest = self.seqs[-1] if self.batches else -1
        remembered = {seq for batch in self.batches[-BATCHES_REMEMBERED:] for seq in batch}
        self.forgotten += [seq for seq in seqs if seq <= highest and seq not in remembered]
        new = [seq for seq in seqs if seq > highest]
        # A batch may end within a frame.
        for part in (new[: len(new) // 2], new[len(new) // 2 :]):
            if part:
                self.batches.append(part)


class Spool:
    """An application with a disk: frames that are synced, and the mark that is."""

    def __init__(self) -> None:
        self.disk: list[SpooledFrame] = []
        self.rows: dict[int, list[int]] = {}  # The seqs of each frame.
        self.mark = (0, 0)
        self.refused: dict[int, set[int]] = {}
        self.lanes = [NaiveLane() for _ in range(LANES)]
        self.bad: set[int] = set()
        self.queue = self.restarted()
        self.sent: list[tuple[SpooledFrame, list[int]]] = []
        self.seq_next = 0

    def restarted(self) -> SpoolQueue:
        queue = SpoolQueue(mark=self.mark[0], mark_row=self.mark[1], kept_bytes_max=40)
        for frame in self.disk:
            queue.on_synced(frame, answered_rows=self.refused.get(frame.number, set()))
        return queue

    def write(self, count: int, *, is_bad: bool = False) -> None:
        number = self.queue.number_next
        seqs = list(range(self.seq_next, self.seq_next + count))
        self.seq_next += count
        frame = SpooledFrame(
            number=number,
            file=number // FRAMES_PER_FILE,
            offset=0,
            length_bytes=FRAME_BYTES,
            seq_first=seqs[0],
            seq_last=seqs[-1],
            count=count,
        )
        if is_bad:
            self.bad.add(seqs[count // 2])
        self.rows[number] = seqs
        self.disk.append(frame)
        self.queue.on_synced(frame)

    def open(self) -> None:
        self.sent = []
        self.queue.on_session_opened()

    def end(self) -> None:
        self.sent = []
        self.queue.on_session_ended()

    def send(self, limit: int, dies_after: int | None = None) -> None:
        """Send frames; a frame is in the log at once, its answers come later.

        dies_after: the application dies after so many records that are sent one by one.
        """
        for _ in range(limit):
            due = self.queue.next_to_send()
            if due is None:
                return
            frame, rows = due
            assert frame.number < self.queue.mark + WINDOW_FRAMES
            if self.queue.is_careful(frame):
                self.answer(len(self.sent))
                self.send_one_by_one(frame, list(rows)[:dies_after])
                if dies_after is not None:
                    self.crash()
                    return
                continue
            seqs = [self.rows[frame.number][row] for row in rows]
            if self.bad & set(seqs):
                self.queue.be_careful()
                self.end()
                self.open()
                return
            self.take(seqs)
            self.sent.append((frame, list(rows)))

    def send_one_by_one(self, frame: SpooledFrame, rows: list[int]) -> None:
        for row in rows:
            seq = self.rows[frame.number][row]
            if seq in self.bad:
                self.refused.setdefault(frame.number, set()).add(row)
            else:
                self.take([seq])
            self.queue.on_answered(frame.number, row)
            self.write_mark()

    def take(self, seqs: list[int]) -> None:
        for number, lane in enumerate(self.lanes):
            own = [seq for seq in seqs if seq % LANES == number]
            if own:
                lane.take(own)

    def answer(self, limit: int) -> None:
        for frame, rows in self.sent[:limit]:
            for row in rows:
                self.queue.on_answered(frame.number, row)
        del self.sent[:limit]

    def write_mark(self) -> None:
        due = self.queue.mark_due()
        if due is not None:
            self.mark = due
            self.queue.on_marked(*due)
            self.delete(room_bytes=0)

    def delete(self, room_bytes: int) -> None:
        for file in self.queue.to_delete(room_bytes=room_bytes, limit_bytes=400):
            doomed = [one for one in self.disk if one.file == file]
            assert all(one.number < self.queue.mark for one in doomed)
            self.disk = [one for one in self.disk if one.file != file]
            self.queue.on_deleted(file)

    def crash(self) -> None:
        self.sent = []
        self.queue = self.restarted()

    def drain(self) -> None:
        self.open()
        while self.queue.figures().unanswered_records:
            self.send(WINDOW_FRAMES)
            self.answer(WINDOW_FRAMES)
            self.write_mark()


STEPS = ["write", "write bad", "write many", "open", "end", "send", "answer", "mark", "crash"]
WEIGHTS = [4, 1, 2, 3, 1, 6, 5, 3, 2]


@pytest.mark.parametrize("part", range(8))
def test_every_record_is_in_the_log_once_whenever_the_application_dies(part: int) -> None:
    for seed in range(25 * part, 25 * (part + 1)):
        check_history(seed)


def check_history(seed: int) -> None:
    rng = random.Random(seed)
    spool = Spool()
    is_open = False
    for step in rng.choices(STEPS, WEIGHTS, k=rng.choice([10, 40, 120])):
        match step:
            case "write":
                spool.write(rng.randint(1, 5))
            case "write bad":
                spool.write(rng.randint(1, 150), is_bad=True)
            case "write many":
                for _ in range(rng.randint(10, 60)):
                    spool.write(4)
            case "open":
                spool.open()
                is_open = True
            case "end" | "crash":
                spool.end() if step == "end" else spool.crash()
                is_open = False
            case "send" if is_open:
                spool.send(
                    rng.choice([1, 5, 200]), dies_after=rng.choice([None, rng.randint(1, 150)])
                )
            case "answer":
                spool.answer(rng.randint(1, 30))
            case "mark":
                spool.write_mark()

    spool.drain()

    assert [lane.forgotten for lane in spool.lanes] == [[], []], f"seed {seed}"
    in_log = sorted(seq for lane in spool.lanes for seq in lane.seqs)
    aside = {spool.rows[frame][row] for frame, rows in spool.refused.items() for row in rows}
    assert aside == spool.bad
    assert in_log == [seq for seq in range(spool.seq_next) if seq not in spool.bad]


def test_a_frame_beyond_the_window_waits_for_the_mark() -> None:
    spool = Spool()
    for _ in range(WINDOW_FRAMES + 1):
        spool.write(1)
    spool.open()
    spool.send(100)
    spool.answer(WINDOW_FRAMES)

    assert spool.queue.next_to_send() is None
    spool.write_mark()
    due = spool.queue.next_to_send()
    assert due is not None
    assert due[0].number == WINDOW_FRAMES


def test_records_sent_one_by_one_move_the_mark_within_their_frame() -> None:
    spool = Spool()
    spool.write(3 * CAREFUL_ROWS, is_bad=True)
    spool.open()
    spool.send(1)  # The refusal.
    frame, rows = spool.queue.next_to_send() or (None, [])
    assert frame is not None
    for row in rows[: CAREFUL_ROWS + 1]:
        spool.queue.on_answered(frame.number, row)

    assert spool.queue.mark_due() == (0, CAREFUL_ROWS + 1)


def test_the_newest_file_is_kept_because_it_tells_the_last_seq() -> None:
    spool = Spool()
    for _ in range(2 * FRAMES_PER_FILE):
        spool.write(1)
    spool.drain()

    assert spool.queue.to_delete(room_bytes=1000, limit_bytes=1) == [0]


def test_answered_files_are_kept_until_they_are_too_many() -> None:
    spool = Spool()
    for _ in range(4 * FRAMES_PER_FILE):
        spool.write(1)

    spool.drain()

    assert sorted({frame.file for frame in spool.disk}) == [2, 3]
    assert len(spool.queue.kept) == 2 * FRAMES_PER_FILE


def test_records_that_a_lost_home_had_go_again_first_and_only_once() -> None:
    spool = Spool()
    for _ in range(3):
        spool.write(2)
    spool.drain()
    spool.write(1)

    spool.queue.on_lost(1, [1])
    spool.queue.on_lost(1, [0, 1])  # Another session finds the same.
    lost = spool.queue.lost_to_send()
    spool.queue.on_answered(1, 1)
    spool.queue.on_answered(1, 1)

    assert [(frame.number, rows) for frame, rows in lost] == [(1, [1])]
    assert spool.queue.lost_to_send() == []
    assert spool.queue.figures().unanswered_records == 1


def test_a_new_home_is_asked_for_everything_above_the_mark() -> None:
    spool = Spool()
    spool.write(1)
    spool.write(2)
    spool.open()
    spool.send(2)
    spool.queue.on_answered(1, 0)  # Frame 0 has no answer, so the mark stays.

    spool.queue.on_home_changed(lambda frame: {1} if frame == 1 else set())
    spool.open()

    assert [list(rows) for _, rows in iter(spool.queue.next_to_send, None)] == [[0], [0]]
