"""Where a read starts and stops, as text and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.client.bounds import (
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

NUMBERS = st.integers(0, 10**15)
BOUNDS: st.SearchStrategy[Bound] = st.one_of(
    st.sampled_from([EARLIEST, LATEST]),
    st.builds(LastRecords, NUMBERS),
    st.builds(AtSequence, NUMBERS, st.integers(1, 9)),
    st.builds(AtTransaction, NUMBERS),
    st.builds(AtTime, st.integers(0, 10**16)),
    st.builds(AtDlsn, st.builds(DLSN, st.integers(1, 99), st.integers(0, 99), st.just(0))),
)


def bound(text: str) -> Bound:
    return parse_bound(text, now_us=lambda: 10**15)


@given(BOUNDS)
def test_a_place_as_text_reads_back_equal(place: Bound) -> None:
    assert bound(bound_text(place)) == place


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
    with pytest.raises(InvalidArgumentError, match="exchange the two"):
        check_order(bound(start), bound(stop))


@pytest.mark.parametrize(
    ("start", "stop"),
    [("sequence:4", "sequence:4"), ("earliest", "earliest"), ("last:9", "last:5")],
)
def test_a_stop_at_or_behind_the_start_is_none_of_that(start: str, stop: str) -> None:
    check_order(bound(start), bound(stop))
