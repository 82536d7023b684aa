"""A set of whole numbers as merged intervals: small as long as the numbers are close together.

Ids of deleted ledgers and of retired files are kept for ever, because they are never used
again. They are assigned in order, so that after a while they form few intervals.

Rules: PROTOCOL J14.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """Numbers can be added, never taken away.

    Invariant: the intervals are sorted, and between two of them at least one number is missing.
    """

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.update(intervals)

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # It changes.

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """First and last number of each interval, in order."""
        return iter(zip(self._firsts, self._lasts, strict=True))

    @property
    def intervals_count(self) -> int:
        """Number of intervals: what the set costs in memory and in a table."""
        return len(self._firsts)

    @property
    def numbers_count(self) -> int:
        """Number of members of the set."""
        return sum(last - first + 1 for first, last in self)

    def missing(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The intervals of numbers from `first` to `last` that are not in the set."""
        for low, high in self:
            if low > last:
                break
            if first < low:
                yield first, low - 1
            first = max(first, high + 1)
        if first <= last:
            yield first, last

    def add(self, first: int, last: int | None = None) -> None:
        """Add one number, or all from `first` to `last`."""
        last = first if last is None else last
        assert first <= last, f"{first} to {last} is not an interval"
        # All that overlap or touch the new interval are merged with it.
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def update(self, intervals: Iterable[tuple[int, int]]) -> None:
        """Add all numbers of these intervals."""
        for first, last in intervals:
            self.add(first, last)
