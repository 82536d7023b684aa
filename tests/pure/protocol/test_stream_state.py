"""Stream names, the logs of a stream, and segments that are completed once."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.stream_state import (
    OwnerRecord,
    SegmentRecord,
    StreamMode,
    StreamName,
    StreamRecord,
    TrimRecord,
)
from tests.pure.topology.notation import quorum_of
from topology.errors import InvalidArgumentError
from topology.stream_policy import PlacementTerms


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


def relayed_stream() -> StreamRecord:
    return StreamRecord(
        name=StreamName("shop", "carts"),
        mode=StreamMode.REGIONAL,
        quorum=quorum_of("3/3/2 m1"),
        segment_bytes=1 << 20,
        created_us=5,
        life="a",
        placement=PlacementTerms(region="us-east"),
        relay_to=("ap-northeast", "eu-west"),
    )


def test_each_region_keeps_its_log_when_the_home_moves() -> None:
    before = relayed_stream()
    moved = attrs.evolve(
        before,
        origin="us-east",
        home_epoch=2,
        placement=attrs.evolve(before.placement, region="eu-west"),
        relay_to=("ap-northeast", "us-east"),
    )

    assert [str(one) for one in before.log_names()] == [
        "shop/carts#0",
        "shop/carts#0@ap-northeast",
        "shop/carts#0@eu-west",
    ]
    assert [str(one) for one in moved.log_names()] == [
        "shop/carts#0@eu-west",
        "shop/carts#0@ap-northeast",
        "shop/carts#0",
    ]
    for region in ("us-east", "eu-west", "ap-northeast"):
        log = moved.log_in(region, 0)
        assert log == before.log_in(region, 0)
        assert moved.region_of(log) == before.region_of(log) == region
        assert moved.placement_of(log).region == region
        assert before.is_mirror(log) == (region != "us-east")
        assert moved.is_mirror(log) == (region != "eu-west")


def test_an_owner_of_a_version_without_leases_may_answer_always() -> None:
    """It is told of in a failover, and so is one that was taken over and is not fenced yet."""
    old = OwnerRecord(epoch=Epoch(3), owner="w", presence="/p")
    following = old.claimed(owner="v", presence="/q", claim_id="c", lease_s=2.0)
    fenced = following.activated(4, outlived_s=0.0)
    has_left = attrs.evolve(old, presence="")

    assert old.may_answer_always
    assert following.may_answer_always
    assert (fenced.may_answer_always, fenced.lease_longest_s) == (False, 2.0)
    assert (has_left.may_answer_always, has_left.lease_longest_s) == (False, 0.0)
    assert not OwnerRecord().may_answer_always


@pytest.mark.parametrize(
    ("to", "by_retention", "by_truncation"),
    [
        (1, (5, 2), (5, 2)),  # It was truncated beyond that before.
        (4, (5, 2), (5, 4)),
        (5, (5, 2), (5, None)),
        (6, (6, None), (6, None)),
    ],
)
def test_a_truncation_of_a_home_that_lacks_older_records_reaches_them_in_mirrors(
    to: int, by_retention: tuple[int, int | None], by_truncation: tuple[int, int | None]
) -> None:
    begun = TrimRecord(first_sequence=Sequence(5), lacks_from=Sequence(2))

    retained = begun.raised(Sequence(to))
    truncated = begun.raised(Sequence(max(to, 5)), older_before=Sequence(to))

    assert (retained.first_sequence, retained.lacks_from) == by_retention
    assert (truncated.first_sequence, truncated.lacks_from) == by_truncation
