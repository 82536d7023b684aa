"""Retention drops whole segments, never the last, never too much."""

import itertools
from itertools import accumulate

import attrs
import pytest
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
    """Segments of ten records, oldest first, each completed on the given day."""
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
            completed_us=day * DAY_US,
            last_transaction_id=None,
            size_bytes_through=before + size,
        )
        for number, ((size, day), before) in enumerate(
            zip(sizes_and_days, accumulate(sizes, initial=0), strict=False), 1
        )
    ]


def stored(record: SegmentRecord, day: float | None = None) -> StoredSegment:
    """The clocks on that day, of the metadata store or of the host."""
    completed_us = record.completed_us or 0
    return StoredSegment(record, completed_us if day is None else round(day * DAY_US))


def going(policy: RetentionPolicy, segments: list[SegmentRecord]) -> list[bool]:
    return [policy.goes(stored(one), last=segments[-1], now=NOW) for one in segments]


def goes(completed_day: int, stored_day: float, now: Clocks, *, days: float = 7) -> bool:
    """Whether the first of two segments goes by age."""
    first, last = segments_of([(10, completed_day), (10, completed_day)])
    policy = RetentionPolicy(retention_s=days * DAY_S)
    return policy.goes(stored(first, stored_day), last=last, now=now)


def test_a_host_clock_ahead_drops_nothing_that_the_store_finds_young() -> None:
    assert not goes(39, 39, at(47, 40))
    assert not goes(39, 39, at(40_000, 40))
    assert goes(32, 32, at(47, 40))


def test_a_host_clock_behind_drops_nothing_that_the_store_finds_young() -> None:
    assert not goes(39, 39, at(5, 40))
    assert not goes(30, 30, at(36.9, 40))
    assert goes(30, 30, at(37.1, 40))


def test_a_store_clock_that_was_behind_drops_nothing_that_hosts_find_young() -> None:
    assert not goes(39, 9, at(40, 40))
    assert goes(32, 2, at(40, 40))


def test_if_the_completing_host_was_ahead_the_store_decides_alone() -> None:
    century = 36_500

    assert not goes(century, 39, at(40, 40))
    assert goes(century, 32, at(40, 40))


def test_two_hosts_may_differ_by_minutes_and_still_count() -> None:
    minutes = AHEAD_US_MAX / DAY_US

    assert not goes(40, 9, at(40 - 0.9 * minutes, 40))
    assert goes(40, 9, at(40 - 1.1 * minutes, 40))


def test_a_segment_without_a_completion_time_stays() -> None:
    first, last = segments_of([(10, 1), (10, 1)])
    unnoted = attrs.evolve(first, completed_us=None)

    assert not RetentionPolicy(retention_s=DAY_S).goes(stored(unnoted, 1), last=last, now=NOW)


def test_nothing_is_dropped_by_age_before_the_store_has_said_its_time() -> None:
    assert not goes(1, 1, at(40, None))


@attrs.frozen(kw_only=True)
class Offs:
    """How far each clock is off, when the segment was completed and now."""

    store_then_us: int = 0
    host_then_us: int = 0
    """Clock error of the host that completed the segment."""
    store_now_us: int = 0
    here_now_us: int = 0
    """Clock error of this host."""

    def goes(self, *, age_us: int, retention_us: int) -> bool:
        """Whether a segment of this true age is dropped."""
        completed_us = NOW_US - age_us
        first, last = segments_of([(10, 0), (10, 0)])
        segment = StoredSegment(
            attrs.evolve(first, completed_us=completed_us + self.host_then_us),
            completed_us + self.store_then_us,
        )
        now = Clocks(local_us=NOW_US + self.here_now_us, metadata_us=NOW_US + self.store_now_us)
        return RetentionPolicy(retention_s=retention_us / 1e6).goes(segment, last=last, now=now)


NEAR_US = AHEAD_US_MAX // 2
"""How far off a right clock may be: any two then differ within the limit."""

RIGHT = st.integers(-NEAR_US, NEAR_US)
ANY = st.one_of(RIGHT, st.integers(-200 * DAY_US, 200 * DAY_US))
FAR_US = (-400 * DAY_US, -30 * DAY_US, -8 * DAY_US, -3 * DAY_US, 0)
EVERYWHERE_US = sorted({*FAR_US, *(-one for one in FAR_US)})
KEPT_US = 7 * DAY_US


@pytest.mark.parametrize(
    ("which", "wrong"),
    [
        (which, tuple(zip(names, offs, strict=True)))
        for which, names in {
            "the store": ("store_then_us", "store_now_us"),
            "the host that completed": ("host_then_us",),
            "the host that looks": ("here_now_us",),
            "one host that did both": ("host_then_us", "here_now_us"),
        }.items()
        for offs in itertools.product(EVERYWHERE_US, repeat=len(names))
    ],
)
def test_no_single_wrong_clock_drops_a_young_segment(
    which: str, wrong: tuple[tuple[str, int], ...]
) -> None:
    offs = Offs(**dict(wrong))

    for age_us in (0, DAY_US, 4 * DAY_US, KEPT_US - 1, KEPT_US):
        assert not offs.goes(age_us=age_us, retention_us=KEPT_US), which


@given(st.integers(0, 100 * DAY_US), st.integers(1, 30 * DAY_US), ANY, ANY)
def test_while_the_stores_clock_is_right_nothing_is_dropped_early(
    age_us: int, retention_us: int, host_then_us: int, here_now_us: int
) -> None:
    offs = Offs(host_then_us=host_then_us, here_now_us=here_now_us)

    assert not offs.goes(age_us=age_us, retention_us=retention_us) or age_us > retention_us


@given(st.integers(0, 100 * DAY_US), st.integers(1, 30 * DAY_US), ANY, ANY, RIGHT, RIGHT)
def test_while_hosts_are_right_a_drop_is_early_by_their_difference_at_most(
    age_us: int,
    retention_us: int,
    store_then_us: int,
    store_now_us: int,
    host_then_us: int,
    here_now_us: int,
) -> None:
    offs = Offs(
        store_then_us=store_then_us,
        store_now_us=store_now_us,
        host_then_us=host_then_us,
        here_now_us=here_now_us,
    )
    early_us = max(0, here_now_us - host_then_us)

    is_gone = offs.goes(age_us=age_us, retention_us=retention_us)

    assert not is_gone or age_us > retention_us - early_us


@given(
    st.integers(1, 30 * DAY_US),
    st.integers(-200 * DAY_US, 200 * DAY_US),
    st.sampled_from(sorted(one.name for one in attrs.fields(Offs))),
)
def test_a_wrong_clock_delays_a_drop_by_its_error_at_most(
    retention_us: int, off_us: int, which: str
) -> None:
    offs = Offs(**{which: off_us})

    assert offs.goes(age_us=retention_us + abs(off_us) + 1, retention_us=retention_us)


def test_without_a_limit_everything_is_kept() -> None:
    assert RetentionPolicy().keeps_all
    assert not any(going(RetentionPolicy(), segments_of([(10, 0)] * 3)))


def test_the_last_segment_stays_however_old() -> None:
    assert going(RetentionPolicy(retention_s=1.0), segments_of([(10, 0)] * 2)) == [True, False]


def test_bytes_of_an_open_segment_do_not_count_until_it_is_completed() -> None:
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
def test_retention_agrees_with_a_look_at_every_segment(
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
    assert naive == sorted(naive, reverse=True), "the dropped segments are not the front"
