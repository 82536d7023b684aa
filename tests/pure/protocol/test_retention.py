"""What a retention lets go: whole segments, never the last, never too much."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Sequence
from geolog.protocol.retention import RetainedSegment, RetentionPolicy

DAY_US = 86400 * 10**6


def segments_of(sizes_and_days: list[tuple[int, int]]) -> list[RetainedSegment]:
    """Segments of ten records, newest first; each day is when its last record came."""
    found = [
        RetainedSegment(
            activated_us=0,
            last_sequence=Sequence(10 * number + 9),
            last_append_time_us=day * DAY_US,
            size_bytes=size,
        )
        for number, (size, day) in enumerate(sizes_and_days)
    ]
    return found[::-1]


def test_without_a_limit_all_is_kept() -> None:
    assert RetentionPolicy().keeps_all
    assert RetentionPolicy().first_kept(segments_of([(10, 0)] * 3), now_us=99 * DAY_US) is None


def test_the_last_segment_stays_however_old() -> None:
    policy = RetentionPolicy(retention_s=1.0)

    assert policy.first_kept(segments_of([(10, 0)]), now_us=99 * DAY_US) is None


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
    newest_first = segments_of(drawn)
    now_us = 40 * DAY_US
    first = policy.first_kept(newest_first, now_us=now_us)

    goes = [
        place > 0
        and (
            (days is not None and segment.last_append_time_us < now_us - days * DAY_US)
            or (
                kept_bytes is not None
                and sum(one.size_bytes or 0 for one in newest_first[:place]) >= kept_bytes
            )
        )
        for place, segment in enumerate(newest_first)
        if segment.last_append_time_us is not None
    ]
    expected = next(
        (
            (segment.last_sequence or 0) + 1
            for segment, is_going in zip(newest_first, goes, strict=True)
            if is_going
        ),
        None,
    )
    assert first == expected
