"""The lag of positions behind a home's tail, against a list of all records."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.tail_history import NO_TAIL_LAG, TailHistory


@attrs.define
class EveryRecord:
    """Each record's bytes and time, in a list."""

    first: int
    sizes: list[float] = attrs.field(factory=list)
    times: list[int] = attrs.field(factory=list)

    def append(self, history: TailHistory, records: int, each_bytes: int, time_us: int) -> None:
        begin = self.first + len(self.sizes)
        history.on_run(
            begin, begin + records, size_bytes=records * each_bytes, since_us=time_us
        )
        self.sizes += [each_bytes] * records
        self.times += [time_us] * records


RUNS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 90), st.integers(0, 50)),
    min_size=1,
    max_size=60,
)


@given(st.integers(0, 10), RUNS, st.integers(0, 400))
def test_with_room_for_all_runs_the_lag_is_exact(
    first: int, runs: list[tuple[int, int, int]], place: int
) -> None:
    history, records, time_us = TailHistory(len(runs) + 1), EveryRecord(first), 0
    for count, each_bytes, later_us in runs:
        time_us += later_us
        records.append(history, count, each_bytes, time_us)
    at = min(place, len(records.sizes))
    lag = history.lag_of(first + at)

    assert lag.records == len(records.sizes) - at
    assert lag.bytes == sum(records.sizes[at:])
    assert lag.since_us == (records.times[at] if lag.records else None)


@given(RUNS, st.integers(0, 400))
def test_joined_runs_tell_the_lag_in_seconds_too_large_and_never_too_small(
    runs: list[tuple[int, int, int]], place: int
) -> None:
    history, records, time_us = TailHistory(4), EveryRecord(0), 0
    for count, each_bytes, later_us in runs:
        time_us += later_us
        records.append(history, count, each_bytes, time_us)
        assert len(history) <= 4
    at = min(place, len(records.sizes))
    lag = history.lag_of(at)

    assert lag.records == len(records.sizes) - at
    if lag.records:
        assert lag.since_us is not None
        assert lag.since_us <= records.times[at]
        assert 0 <= lag.bytes <= sum(records.sizes) + 1
    if at == 0:
        assert lag.bytes == sum(records.sizes)


def test_a_position_before_all_that_was_read_counts_mean_records() -> None:
    history = TailHistory()
    assert history.lag_of(0) == NO_TAIL_LAG
    history.on_run(1_000, 1_010, size_bytes=500, since_us=7)

    lag = history.lag_of(900)
    assert (lag.records, lag.bytes, lag.since_us) == (110, 500 + 100 * 50, 7)


def test_a_reader_that_goes_on_elsewhere_begins_anew() -> None:
    history = TailHistory()
    history.on_run(0, 10, size_bytes=100, since_us=1)
    history.on_run(50, 60, size_bytes=100, since_us=2)

    assert (len(history), history.lag_of(50).records) == (1, 10)


def test_entries_that_are_read_again_leave_the_tail_where_it_is() -> None:
    history = TailHistory()
    history.on_run(0, 10, size_bytes=100, since_us=1)
    history.on_run(10, 20, size_bytes=100, since_us=2)
    history.on_run(3, 8, size_bytes=50, since_us=1)

    assert (history.sequence_next, history.lag_of(10).records) == (20, 10)
    assert (history.lag_of(0).bytes, history.lag_of(0).since_us) == (200, 1)
