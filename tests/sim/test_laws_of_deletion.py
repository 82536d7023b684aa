"""The law of deletion, with good and bad histories of a stream with two lives."""

from collections.abc import Callable

import attrs
import pytest

from sim.laws.history.all_laws import breaches
from sim.world.history import Ending, History
from sim.world.lives import Death, LifeRange, LifeRecord, Lives, Walk

FIRST, SECOND = LifeRange(1, 1), LifeRange(2, 2)
EITHER = LifeRange(1, 2)


@attrs.define
class Story:
    """Life 1 is deleted at moment 50; life 2 is read at moment 90."""

    history: History = attrs.field(factory=History)

    def __attrs_post_init__(self) -> None:
        self.lives.begun, self.lives.is_made = 2, True
        self.lives.deaths.append(Death(begun_s=1.0, answered_at=50, answered_s=2.0))
        self.append(b"old", FIRST, sent_at=10, answered_at=20, sequence=0)
        self.append(b"new", SECOND, sent_at=60, answered_at=70, sequence=0)
        self.walk(FIRST, 30, b"old")
        self.walk(SECOND, 90, b"new")

    @property
    def lives(self) -> Lives:
        return self.history.lives

    def append(
        self,
        value: bytes,
        life: LifeRange,
        *,
        sent_at: int,
        answered_at: int | None = None,
        sequence: int | None = None,
    ) -> None:
        self.lives.entries[value] = LifeRecord(
            value=value,
            life=life,
            sent_at=sent_at,
            answered_at=answered_at,
            sequence=sequence,
        )

    def walk(self, life: LifeRange, begun_at: int, *values: bytes) -> Walk:
        walk = Walk(reader="r", begun_at=begun_at, life=life, has_reached_end=True)
        walk.items += enumerate(values)
        self.lives.walks.append(walk)
        return walk

    @property
    def broken(self) -> list[str]:
        return [number for number, _ in breaches(self.history, Ending([]))]


def test_deleting_and_recreating_a_stream_breaks_no_law() -> None:
    assert Story().broken == []


def test_a_record_may_be_of_either_life_if_its_writer_was_opened_in_between() -> None:
    story = Story()
    story.append(b"between", EITHER, sent_at=60, answered_at=61, sequence=1)
    story.walk(SECOND, 91, b"new", b"between")
    assert story.broken == []


def what_was_deleted_is_read_again(story: Story) -> None:
    story.walk(SECOND, 91, b"new", b"old")


def what_was_sent_before_the_deletion_is_in_the_new_stream(story: Story) -> None:
    story.append(b"late", FIRST, sent_at=40)
    story.walk(SECOND, 91, b"new", b"late")


def a_writer_of_the_old_stream_is_answered_after_the_deletion(story: Story) -> None:
    story.append(b"late", FIRST, sent_at=60, answered_at=61, sequence=1)


def a_reader_goes_on_from_one_life_into_the_next(story: Story) -> None:
    story.walk(EITHER, 30, b"old", b"new")


def the_new_stream_does_not_begin_at_its_beginning(story: Story) -> None:
    story.append(b"more", SECOND, sent_at=61)
    walk = story.walk(SECOND, 91, b"new", b"more")
    walk.items[1] = (2, b"more")


def a_reader_is_told_of_a_truncation_that_never_was(story: Story) -> None:
    story.walk(SECOND, 91, b"new").gaps.append((None, 3))


def what_the_new_stream_answered_is_not_there(story: Story) -> None:
    story.walk(SECOND, 91)


def nobody_sent_what_is_read(story: Story) -> None:
    story.walk(SECOND, 91, b"new", b"phantom")


@pytest.mark.parametrize(
    "spoil",
    [
        what_was_deleted_is_read_again,
        what_was_sent_before_the_deletion_is_in_the_new_stream,
        a_writer_of_the_old_stream_is_answered_after_the_deletion,
        a_reader_goes_on_from_one_life_into_the_next,
        the_new_stream_does_not_begin_at_its_beginning,
        a_reader_is_told_of_a_truncation_that_never_was,
        what_the_new_stream_answered_is_not_there,
        nobody_sent_what_is_read,
    ],
)
def test_breaches_of_the_law_of_deletion_are_reported(spoil: Callable[[Story], None]) -> None:
    story = Story()
    spoil(story)
    assert set(story.broken) == {"deletion"}


def test_a_writer_may_outlive_a_deletion_without_a_fence() -> None:
    story = Story()
    story.append(b"late", FIRST, sent_at=60, answered_at=61, sequence=1)
    story.lives.deaths[0].answered_s = 20.0
    assert story.broken == []
