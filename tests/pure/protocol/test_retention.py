"""What a retention lets go: whole segments, never the last, never too much."""

from itertools import accumulate

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.retention import RetentionPolicy
from geolog.protocol.stream_state import SegmentRecord

DAY_US = 86400 * 10**6
NOW_US = 40 * DAY_US


def segments_of(sizes_and_days: list[tuple[int, int]]) -> list[SegmentRecord]:
    """Segments of ten records, oldest first; each day is when its last record came."""
    sizes = [size for size, _ in sizes_and_days]
    return [
        SegmentRecord(
            segment=number,
            ledger=LedgerId(number),
            home_epoch=1,
            first_sequence=Sequence(10 * number),
            owner_epoch=Epoch(1),
            activated_us=0,
            size_bytes_before=before,
        ).completed(
            last_entry=EntryId(9),
            last_sequence=Sequence(10 * number + 9),
            last_append_time_us=day * DAY_US,
            last_transaction_id=None,
            size_bytes_through=before + size,
        )
        for number, ((size, day), before) in enumerate(
            zip(sizes_and_days, accumulate(sizes, initial=0), strict=False), 1
        )
    ]


def going(policy: RetentionPolicy, segments: list[SegmentRecord]) -> list[bool]:
    return [policy.goes(one, last=segments[-1], now_us=NOW_US) for one in segments]


def test_without_a_limit_all_is_kept() -> None:
    assert RetentionPolicy().keeps_all
    assert not any(going(RetentionPolicy(), segments_of([(10, 0)] * 3)))


def test_the_last_segment_stays_however_old() -> None:
    assert going(RetentionPolicy(retention_s=1.0), segments_of([(10, 0)] * 2)) == [True, False]


def test_what_is_in_an_open_segment_does_not_count_before_it_is_completed() -> None:
    policy = RetentionPolicy(retention_bytes=20)
    *before, last = segments_of([(10, 0)] * 3)
    is_open = attrs.evolve(last, last_entry=None, last_sequence=None, size_bytes=None)

    assert going(policy, [*before, last]) == [True, False, False]
    assert going(policy, [*before, is_open]) == [False, False, False]


days_and_sizes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 30)), min_size=1, max_size=12
).map(
    lambda found: [
        (size, day) for (size, _), day in zip(found, sorted(d for _, d in found), strict=True)
    ]
)


@given(days_and_sizes, st.none() | st.integers(1, 30), st.none() | st.integers(1, 300))
def test_what_goes_is_what_a_look_at_every_segment_says(
    drawn: list[tuple[int, int]], days: int | None, kept_bytes: int | None
) -> None:
    policy = RetentionPolicy(
        retention_s=None if days is None else days * 86400.0, retention_bytes=kept_bytes
    )
    naive = [
        place < len(drawn) - 1
        and (
            (days is not None and day * DAY_US < NOW_US - days * DAY_US)
            or (
                kept_bytes is not None
                and sum(size for size, _ in drawn[place + 1 :]) >= kept_bytes
            )
        )
        for place, (_, day) in enumerate(drawn)
    ]

    assert going(policy, segments_of(drawn)) == naive
    assert naive == sorted(naive, reverse=True), "what goes is not the front"
