"""How a batch read is divided, against a model that knows every record."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.read_ranges import RANGES_MAX, SequenceSpan, divide_spans


@st.composite
def spans(draw: st.DrawFn) -> list[SequenceSpan]:
    lengths = draw(st.lists(st.integers(0, 40), max_size=6))
    firsts = [draw(st.integers(0, 1000)) for _ in lengths]
    return [
        SequenceSpan("shop/orders", number, first, first + length)
        for number, (first, length) in enumerate(zip(firsts, lengths, strict=True))
    ]


def records_of(ranges: list[SequenceSpan]) -> list[tuple[int, int]]:
    return [(one.partition, number) for one in ranges for number in range(one.first, one.end)]


@given(spans(), st.integers(1, 60))
def test_each_record_is_in_one_range_and_in_order(
    given_spans: list[SequenceSpan], ranges_min: int
) -> None:
    assert records_of(divide_spans(given_spans, ranges_min)) == records_of(given_spans)


@given(spans(), st.integers(1, 60))
def test_there_are_as_many_ranges_as_wanted_or_as_records(
    given_spans: list[SequenceSpan], ranges_min: int
) -> None:
    filled = sum(len(span) > 0 for span in given_spans)

    ranges = divide_spans(given_spans, ranges_min)

    assert all(len(one) > 0 for one in ranges)
    assert len(ranges) == max(filled, min(ranges_min, len(records_of(given_spans))))


@given(spans(), st.integers(1, 60))
def test_no_other_division_has_a_shorter_longest_range(
    given_spans: list[SequenceSpan], ranges_min: int
) -> None:
    ranges = divide_spans(given_spans, ranges_min)
    longest = max(map(len, ranges), default=0)

    # Any division with shorter ranges needs more of them.
    if longest > 1:
        needed = sum(-(-len(span) // (longest - 1)) for span in given_spans)
        assert needed > len(ranges)


def test_ranges_do_not_grow_with_records() -> None:
    [one, *others] = divide_spans([SequenceSpan("a/b", 0, 0, 10**15)], 7)

    assert len(others) == 6
    assert all(before.end == after.first for before, after in pairwise([one, *others]))


def test_the_number_of_ranges_is_bounded() -> None:
    assert len(divide_spans([SequenceSpan("a/b", 0, 0, 10**9)], 10**9)) == RANGES_MAX
