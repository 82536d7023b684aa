"""Filters of a query that Spark pushes down to the source, as far as they save work.

Spark tests every row again, so a filter that is not understood costs time and nothing else.
Partitions and sequences narrow the plan. A batch has one append time, so a batch outside the
times asked for is left out as a whole. Keys are compared in the task, before rows go to Spark.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import attrs
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from geolog.protocol.read_ranges import SequenceSpan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@attrs.frozen
class Interval:
    """Whole numbers from `low` to `high`, both included; None: no bound."""

    low: int | None = None
    high: int | None = None

    def narrowed(self, low: int | None, high: int | None) -> "Interval":
        """The numbers that are in this interval and between these bounds."""
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def __contains__(self, number: int) -> bool:
        return (self.low is None or self.low <= number) and (
            self.high is None or number <= self.high
        )


@attrs.frozen(kw_only=True)
class PushedFilters:
    """The rows that a query may want; rows that it does not want may be among them."""

    partition: Interval = Interval()
    sequence: Interval = Interval()
    timestamp_us: Interval = Interval()
    keys: frozenset[bytes] | None = None
    """The keys asked for; None: any, and records without one."""

    def narrowed_spans(self, spans: Iterable[SequenceSpan]) -> list[SequenceSpan]:
        """The parts of spans that may have such rows."""
        low, high = self.sequence.low, self.sequence.high
        return [
            attrs.evolve(
                span,
                first=span.first if low is None else max(span.first, low),
                end=span.end if high is None else min(span.end, high + 1),
            )
            for span in spans
            if span.partition in self.partition
        ]


def pushed_filters(filters: Sequence[Filter], given: PushedFilters) -> PushedFilters:
    """Understand the filters of a query: a row that it wants passes them all, and `given`."""
    pushed = given
    for one in filters:
        pushed = _with(pushed, one)
    return pushed


def _with(pushed: PushedFilters, one: Filter) -> PushedFilters:
    match one:
        case (
            EqualTo(attribute=(name,), value=value)
            | EqualNullSafe(attribute=(name,), value=value)
        ):
            return _among(pushed, name, (value,))
        case In(attribute=(name,), value=values):
            return _among(pushed, name, values)
        case GreaterThanOrEqual(attribute=(name,), value=value):
            return _between(pushed, name, _number(value), None)
        case GreaterThan(attribute=(name,), value=value):
            return _between(pushed, name, _next(value, 1), None)
        case LessThanOrEqual(attribute=(name,), value=value):
            return _between(pushed, name, None, _number(value))
        case LessThan(attribute=(name,), value=value):
            return _between(pushed, name, None, _next(value, -1))
    return pushed


def _among(pushed: PushedFilters, name: str, values: Iterable[object]) -> PushedFilters:
    given = list(values)
    if name == "key":
        keys = frozenset(bytes(key) for key in given if isinstance(key, bytes | bytearray))
        if len(keys) < len(set(map(repr, given))):
            return pushed  # A key that is null or of another type is left to Spark.
        return attrs.evolve(pushed, keys=keys if pushed.keys is None else keys & pushed.keys)
    numbers = [number for value in given if (number := _number(value)) is not None]
    if not numbers or len(numbers) < len(given):
        return pushed
    return _between(pushed, name, min(numbers), max(numbers))


def _between(
    pushed: PushedFilters, name: str, low: int | None, high: int | None
) -> PushedFilters:
    match name:
        case "partition":
            return attrs.evolve(pushed, partition=pushed.partition.narrowed(low, high))
        case "sequence":
            return attrs.evolve(pushed, sequence=pushed.sequence.narrowed(low, high))
        case "timestamp":
            return attrs.evolve(pushed, timestamp_us=pushed.timestamp_us.narrowed(low, high))
    return pushed


def _number(value: object) -> int | None:
    """A number as it is, a time in microseconds since 1970; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MICROSECOND
    return None


def _next(value: object, step: int) -> int | None:
    number = _number(value)
    return None if number is None else number + step
