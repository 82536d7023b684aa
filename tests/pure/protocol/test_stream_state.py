"""Stream names, and segments that are completed once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.stream_state import SegmentRecord, StreamName
from topology.errors import InvalidArgumentError


def segment() -> SegmentRecord:
    return SegmentRecord(
        segment=3,
        ledger=LedgerId(9),
        home_epoch=1,
        first_sequence=Sequence(100),
        owner_epoch=Epoch(2),
        activated_us=5,
    )


def completed(record: SegmentRecord, last_entry: int, last_sequence: int) -> SegmentRecord:
    return record.completed(
        last_entry=EntryId(last_entry),
        last_sequence=Sequence(last_sequence),
        last_transaction_id=None,
        last_append_time_us=7,
        completed_us=7,
        size_bytes_through=10,
    )


@pytest.mark.parametrize("text", ["shop/orders", "0/0", "a.b-c_d/e.f", f"{'n' * 128}/x"])
def test_a_name_reads_back_as_it_was_written(text: str) -> None:
    assert str(StreamName.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("shop/Orders", "did you mean 'orders'"),
        ("My Shop/orders", "'My Shop' is not a name.*did you mean 'my-shop'"),
        ("shop/.hidden", "did you mean 'hidden'"),
        ("shop/a+b=c", "did you mean 'a-b-c'"),
        ("shop/" + "x" * 129, "did you mean '" + "x" * 128 + "'"),
        ("shop/größe\n", "did you mean 'gr-e-'"),
    ],
)
def test_a_bad_name_is_refused_with_the_nearest_good_one(text: str, nearest: str) -> None:
    with pytest.raises(InvalidArgumentError, match=nearest):
        StreamName.parse(text)


@pytest.mark.parametrize("text", ["shop/", "/orders", "shop/..", "shop/é"])
def test_no_name_is_offered_if_nothing_of_the_bad_one_can_be_kept(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"starting with a letter or digit$"):
        StreamName.parse(text)


@pytest.mark.parametrize("text", ["", "orders", "a/b/c", "shop/orders/"])
def test_a_name_has_two_parts(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not named NAMESPACE/NAME"):
        StreamName.parse(text)


@given(st.text(min_size=1, max_size=150).filter(lambda part: "/" not in part))
def test_an_offered_name_is_always_valid(part: str) -> None:
    try:
        StreamName.parse(f"shop/{part}")
    except InvalidArgumentError as refusal:
        _rest, _nearest, offered = str(refusal).rpartition("did you mean ")
        if _nearest:
            StreamName.parse("shop/" + offered.removesuffix("?").strip("'"))


def test_an_empty_segment_ends_below_its_first_sequence() -> None:
    ended = completed(segment(), -1, 99)

    assert ended.is_completed
    assert ended.last_sequence == ended.first_sequence - 1


def test_a_segment_is_completed_once_and_never_before_it_begins() -> None:
    with pytest.raises(AssertionError, match="segment 3 is completed already"):
        completed(completed(segment(), 4, 140), 4, 140)
    with pytest.raises(AssertionError):
        completed(segment(), 4, 98)
