"""Commits rise, come at most once a second, and never carry what an earlier hold has done."""

import math
from itertools import pairwise

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.cursor_commits import COMMIT_S, CursorCommits
from geolog.protocol.cursor_state import CursorPartition
from geolog.protocol.ids import Position


def at(sequence: int) -> Position:
    return Position(1, sequence)


def test_a_commit_is_due_once_something_is_done() -> None:
    commits = CursorCommits()
    hold = commits.on_gained(0, at(5))

    assert commits.due(0.0) == []
    assert commits.next_due_s() == math.inf
    commits.on_done(0, hold, at(7))
    assert commits.due(0.0) == [0]
    assert commits.position_to_commit(0) == at(7)


def test_the_next_commit_waits_for_a_second() -> None:
    commits = CursorCommits()
    hold = commits.on_gained(0, None)
    commits.on_done(0, hold, at(1))
    commits.on_commit_begins([0], 10.0)
    commits.on_stored(0, at(1))
    commits.on_done(0, hold, at(2))

    assert commits.due(10.5) == []
    assert commits.next_due_s() == 10.0 + COMMIT_S
    assert commits.due(10.0 + COMMIT_S) == [0]


def test_records_of_an_earlier_home_move_a_position_that_was_sought_in_a_later_one() -> None:
    commits = CursorCommits()
    hold = commits.on_gained(0, Position(3, 5))
    commits.on_done(0, hold, Position(1, 6))
    committed = commits.position_to_commit(0)
    commits.on_stored(0, committed)
    commits.on_done(0, hold, Position(1, 6))

    assert committed == Position(3, 6)
    assert commits.is_stored(0, hold)
    commits.on_done(0, hold, Position(4, 7))
    assert commits.position_to_commit(0) == Position(4, 7)


def test_what_an_earlier_hold_has_done_is_ignored() -> None:
    commits = CursorCommits()
    earlier = commits.on_gained(0, at(0))
    commits.on_dropped(0)
    hold = commits.on_gained(0, at(3))
    commits.on_done(0, earlier, at(9))

    assert commits.due(0.0) == []
    assert not commits.is_stored(0, earlier)
    assert commits.is_stored(0, hold)


def test_a_hold_that_ended_is_stored_once_its_last_commit_is() -> None:
    commits = CursorCommits()
    hold = commits.on_gained(0, at(0))
    commits.on_done(0, hold, at(9))
    commits.on_dropped(0)
    was_stored_before = commits.is_stored(0, hold)
    commits.on_last_stored(0, at(9))

    assert not was_stored_before
    assert commits.is_stored(0, hold)
    commits.on_done(0, hold, at(10))
    assert not commits.is_stored(0, hold), "it came after the last commit"


def test_a_later_home_epoch_is_ahead_although_its_sequence_is_lower() -> None:
    commits = CursorCommits()
    hold = commits.on_gained(0, Position(1, 90))
    commits.on_done(0, hold, Position(2, 40))

    assert commits.position_to_commit(0) == Position(2, 40)


@attrs.define
class Naive:
    """All marks of one partition, in order; the record in metadata; the moments of commits."""

    marks: list[int] = attrs.field(factory=list)
    stored: list[int] = attrs.field(factory=list)
    moments: list[float] = attrs.field(factory=list)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["done", "late", "commit", "lost", "regain"]),
            st.integers(0, 30),
            st.floats(0.0, 0.7),
        ),
        max_size=60,
    )
)
def test_commits_agree_with_the_naive_marks(
    steps: list[tuple[int, str, int, float]],
) -> None:
    commits, now_s = CursorCommits(), 0.0
    holds = {number: commits.on_gained(number, None) for number in range(3)}
    naive = {number: Naive() for number in range(3)}
    for number, step, sequence, pause_s in steps:
        now_s += pause_s
        mine = naive[number]
        match step:
            case "done":
                commits.on_done(number, holds[number], at(sequence))
                mine.marks.append(sequence)
            case "late":
                commits.on_done(number, holds[number] - 1, at(sequence + 100))
            case "regain":
                commits.on_dropped(number)
                holds[number] = commits.on_gained(
                    number, at(mine.stored[-1]) if mine.stored else None
                )
                mine.marks.clear()
                mine.moments.clear()
            case _:
                due = commits.due(now_s)
                commits.on_commit_begins(due, now_s)
                for one in due:
                    position = commits.position_to_commit(one)
                    assert position == at(max(naive[one].marks))
                    naive[one].moments.append(now_s)
                    if step == "commit":
                        commits.on_stored(one, position)
                        naive[one].stored.append(position.sequence)

    for mine in naive.values():
        assert all(early < late for early, late in pairwise(mine.stored))
        assert all(late - early >= COMMIT_S for early, late in pairwise(mine.moments))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9))))
def test_a_record_never_moves_back(moves: list[tuple[int, int]]) -> None:
    record, highest = CursorPartition(), None
    for epoch, sequence in moves:
        position = Position(epoch, sequence)
        record = record.moved(position)
        highest = position if highest is None else max(highest, position)
        assert record.position == highest
