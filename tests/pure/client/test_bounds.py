"""Bounds of a read as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.client.reading.bounds import (
    EARLIEST,
    LATEST,
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
    LastRecords,
    bound_text,
    check_order,
    parse_bound,
)
from geolog.protocol.ids import DLSN
from topology.errors import InvalidArgumentError

NOW_US = 1_700_000_000_000_000

NUMBERS = st.integers(0, 10**15)
BOUNDS: st.SearchStrategy[Bound] = st.one_of(
    st.sampled_from([EARLIEST, LATEST]),
    st.builds(LastRecords, NUMBERS),
    st.builds(AtSequence, NUMBERS, st.integers(1, 9)),
    st.builds(AtTransaction, NUMBERS),
    st.builds(AtTime, st.integers(0, 10**16)),
    st.builds(AtDlsn, st.builds(DLSN, st.integers(1, 99), st.integers(0, 99), st.just(0))),
)


def parsed(text: str) -> Bound:
    return parse_bound(text, now_us=lambda: NOW_US)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("last:0", LastRecords(0)),
        ("last:10", LastRecords(10)),
        ("sequence:7", AtSequence(7)),
        ("sequence:7@3", AtSequence(7, 3)),
        ("txid:9223372036854775807", AtTransaction((1 << 63) - 1)),
        ("txid:-5", AtTransaction(-5)),
        ("1-2-3", AtDlsn(DLSN(1, 2, 3))),
        (DLSN(1, 2, 3).sortable(), AtDlsn(DLSN(1, 2, 3))),
        ("time:2023-11-14T22:13:20Z", AtTime(NOW_US)),
        ("time:2023-11-14T22:13:20", AtTime(NOW_US)),
        ("time:2023-11-15T00:13:20+02:00", AtTime(NOW_US)),
        ("time:2023-11-14T22:13:20.000001Z", AtTime(NOW_US + 1)),
        ("time:2023-11-14T22:13:20.000003Z", AtTime(NOW_US + 3)),
        ("time:0001-01-01T00:00:00+14:00", AtTime(-62_135_647_200_000_000)),
        ("time:-1h", AtTime(NOW_US - 3_600_000_000)),
        ("time:-1.5s", AtTime(NOW_US - 1_500_000)),
        ("time:-10ms", AtTime(NOW_US - 10_000)),
        ("time:-2d", AtTime(NOW_US - 2 * 86_400_000_000)),
        ("-1h", AtTime(NOW_US - 3_600_000_000)),
    ],
)
def test_each_form_is_parsed(text: str, bound: Bound) -> None:
    assert parsed(text) == bound


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "earliest:",
        "latest:1",
        "last:",
        "last:-1",
        "last:ten",
        "last:\u0661",
        "last:" + "9" * 5000,
        "sequence:",
        "sequence:1@",
        "sequence:1@x",
        "txid:1.5",
        "txid:--5",
        "1-2",
        "0-0-0",
        "1-2-3-4",
        "time:",
        "time:yesterday",
        "time:-1",
        "time:-1w",
        "time:-" + "9" * 400 + "d",
        "dlsn:1-2-3",
    ],
)
def test_invalid_text_is_refused_with_the_forms_or_the_wrong_part(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parsed(text)


@pytest.mark.parametrize("bound", [AtTransaction(-5), AtSequence(7, 3), AtTime(NOW_US + 1)])
def test_a_bound_is_written_as_it_is_parsed(bound: Bound) -> None:
    assert parsed(bound_text(bound)) == bound


def test_ages_beyond_the_calendar_are_ordered_like_others() -> None:
    """No date can express an age that old; the earliest date stands for it."""
    with pytest.raises(InvalidArgumentError, match="cannot end at time:0001-01-01"):
        check_order(parsed("time:-1h"), parsed("time:-999999999999d"))


@given(BOUNDS)
def test_a_bound_survives_a_round_trip_through_text(place: Bound) -> None:
    assert parsed(bound_text(place)) == place


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        ("sequence:50", "sequence:40"),
        ("3-0-0", "2-9-9"),
        ("last:5", "last:9"),
        ("latest", "last:1"),
        ("time:-1m", "time:-1h"),
        ("txid:9", "txid:8"),
        ("sequence:1", "earliest"),
    ],
)
def test_a_stop_before_the_start_is_refused_and_both_are_named(start: str, stop: str) -> None:
    with pytest.raises(InvalidArgumentError, match="swap the two"):
        check_order(parsed(start), parsed(stop))


@pytest.mark.parametrize(
    ("start", "stop"),
    [("sequence:4", "sequence:4"), ("earliest", "earliest"), ("last:9", "last:5")],
)
def test_a_stop_at_or_after_the_start_is_accepted(start: str, stop: str) -> None:
    check_order(parsed(start), parsed(stop))
