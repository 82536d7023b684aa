"""What a retention lets go: whole segments, never the last, never too much."""

from itertools import accumulate

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.append_clock import AHEAD_US_MAX
from geolog.protocol.ids import EntryId, Epoch, LedgerId, Sequence
from geolog.protocol.retention import Clocks, RetentionPolicy, StoredSegment
from geolog.protocol.stream_state import SegmentRecord

DAY_US = 86400 * 10**6
NOW_US = 40 * DAY_US
DAY_S = 86400.0


def at(local_day: float, metadata_day: float | None) -> Clocks:
    """Two clocks, in days."""
    return Clocks(
        local_us=round(local_day * DAY_US),
        metadata_us=None if metadata_day is None else round(metadata_day * DAY_US),
    )


NOW = at(40, 40)


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


def stored(record: SegmentRecord, day: float | None = None) -> StoredSegment:
    """As of that day by the metadata store's clock, or of when its last record came."""
    last_us = record.last_append_time_us or 0
    return StoredSegment(record, last_us if day is None else round(day * DAY_US))


def going(policy: RetentionPolicy, segments: list[SegmentRecord]) -> list[bool]:
    return [policy.goes(stored(one), last=segments[-1], now=NOW) for one in segments]


def goes(stamped_day: int, stored_day: float, now: Clocks, *, days: float = 7) -> bool:
    """Whether the first of two segments goes by age."""
    first, last = segments_of([(10, stamped_day), (10, stamped_day)])
    policy = RetentionPolicy(retention_s=days * DAY_S)
    return policy.goes(stored(first, stored_day), last=last, now=now)


def test_a_clock_that_is_ahead_takes_nothing_away_that_is_young_to_the_metadata_store() -> None:
    assert not goes(39, 39, at(47, 40))
    assert not goes(39, 39, at(40_000, 40))
    assert goes(32, 32, at(47, 40))


def test_a_clock_that_is_behind_only_delays() -> None:
    assert not goes(30, 30, at(35, 40))
    assert goes(30, 30, at(37.1, 42.1))


def test_a_segment_that_is_stamped_ahead_goes_by_when_it_was_completed() -> None:
    century = 36_500

    assert stored(segments_of([(10, century)])[0], 39).is_stamped_ahead
    assert not goes(century, 39, at(40, 40))
    assert goes(century, 32, at(40, 40))


def test_a_segment_that_was_completed_late_stays_for_as_long_from_then_on() -> None:
    assert not goes(1, 39, at(40, 40))
    assert goes(1, 39, at(46.1, 46.1))


def test_nothing_goes_by_age_before_the_metadata_store_has_said_its_time() -> None:
    assert not goes(1, 1, at(40, None))


MIXED = st.integers(-50 * DAY_US, 150 * DAY_US)


@given(MIXED, MIXED, MIXED, MIXED, st.integers(1, 30))
def test_whatever_the_clocks_say_what_goes_is_old_to_the_metadata_store(
    stamped_us: int, stored_us: int, local_us: int, metadata_us: int, days: int
) -> None:
    first, last = segments_of([(10, 0), (10, 0)])
    segment = StoredSegment(attrs.evolve(first, last_append_time_us=stamped_us), stored_us)
    now = Clocks(local_us=local_us, metadata_us=metadata_us)

    is_gone = RetentionPolicy(retention_s=days * DAY_S).goes(segment, last=last, now=now)

    is_old_there = metadata_us - stored_us > days * DAY_US
    is_old_here = (
        local_us - stamped_us > days * DAY_US
        or local_us - (stored_us + AHEAD_US_MAX) > days * DAY_US
    )
    assert is_gone == (is_old_there and is_old_here)


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
