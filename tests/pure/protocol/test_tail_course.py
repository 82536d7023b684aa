"""The course of a tail: scenarios, and any history against nodes kept as plain numbers."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import NO_ENTRY, EntryId
from geolog.protocol.tail_course import (
    REFUSED_TICKS,
    AskNoMore,
    Demote,
    Effect,
    FollowAt,
    PassTo,
    TailCourse,
    WatchAt,
)

ORDER = "abc"


def wanted(lac: int = NO_ENTRY) -> TailCourse[str]:
    course: TailCourse[str] = TailCourse()
    course.on_wanted(ORDER, EntryId(lac))
    return course


def at(entry: int) -> EntryId:
    return EntryId(entry)


def test_the_first_member_is_followed_and_the_others_are_watched_once_it_is_silent() -> None:
    course: TailCourse[str] = TailCourse()

    assert course.on_wanted(ORDER, at(4)) == [FollowAt("a", at(5))]
    assert course.on_wanted(ORDER, at(4)) == []
    assert course.on_tick(ORDER) == [WatchAt("b", at(5)), WatchAt("c", at(5))]
    assert course.on_tick(ORDER) == []
    assert not course.is_restless


def test_entries_move_the_tail_on_at_the_same_member() -> None:
    course = wanted(4)

    assert course.on_answered("a", at(7)) == [FollowAt("a", at(8))]
    assert course.lac == 7


def test_nothing_more_is_requested_while_no_reader_waits() -> None:
    course = wanted(4)
    course.on_unwanted()

    assert course.on_answered("a", at(7)) == []
    assert course.on_tick(ORDER) == []
    assert course.on_wanted(ORDER, at(7)) == [FollowAt("a", at(8))]


def test_a_watched_member_that_tells_of_more_only_counts_if_the_followed_one_does_not() -> None:
    course = wanted(4)
    course.on_tick(ORDER)
    course.on_watched("b", at(5))
    course.on_answered("a", at(5))

    assert course.on_tick(ORDER) == [WatchAt("b", at(6))]


def test_a_watched_member_may_tell_what_the_followed_one_gave_before() -> None:
    course = wanted(4)
    course.on_tick(ORDER)
    course.on_answered("a", at(5))
    course.on_watched("b", at(5))

    assert not course.is_restless
    assert course.on_tick(ORDER) == [WatchAt("b", at(6))]


def test_a_watched_member_that_answers_too_soon_is_not_asked_at_once() -> None:
    course = wanted(4)
    course.on_tick(ORDER)
    course.on_watched("b", at(4))

    assert course.is_restless
    assert course.on_tick(ORDER) == []


def test_a_followed_member_that_is_behind_is_left_and_readers_are_told() -> None:
    course = wanted(4)
    course.on_tick(ORDER)
    course.on_watched("b", at(9))

    assert course.on_tick(ORDER) == [Demote("a"), AskNoMore("a"), PassTo(at(9))]
    assert course.on_wanted("abc", at(9)) == [FollowAt("b", at(10))]
    assert course.on_tick("bca") == [WatchAt("a", at(10))]


def test_a_tail_goes_back_to_the_nearest_member_when_that_is_well_again() -> None:
    course = wanted(4)
    assert course.on_failed("a") == [Demote("a"), FollowAt("b", at(5))]

    assert course.on_tick("bca") == [WatchAt("c", at(5)), WatchAt("a", at(5))]
    assert course.on_tick("abc") == [AskNoMore("b"), FollowAt("a", at(5)), WatchAt("b", at(5))]


def test_members_that_all_rest_are_asked_again_at_the_next_tick() -> None:
    course = wanted(4)
    course.on_nothing("a")
    course.on_nothing("b")

    assert course.on_nothing("c") == []
    assert course.is_restless
    assert course.on_tick(ORDER)[0] == FollowAt("a", at(5))


def test_a_member_that_refuses_to_be_watched_is_asked_again_after_some_ticks() -> None:
    course = wanted(4)
    course.on_tick(ORDER)
    course.on_watch_failed("b")
    assert course.is_restless

    asked = [course.on_tick(ORDER) for _ in range(REFUSED_TICKS)]
    assert [effects for effects in asked if effects] == [[WatchAt("b", at(5))]]


def test_members_that_left_the_ledger_are_left() -> None:
    course = wanted(4)
    course.on_tick(ORDER)

    assert course.on_changed("bd") == [AskNoMore("c"), AskNoMore("a"), FollowAt("b", at(5))]


@attrs.define
class Nodes:
    """What each member knows, what it was asked, and what readers were told."""

    lacs: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(ORDER, -1))
    down: set[str] = attrs.field(factory=set)
    follows: dict[str, int] = attrs.field(factory=dict)
    watches: dict[str, int] = attrs.field(factory=dict)
    told: int = -1
    is_waiting: bool = False

    def order(self) -> list[str]:
        return sorted(ORDER, key=lambda one: (one in self.down, one))

    def perform(self, course: TailCourse[str], effects: list[Effect[str]]) -> None:
        for effect in effects:
            match effect:
                case FollowAt(member, first):
                    assert not self.follows, "one member at a time"
                    assert self.is_waiting
                    assert first == self.told + 1
                    self.follows[member] = first
                case WatchAt(member, first):
                    assert member not in self.watches
                    self.watches[member] = first
                case AskNoMore(member):
                    self.follows.pop(member, None)
                    self.watches.pop(member, None)
                case PassTo(lac):
                    assert self.told < lac <= max(self.lacs.values())
                    self.told, self.is_waiting = lac, False
                case Demote():
                    pass
        if not self.is_waiting and not course.is_restless:
            self.is_waiting = True
            self.perform(course, course.on_wanted(self.order(), EntryId(self.told)))

    def answer(self, course: TailCourse[str]) -> bool:
        """Let the members that are up answer what they can; whether one did."""
        for member, first in list(self.follows.items()):
            if member in self.down:
                del self.follows[member]
                self.perform(course, course.on_failed(member))
                return True
            if self.lacs[member] >= first:
                del self.follows[member]
                self.told = self.lacs[member]
                self.perform(course, course.on_answered(member, EntryId(self.told)))
                return True
        for member, first in list(self.watches.items()):
            if member not in self.down and self.lacs[member] >= first:
                del self.watches[member]
                course.on_watched(member, EntryId(self.lacs[member]))
                return True
        return False


steps = st.one_of(
    st.tuples(st.just("lac"), st.sampled_from(ORDER), st.integers(0, 20)),
    st.tuples(st.just("down"), st.sampled_from(ORDER), st.just(0)),
    st.tuples(st.just("up"), st.sampled_from(ORDER), st.just(0)),
    st.tuples(st.just("tick"), st.just("a"), st.just(0)),
    st.tuples(st.just("answer"), st.just("a"), st.just(0)),
)


@given(st.lists(steps, max_size=40), st.sampled_from(ORDER))
def test_readers_hear_of_everything_that_one_member_knows_and_of_nothing_else(
    history: list[tuple[str, str, int]], survivor: str
) -> None:
    nodes, course = Nodes(is_waiting=True), TailCourse[str]()
    nodes.perform(course, course.on_wanted(nodes.order(), NO_ENTRY))
    for what, member, number in history:
        match what:
            case "lac":
                nodes.lacs[member] = max(nodes.lacs[member], number)
            case "down":
                nodes.down.add(member)
            case "up":
                nodes.down.discard(member)
            case "tick":
                nodes.perform(course, course.on_tick(nodes.order()))
            case _:
                nodes.answer(course)
        assert course.lac == nodes.told <= max(nodes.lacs.values())

    # The others hang: they never answer, and say nothing of it.
    nodes.down.discard(survivor)
    for member in set(ORDER) - {survivor}:
        nodes.lacs[member] = -1
    nodes.lacs[survivor] = 30
    for _ in range(3 + REFUSED_TICKS):
        while nodes.answer(course):
            pass
        nodes.perform(course, course.on_tick(nodes.order()))
    assert course.lac == nodes.told == 30
    while nodes.answer(course):
        pass
    for _ in range(2 + REFUSED_TICKS):
        nodes.perform(course, course.on_tick(nodes.order()))
        nodes.answer(course)
    before = (dict(nodes.follows), dict(nodes.watches))
    nodes.perform(course, course.on_tick(nodes.order()))
    assert (nodes.follows, nodes.watches) == before, "an idle tail asks nothing more"
