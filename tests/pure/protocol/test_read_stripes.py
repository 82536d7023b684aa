"""Choice of replicas for the ranges of a reader, against a naive model."""

from collections.abc import Sequence
from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.read_stripes import (
    ASIDE_RANGES,
    IDLE_ROUNDS_MAX,
    IDLE_ROUNDS_MIN,
    LIMITING_ANSWERS_MIN,
    LIMITING_ROUNDS,
    WIDTH_MAX,
    AskRange,
    DropRange,
    ReadStripes,
)
from geolog.protocol.read_window import ANSWERS_MAX, ANSWERS_MIN

A, B, C, D, E = (InstanceId(letter * 32) for letter in "abcde")
ALL = (A, B, C, D, E)
ENTRIES_MAX = 200


@attrs.define
class Asked:
    """A naive request: its answers, as counts of entries, and how many have come."""

    ask: AskRange
    answers: list[int]
    received_count: int = 0
    taken_count: int = 0

    @property
    def is_received(self) -> bool:
        return self.received_count == len(self.answers)


@attrs.define
class EndedRange:
    """A range that one replica gave whole."""

    answers_count: int = 0
    waits_count: int = 0
    is_judged: bool = True


class NaiveReader:
    """Takes all entries in order, and checks each request against the entries themselves."""

    def __init__(self, first: int, last: int, draw: st.DataObject) -> None:
        self.stripes = ReadStripes(EntryId(first), EntryId(last), entries_max=ENTRIES_MAX)
        self.last = last
        self.draw = draw
        self.good: Sequence[InstanceId] = ALL[:3]
        self.windows = dict.fromkeys(ALL, ANSWERS_MIN)
        self.asked: dict[int, Asked] = {}
        self.taken: list[int] = []
        self.log: dict[int, EndedRange] = {}
        self.ended: list[EndedRange] = []
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def number_of(self, name: str, low: int, high: int) -> int:
        return self.draw.draw(st.integers(low, high), label=name)

    def ask_due(self) -> None:
        for ask in self.stripes.due(self.good, self.windows.__getitem__):
            self.ask(ask)
        self.check()

    def ask(self, ask: AskRange) -> None:
        assert ask.instance in self.good
        assert 0 < ask.count <= ENTRIES_MAX
        assert ask.first + ask.count - 1 <= self.last
        if ask.number in self.log:
            self.log[ask.number].is_judged = False
        else:
            self.log[ask.number] = EndedRange()
            self.begins[ask.number] = ask.first
        # An open range that is requested again may reach further.
        end = ask.first + ask.count
        self.ends[ask.number] = max(self.ends.get(ask.number, 0), end)
        answers: list[int] = []
        while sum(answers) < ask.count and len(answers) < ask.answers_max:
            size = self.number_of("entries of an answer", 1, 12)
            answers.append(min(size, ask.count - sum(answers)))
        self.asked[ask.number] = Asked(ask, answers)

    def check(self) -> None:
        """Ranges are adjacent, in order, and within the bounds."""
        numbers = list(self.stripes.numbers)
        for number, following in pairwise(numbers):
            assert number < following
            assert self.ends[number] == self.begins[following]
        if numbers:
            assert self.begins[numbers[0]] <= self.stripes.next <= self.ends[numbers[0]]
        left = sum(
            asked.ask.answers_max - asked.taken_count
            for number, asked in self.asked.items()
            if number in numbers
        )
        assert left <= max(ANSWERS_MAX, len(numbers))
        assert self.stripes.width <= WIDTH_MAX

    def receive(self) -> None:
        """Some answers come."""
        for asked in self.asked.values():
            more = self.number_of("answers", 0, len(asked.answers) - asked.received_count)
            asked.received_count += more

    def take(self) -> None:
        """Take an answer of the head, waiting for it if it has not come."""
        number = self.stripes.head
        assert number is not None
        asked = self.asked[number]
        has_waited = asked.received_count <= asked.taken_count
        asked.received_count = max(asked.received_count, asked.taken_count + 1)
        self.log[number].answers_count += 1
        self.log[number].waits_count += has_waited
        self.give(number, asked, has_waited=has_waited)

    def give(self, number: int, asked: Asked, *, has_waited: bool) -> None:
        count = asked.answers[asked.taken_count]
        asked.taken_count += 1
        is_last = asked.taken_count == len(asked.answers)
        others = [one for each, one in self.asked.items() if each != number]
        self.taken += range(self.stripes.next, self.stripes.next + count)
        effects = self.stripes.on_answer(
            count,
            is_last=is_last,
            has_waited=has_waited,
            others_received=all(one.is_received for one in others),
        )
        if self.stripes.head != number:
            self.end(number)
        elif is_last:
            del self.asked[number]
        for effect in effects:
            assert effect == DropRange(number)
            del self.asked[number]
            self.log[number].is_judged = False

    def end(self, number: int) -> None:
        self.asked.pop(number, None)
        ended = self.log[number]
        if ended.is_judged:
            self.ended.append(ended)

    def overtake(self) -> None:
        """Another replica answers the question first, with one answer."""
        number = self.stripes.head
        assert number is not None
        loser = self.asked[number]
        left = sum(loser.answers[loser.taken_count :])
        winner = next(one for one in ALL if one != loser.ask.instance)
        count = min(left, self.number_of("entries of another", 1, 12))
        ask = attrs.evolve(loser.ask, instance=winner, answers_max=1)
        self.asked[number] = Asked(ask, [count], received_count=1)
        self.log[number].is_judged = False
        self.stripes.on_overtaken(winner)
        self.give(number, self.asked[number], has_waited=True)

    def fail(self) -> None:
        """The head's replica fails; sometimes the reader gets some entries otherwise."""
        number = self.stripes.head
        assert number is not None
        del self.asked[number]
        self.log[number].is_judged = False
        self.stripes.on_failed()
        if self.number_of("read otherwise", 0, 1):
            left = self.stripes.head_last - self.stripes.next + 1
            count = min(left, self.number_of("entries otherwise", 1, 30))
            self.taken += range(self.stripes.next, self.stripes.next + count)
            self.stripes.on_read(count)


