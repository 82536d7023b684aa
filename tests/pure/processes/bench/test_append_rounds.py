"""The rounds of one load of `bench append`, put together."""

import pytest

from sim.processes.bench.append import Load, Run
from sim.processes.bench.figures import LatencyHistogram

LOAD = Load(name="1KiB", record_bytes=1024, in_flight_bytes=1 << 20)


def round_of(*, records_count: int, took_s: float, latency_s: float) -> Run:
    latencies = LatencyHistogram()
    for _ in range(records_count):
        latencies.record(latency_s)
    return Run(
        load=LOAD,
        records_count=records_count,
        took_s=took_s,
        latencies=latencies,
        group_bytes=400_000,
    )


def test_two_rounds_count_as_one_long_one() -> None:
    fast = round_of(records_count=300, took_s=1.0, latency_s=0.010)
    slow = round_of(records_count=100, took_s=3.0, latency_s=0.030)

    both = fast.with_round(slow)

    assert both.bytes_per_s == 400 * 1024 / 4.0
    assert both.latencies.milliseconds(75) == pytest.approx(10, rel=0.01)
    assert both.latencies.milliseconds(76) == pytest.approx(30, rel=0.01)
    assert both.group_bytes == 400_000
