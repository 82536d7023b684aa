"""Merged intervals against a plain set."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from regions.storage.protocol.intervals import IntervalSet

drawn_intervals = st.tuples(st.integers(0, 60), st.integers(0, 8)).map(
    lambda drawn: (drawn[0], sum(drawn))
)


@given(st.lists(drawn_intervals))
def test_an_interval_set_holds_what_a_set_holds(added: list[tuple[int, int]]) -> None:
    naive: set[int] = set()
    numbers = IntervalSet()
    for first, last in added:
        naive.update(range(first, last + 1))
        numbers.add(first, last)

        assert [number for number in range(-1, 80) if number in numbers] == sorted(naive)
        assert numbers.numbers_count == len(naive)


@given(st.lists(drawn_intervals), st.lists(drawn_intervals))
def test_intervals_that_touch_are_one_whatever_the_order(
    added: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    numbers = IntervalSet(added)
    numbers.update(IntervalSet(more))

    assert numbers == IntervalSet([*more, *added])
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(numbers))
    assert numbers.intervals_count == len(list(numbers))


def test_numbers_in_order_are_one_interval() -> None:
    numbers = IntervalSet()
    for number in range(1, 1000):
        numbers.add(number)

    assert list(numbers) == [(1, 999)]


@given(st.lists(drawn_intervals), drawn_intervals)
def test_the_missing_numbers_in_a_range_are_those_not_held(
    added: list[tuple[int, int]], between: tuple[int, int]
) -> None:
    numbers = IntervalSet(added)
    first, last = between

    missing = list(numbers.missing(first, last))

    assert [number for low, high in missing for number in range(low, high + 1)] == [
        number for number in range(first, last + 1) if number not in numbers
    ]
