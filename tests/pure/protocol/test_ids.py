"""Where a record lives, as text and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import DLSN, Position
from topology.errors import InvalidArgumentError

parts = st.integers(0, (1 << 63) - 1)
dlsns = st.builds(DLSN, st.integers(1, (1 << 63) - 1), parts, parts)


@given(dlsns)
def test_a_dlsn_is_read_from_either_of_its_texts(dlsn: DLSN) -> None:
    assert DLSN.parse(str(dlsn)) == dlsn
    assert DLSN.parse(dlsn.sortable()) == dlsn


@given(dlsns, dlsns)
def test_sortable_texts_are_in_the_order_of_the_log(one: DLSN, other: DLSN) -> None:
    assert (one.sortable() < other.sortable()) == (one < other)


@given(st.lists(dlsns))
def test_dlsns_are_ordered_by_segment_then_entry_then_slot(found: list[DLSN]) -> None:
    in_order = sorted(found)

    assert in_order == sorted(found, key=lambda one: (one.segment, one.entry, one.slot))


def test_a_dlsn_is_written_plain_and_sortable() -> None:
    dlsn = DLSN(12, 0, 7)

    assert str(dlsn) == "12-0-7"
    assert dlsn.sortable() == ("0000000000000000012-0000000000000000000-0000000000000000007")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1-0",
        "1-0-",
        "1-0-0-0",
        "0-0-0",
        "-1-0-0",
        "1--1-0",
        "+1-0-0",
        " 1-0-0",
        "1-0-0\n",
        "1_0-0-0",
        "1-0-0x",
        "a-b-c",
        "١-0-0",
        "1.0-0-0",
        "00000000000000000001-0-0",
        "9223372036854775808-0-0",
        "1-0-9999999999999999999",
    ],
)
def test_what_is_no_dlsn_is_refused_and_shown(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a DLSN") as refused:
        DLSN.parse(text)

    assert repr(text) in str(refused.value)


def test_positions_are_ordered_by_home_epoch_first() -> None:
    assert Position(1, 900) < Position(2, 5) < Position(2, 6)
    assert str(Position(2, 5)) == "5@2"