def naive_width(ended: Sequence[EndedRange], available_count: int) -> int:
    """The width after these ranges, told from all of them."""
    width, needed, has_narrowed, limiting, idle = 1, IDLE_ROUNDS_MIN, False, 0, 0
    left = list(ended)
    while len(left) >= width:
        turn, left = left[:width], left[width:]
        is_limiting = any(
            one.waits_count == one.answers_count >= LIMITING_ANSWERS_MIN for one in turn
        )
        limiting = limiting + 1 if is_limiting else 0
        idle = 0 if any(one.waits_count for one in turn) else idle + 1
        if limiting >= LIMITING_ROUNDS and width < min(available_count, WIDTH_MAX):
            width, limiting = width + 1, 0
            needed = min(2 * needed, IDLE_ROUNDS_MAX) if has_narrowed else needed
            has_narrowed = False
        elif idle >= needed and width > 1:
            width, idle, has_narrowed = width - 1, 0, True
    return width


@given(st.integers(0, 5), st.integers(0, 600), st.data())
def test_every_entry_is_taken_once_and_in_order_whatever_replicas_do(
    first: int, count: int, data: st.DataObject
) -> None:
    reader = NaiveReader(first, first + count, data)
    acts = {"take": reader.take, "overtake": reader.overtake, "fail": reader.fail}
    while not reader.stripes.is_over:
        reader.ask_due()
        reader.receive()
        choices = st.sampled_from(["take"] * 12 + ["overtake", "fail", "good", "window"])
        match data.draw(choices, label="act"):
            case "good":
                reader.good = data.draw(
                    st.lists(st.sampled_from(ALL), min_size=1, unique=True), label="good"
                )
            case "window":
                reader.windows = {
                    one: reader.number_of("window", 1, ANSWERS_MAX) for one in ALL
                }
            case act:
                acts[act]()

    assert reader.taken == list(range(first, first + count + 1))
    assert not reader.stripes.numbers


@pytest.mark.long
@given(st.integers(1, 5), st.lists(st.booleans(), min_size=100, max_size=100), st.data())
def test_the_width_follows_from_the_ranges_that_were_taken(
    available_count: int, comes_late: list[bool], data: st.DataObject
) -> None:
    reader = NaiveReader(0, 5000, data)
    reader.good = ALL[:available_count]
    for is_late in comes_late:
        for _ in range(3):
            if reader.stripes.is_over:
                return
            reader.ask_due()
            if not is_late:
                for asked in reader.asked.values():
                    asked.received_count = len(asked.answers)
            reader.take()
        assert reader.stripes.width == naive_width(reader.ended, available_count)


# Single decisions.


def ask_all(stripes: ReadStripes, good: Sequence[InstanceId] = (A, B, C)) -> list[AskRange]:
    return stripes.due(good, lambda _: 8)


def take_range(stripes: ReadStripes, ask: AskRange, *, has_waited: bool) -> None:
    """Take a range in answers of ten entries, as many as were requested, or fewer."""
    left = min(ask.count, 10 * ask.answers_max)
    while left:
        count = min(10, left)
        left -= count
        stripes.on_answer(count, is_last=not left, has_waited=has_waited, others_received=False)


