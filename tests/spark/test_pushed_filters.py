"""No filter that is pushed down loses a row that the query wants."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from geolog.protocol.read_ranges import SequenceSpan
from geolog.spark.pushed_filters import PushedFilters, pushed_filters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBERS = st.integers(0, 2)
KEYS = st.sampled_from([b"", b"a", b"b"])


def value_of(name: str, number: int) -> object:
    return EPOCH + timedelta(microseconds=number) if name == "timestamp" else number


def number_of(value: object) -> int:
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    assert isinstance(value, int)
    return value


def in_any(attribute: tuple[str], values: object) -> Filter:
    assert isinstance(values, tuple)
    return In(attribute, values)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(["partition", "sequence", "timestamp", "key", "value"]))
    values: tuple[object, ...]
    kinds: list[Callable[[tuple[str], object], Filter]]
    if name in {"key", "value"}:
        values = tuple(draw(st.lists(KEYS | st.none(), min_size=1, max_size=3)))
        kinds = [in_any, EqualTo, EqualNullSafe]
    else:
        numbers = draw(st.lists(NUMBERS, min_size=1, max_size=3))
        values = tuple(value_of(name, one) for one in numbers)
        kinds = [in_any, EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    kind = draw(st.sampled_from(kinds))
    made = kind((name,), values if kind is in_any else values[0])
    return Not(made) if draw(st.integers(0, 3)) == 0 else made


def holds(one: Filter, row: dict[str, object]) -> bool:
    """The filter by SQL's rules: only <=> is true of null."""
    match one:
        case Not(child=child):
            return not holds(child, row)
        case EqualNullSafe(attribute=(name,), value=value):
            return bool(row[name] == value)
        case In(attribute=(name,), value=values):
            return row[name] is not None and row[name] in values
        case EqualTo(attribute=(name,), value=value):
            return row[name] is not None and bool(row[name] == value)
        case GreaterThan(attribute=(name,), value=value):
            return number_of(row[name]) > number_of(value)
        case GreaterThanOrEqual(attribute=(name,), value=value):
            return number_of(row[name]) >= number_of(value)
        case LessThan(attribute=(name,), value=value):
            return number_of(row[name]) < number_of(value)
        case LessThanOrEqual(attribute=(name,), value=value):
            return number_of(row[name]) <= number_of(value)
    raise AssertionError(one)


@settings(max_examples=1000)
@given(st.lists(filters(), min_size=1, max_size=2), NUMBERS, NUMBERS, NUMBERS, st.none() | KEYS)
def test_no_row_that_is_wanted_is_left_out(
    given_filters: list[Filter], partition: int, sequence: int, time_us: int, key: bytes | None
) -> None:
    row = {
        "partition": partition,
        "sequence": sequence,
        "timestamp": value_of("timestamp", time_us),
        "key": key,
        "value": b"a",
    }
    pushed = pushed_filters(given_filters, PushedFilters())
    spans = pushed.narrowed_spans(
        [SequenceSpan("shop/orders", partition, sequence, sequence + 1)]
    )
    is_read = (
        any(len(span) for span in spans)
        and time_us in pushed.timestamp_us
        and (pushed.keys is None or key in pushed.keys)
    )

    assert is_read or not all(holds(one, row) for one in given_filters)


def test_partitions_and_sequences_narrow_the_plan() -> None:
    wanted = [
        EqualTo(("partition",), 1),
        GreaterThan(("sequence",), 4),
        LessThan(("sequence",), 9),
    ]
    spans = [SequenceSpan("shop/orders", number, 0, 100) for number in range(3)]

    narrowed = pushed_filters(wanted, PushedFilters()).narrowed_spans(spans)

    assert narrowed == [SequenceSpan("shop/orders", 1, 5, 9)]


def test_a_key_that_is_null_is_left_to_spark() -> None:
    for wanted in (EqualNullSafe(("key",), None), In(("key",), (None, b"a"))):
        assert pushed_filters([wanted], PushedFilters()).keys is None


def test_keys_of_the_query_are_looked_for_among_those_of_the_option() -> None:
    given_keys = PushedFilters(keys=frozenset([b"a", b"b"]))

    found = pushed_filters([In(("key",), (b"b", b"c"))], given_keys)

    assert found.keys == frozenset([b"b"])
