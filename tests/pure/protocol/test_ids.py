"""Positions: their order, and their text forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import DLSN, Position
from topology.errors import InvalidArgumentError

NUMBERS = st.integers(0, 2**63 - 1) | st.integers(0, 20)
DLSNS = st.builds(DLSN, st.integers(1, 2**63 - 1) | st.integers(1, 20), NUMBERS, NUMBERS)


@given(DLSNS)
def test_a_dlsn_reads_back_from_both_its_forms(dlsn: DLSN) -> None:
    assert DLSN.parse(str(dlsn)) == dlsn
    assert DLSN.parse(dlsn.sortable()) == dlsn


@given(DLSNS, DLSNS)
def test_sortable_text_is_in_log_order(one: DLSN, other: DLSN) -> None:
    assert (one < other) == (one.sortable() < other.sortable())
    assert (one < other) == (
        (one.segment, one.entry, one.slot) < (other.segment, other.entry, other.slot)
    )


def test_the_largest_dlsn_can_be_parsed() -> None:
    largest = 2**63 - 1

    assert DLSN.parse(f"{largest}-{largest}-{largest}") == DLSN(largest, largest, largest)


def test_a_dlsn_prints_plain_and_sortable() -> None:
    dlsn = DLSN.parse("3-14-0")

    assert str(dlsn) == "3-14-0"
    assert dlsn.sortable() == "0000000000000000003-0000000000000000014-0000000000000000000"


@pytest.mark.parametrize(
    "text",
    ["", "1", "1-0", "1-0-0-0", "0-0-0", "1--", "-0-0", "1-0-", "1--1-0", "a-0-0", "1-0-0\n",
     " 1-0-0", "١-0-0", "1-0-+0", f"{2**63}-0-0", f"1-{2**63}-0", "00000000000000000001-0-0"],
)  # fmt: skip
def test_a_text_that_is_not_a_dlsn_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="write SEGMENT-ENTRY-SLOT"):
        DLSN.parse(text)


@given(st.text("0123456789-", max_size=12))
def test_any_text_is_a_dlsn_or_is_refused(text: str) -> None:
    try:
        dlsn = DLSN.parse(text)
    except InvalidArgumentError:
        return

    assert [dlsn.segment, dlsn.entry, dlsn.slot] == [int(part) for part in text.split("-")]


def test_a_later_home_epoch_is_a_later_position_whatever_the_sequence() -> None:
    assert Position(1, 900) < Position(2, 5)
    assert str(Position(2, 5)) == "5@2"