def limited(good: Sequence[InstanceId] = (A, B)) -> tuple[ReadStripes, list[AskRange]]:
    """Stripes over two replicas, and the first requests to both."""
    stripes = ReadStripes(EntryId(0), EntryId(1_000_000), entries_max=8192)
    for _ in range(LIMITING_ROUNDS):
        take_range(stripes, ask_all(stripes, good)[0], has_waited=True)
    return stripes, ask_all(stripes, good)


def test_one_replica_is_asked_while_the_reader_does_not_wait_for_it() -> None:
    stripes = ReadStripes(EntryId(0), EntryId(100_000), entries_max=8192)
    for number in range(1, 200):
        (ask,) = ask_all(stripes)
        assert (ask.number, ask.instance) == (number, A)
        take_range(stripes, ask, has_waited=False)


def test_a_replica_that_limits_is_joined_by_another_and_they_take_turns() -> None:
    stripes, asked = limited()
    assert [ask.instance for ask in asked] == [A, B]
    assert asked[0].first + asked[0].count == asked[1].first
    for turn in range(10):
        take_range(stripes, asked[turn], has_waited=turn % 2 == 0)
        asked += ask_all(stripes, (A, B))

    assert [ask.instance for ask in asked] == [A, B] * 6


def test_the_reader_sticks_to_its_replica_while_it_is_good() -> None:
    stripes = ReadStripes(EntryId(0), EntryId(100_000), entries_max=8192)
    asked: list[InstanceId] = []
    for good in ((B, A), (A, B), (A, B), (A, C), (C, A), (B, C)):
        (ask,) = ask_all(stripes, good)
        asked.append(ask.instance)
        take_range(stripes, ask, has_waited=False)

    assert asked == [B, B, B, A, A, B]


def test_one_replica_suffices_again_once_the_reader_does_not_wait() -> None:
    stripes, asked = limited()
    rounds = 0
    while stripes.width == 2:
        take_range(stripes, asked.pop(0), has_waited=False)
        asked += ask_all(stripes, (A, B))
        rounds += 1
    assert rounds == 2 * IDLE_ROUNDS_MIN
    take_range(stripes, asked.pop(0), has_waited=False)

    assert [ask.instance for ask in ask_all(stripes, (A, B))] == [A]


def test_an_attempt_with_one_replica_that_was_wrong_takes_twice_as_long_the_next_time() -> None:
    stripes, asked = limited()
    lengths = []
    for _ in range(3):
        ranges_count = 0
        while stripes.width == 2:
            take_range(stripes, asked.pop(0), has_waited=False)
            asked += ask_all(stripes, (A, B))
            ranges_count += 1
        while stripes.width == 1:
            take_range(stripes, asked.pop(0), has_waited=True)
            asked += ask_all(stripes, (A, B))
        lengths.append(ranges_count)

    assert lengths == [2 * IDLE_ROUNDS_MIN * 2**turn for turn in range(3)]


def test_a_replica_that_is_behind_gives_the_rest_of_its_range_away() -> None:
    stripes, (head, _) = limited()
    (dropped,) = stripes.on_answer(10, is_last=False, has_waited=True, others_received=True)
    asked = ask_all(stripes, (A, B))

    assert dropped == DropRange(head.number)
    assert [(ask.number, ask.instance) for ask in asked] == [(head.number, B)]
    assert (asked[0].first, asked[0].count) == (head.first + 10, head.count - 10)
    take_range(stripes, asked[0], has_waited=True)
    assert all(ask.instance == B for ask in ask_all(stripes, (A, B)))


def test_a_replica_that_was_behind_is_asked_again_after_a_while() -> None:
    stripes, asked = limited()
    stripes.on_answer(10, is_last=False, has_waited=True, others_received=True)
    asked[:1] = ask_all(stripes, (A, B))
    while all(ask.instance == B for ask in asked):
        take_range(stripes, asked.pop(0), has_waited=True)
        asked += ask_all(stripes, (A, B))

    assert asked[-1].number > ASIDE_RANGES


def test_a_replica_that_has_given_most_of_its_range_may_finish_it() -> None:
    stripes, (head, _) = limited()
    half = head.count // 2
    stripes.on_answer(half, is_last=False, has_waited=False, others_received=True)

    assert not stripes.on_answer(1, is_last=False, has_waited=True, others_received=True)


def test_answers_in_flight_are_bounded_in_total() -> None:
    stripes, _ = limited()
    asked = stripes.due((A, B, C), lambda _: ANSWERS_MAX)
    assert not asked, "both replicas have a range"
    wide = ReadStripes(EntryId(0), EntryId(1_000_000), entries_max=8192)
    in_flight: list[AskRange] = []
    for _ in range(60):
        in_flight += wide.due(ALL, lambda _: ANSWERS_MAX)
        assert sum(ask.answers_max for ask in in_flight) <= ANSWERS_MAX
        take_range(wide, in_flight.pop(0), has_waited=True)

    assert wide.width == WIDTH_MAX
