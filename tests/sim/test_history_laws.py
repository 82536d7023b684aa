"""Each law of histories, shown a history that breaks it and one that does not."""

from collections.abc import Callable

import attrs
import pytest

from geolog.protocol.ids import DLSN
from sim.world.history import Append, Found, History, Read
from sim.world.history_laws import breaches


@attrs.define
class Story:
    """A small history, and what is found when it is over."""

    history: History = attrs.field(factory=History)
    found: list[Found] = attrs.field(factory=list)


def appended(story: Story, value: bytes, at: int, answered_at: int, sequence: int) -> Append:
    append = story.history.on_sent(value, "w", at)
    append.outcome, append.answered_at = "acknowledged", answered_at
    append.sequence, append.dlsn = sequence, DLSN(1, sequence, 0)
    return append


def there(story: Story, *values: bytes) -> None:
    first = len(story.found)
    story.found += [
        Found(sequence=number, dlsn=DLSN(1, number, 0), timestamp_us=number, value=value)
        for number, value in enumerate(values, first)
    ]


def read(story: Story, at: int, *values: bytes) -> Read:
    walk = story.history.on_read("r", at, is_of_all=True)
    for sequence, value in enumerate(values):
        story.history.on_shown(walk, sequence, value)
    walk.has_reached_end = True
    return walk


def a_good_story() -> Story:
    story = Story()
    appended(story, b"a", at=1, answered_at=2, sequence=0)
    appended(story, b"b", at=3, answered_at=9, sequence=1)
    read(story, 4, b"a")
    story.history.on_sent(b"lost its answer", "w", 10)
    there(story, b"a", b"b", b"lost its answer")
    return story


def test_a_good_history_breaks_no_law() -> None:
    story = a_good_story()

    assert list(breaches(story.history, story.found)) == []


def _lose_the_first(story: Story) -> None:
    story.found[0] = attrs.evolve(story.found[0], value=b"x")
    story.history.on_sent(b"x", "w", 11)
    story.history.shown.clear()


def _read_too_little(story: Story) -> None:
    read(story, 20, b"a")


def _show_what_goes(story: Story) -> None:
    read(story, 5, b"a", b"b", b"lost its answer", b"gone")


def _show_two_values(story: Story) -> None:
    story.history.on_shown(story.history.reads[0], 0, b"other")
    story.history.reads[0].sequences.pop()


def _answer_out_of_order(story: Story) -> None:
    story.history.appends[b"a"].sequence, story.history.appends[b"b"].sequence = 1, 0
    story.history.reads.clear()
    story.history.shown.clear()
    story.found.clear()
    there(story, b"b", b"a", b"lost its answer")


def _skip_one(story: Story) -> None:
    story.history.reads[0].sequences[:] = [0, 2]


def _append_twice(story: Story) -> None:
    there(story, b"lost its answer")


def _put_a_repeat_elsewhere(story: Story) -> None:
    story.history.repeats.append((story.history.appends[b"a"], DLSN(2, 0, 0)))


def _keep_what_was_refused(story: Story) -> None:
    story.history.appends[b"lost its answer"].outcome = "refused"


def _invent_one(story: Story) -> None:
    there(story, b"nobody")


def _lower_a_dlsn(story: Story) -> None:
    story.found[2] = attrs.evolve(story.found[2], dlsn=DLSN(1, 0, 0))


def _lower_a_time(story: Story) -> None:
    story.found[2] = attrs.evolve(story.found[2], timestamp_us=0)


def _fail_a_read(story: Story) -> None:
    story.history.harsh_errors.append("damaged")


@pytest.mark.parametrize(
    ("spoil", "law"),
    [
        (_lose_the_first, "1"),
        (_read_too_little, "1"),
        (_lower_a_dlsn, "9"),
        (_lower_a_time, "9"),
        (_show_what_goes, "11"),
        (_show_two_values, "11"),
        (_answer_out_of_order, "13"),
        (_skip_one, "14"),
        (_fail_a_read, "15"),
        (_append_twice, "16"),
        (_put_a_repeat_elsewhere, "16"),
        (_keep_what_was_refused, "17"),
        (_invent_one, "17"),
    ],
)
def test_a_history_that_breaks_a_law_is_told_so(
    spoil: Callable[[Story], None], law: str
) -> None:
    story = a_good_story()
    spoil(story)

    assert {number for number, _ in breaches(story.history, story.found)} == {law}


def test_what_is_refused_when_it_is_sent_again_may_be_in_the_log_all_the_same() -> None:
    story = a_good_story()
    append = story.history.appends[b"lost its answer"]

    story.history.on_sent_again(append)
    story.history.on_answered(append, "refused", 12)

    assert append.outcome == "unknown"
    assert list(breaches(story.history, story.found)) == []
