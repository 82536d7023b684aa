"""The benchmarks run, for a bounded time, and give each figure a name, a unit and a floor."""

import json
import pstats
from pathlib import Path
from typing import TypedDict

import pytest

from tests.system.demo_process import geolog


class Figure(TypedDict):
    """A figure as JSON, without the fields that no test reads."""

    name: str
    value: float
    unit: str
    floor: float
    ratio: float


class Failover(TypedDict):
    """What mirrors were given while a relay ended."""

    end: str
    fault: str
    sent: int
    lost: int
    duplicated: int
    reordered: int
    silent_ms: float


class Document(TypedDict):
    """The answer of a benchmark; only that of relays has failovers."""

    figures: list[Figure]
    failovers: list[Failover]


def bench(*arguments: str) -> Document:
    done = geolog("bench", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr.decode()
    document: Document = json.loads(done.stdout)
    return document


def figures_of(*arguments: str) -> dict[str, Figure]:
    document = bench(*arguments)
    assert list(document) == ["figures"]
    return {figure["name"]: figure for figure in document["figures"]}


def test_readers_at_the_tail_are_timed_along_with_the_appends() -> None:
    figures = figures_of("tail", "--duration", "500ms", "--readers", "2")

    assert figures["append p99"]["value"] == figures["publish to read p99"]["floor"]
    assert {figure["unit"] for figure in figures.values()} == {"ms", "µs"}


@pytest.mark.long
def test_a_proxy_is_measured_next_to_what_its_frames_cost_alone(tmp_path: Path) -> None:
    profile = tmp_path / "proxy.prof"
    done = geolog(
        *("bench", "proxy", "--duration", "200ms", "--profile", str(profile), "-o", "json")
    )
    assert done.returncode == 0, done.stderr.decode()
    figures = {one["name"]: one for one in json.loads(done.stdout)["figures"]}

    loads = [
        *("JSON, 100 records a frame", "MessagePack, 100 records a frame"),
        *("JSON, one record a frame", "MessagePack, one record a frame", "sealed batches"),
    ]
    for name in loads:
        assert figures[name]["value"] > 0, name
        assert figures[name]["floor"] > 0, name
    assert figures["JSON, 100 records a frame"]["goal"] == ">= 30,000 records/s"
    assert b"Ordered by: internal time" in done.stderr
    profiled = pstats.Stats(str(profile)).get_stats_profile().func_profiles
    assert "parse_content" in profiled, "the proxy's own work is in its profile"


@pytest.mark.long
def test_a_link_between_regions_is_measured_next_to_its_bandwidth(tmp_path: Path) -> None:
    plot = tmp_path / "relays.svg"
    arguments = ("--rtt", "20ms", "--bandwidth", "4MB/s", "--duration", "1s")
    document = bench("relay", *arguments, "--plot", str(plot))

    figures = {figure["name"]: figure for figure in document["figures"]}
    throughput = figures["20 ms throughput"]
    assert (throughput["unit"], throughput["floor"]) == ("MB/s", 4)
    assert throughput["value"] > 0
    assert figures["20 ms lag p99 at half load"]["floor"] == 10
    dead = figures["append p99 with a dead target"]
    assert dead["floor"] == figures["append p99 without relay"]["value"]
    ends = document["failovers"]
    assert [(one["end"], one["fault"]) for one in ends] == [
        ("home", "killed"),
        ("home", "left"),
        ("target", "killed"),
        ("target", "left"),
    ]
    assert all(one["sent"] > 800 for one in ends)  # 500 a second of two senders.
    lost_and_repeated = [(one["lost"], one["duplicated"], one["reordered"]) for one in ends]
    assert lost_and_repeated == [(0, 0, 0)] * 4
    assert all(one["silent_ms"] > 0 for one in ends)
    assert plot.read_text().count("bench/sender-") == 2


@pytest.mark.long
def test_a_backlog_goes_within_its_cap_and_does_not_hold_up_what_is_live() -> None:
    figures = figures_of("relay", "--backlog", "8MiB", "--cap", "4MB/s", "--rtt", "20ms")

    rate = figures["rate of the backlog"]
    assert rate["floor"] == 4
    assert 0 < rate["value"] < 4.4
    assert figures["time until it was gone"]["value"] > 1.5
    assert figures["lag of the live stream meanwhile, p99"]["floor"] == 10


def test_reads_cold_and_warm_are_compared_with_bare_reads_of_the_same_bytes() -> None:
    figures = figures_of("read", "--size", "20MiB", "--readers", "2")

    for throughput in (figures["cold read throughput"], figures["warm read throughput"]):
        assert throughput["unit"] == "MB/s"
        assert throughput["floor"]
        assert throughput["ratio"]
    assert figures["warm read of batches rate"]["unit"] == "batches/s"
    assert figures["one more reader, processor time of the nodes"]["value"] > 0


@pytest.mark.long
def test_one_of_many_interleaved_ledgers_is_read() -> None:
    figures = figures_of(
        "read", "--size", "18MiB", "--interleaved", "3", "--record-size", "64KiB"
    )

    assert figures["cold read, one of 3 interleaved throughput"]["floor"]


@pytest.mark.long
def test_reads_are_hedged_and_plotted_while_replicas_are_late(tmp_path: Path) -> None:
    plot = tmp_path / "hedge.svg"
    done = geolog(
        *("bench", "hedge", "--duration", "2s", "--rate", "30", "--entries", "20"),
        *("--plot", str(plot), "-o", "json"),
    )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)

    assert list(report) == ["figures", "latencies", "stages"]
    assert {(row["scenario"], row["policy"]) for row in report["latencies"]} == {
        (scenario, policy)
        for scenario in ("healthy", "stalls", "cut off", "paused", "all slow")
        for policy in ("auto", "off", "bookkeeper")
    }
    assert all(row["reads"] for row in report["latencies"])
    assert plot.read_text().startswith("<svg")


@pytest.mark.long
def test_one_case_is_run_after_the_healthy_one() -> None:
    done = geolog(
        *("bench", "hedge", "--duration", "3s", "--rate", "30", "--entries", "20"),
        *("--only", "cut-off", "-o", "json"),
    )
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)

    assert {row["scenario"] for row in report["latencies"]} == {"healthy", "cut off"}
    judged = [each["name"] for each in report["figures"] if each["goal"]]
    assert judged == ["cut off: p99 of auto"]


@pytest.mark.long
def test_many_ledgers_are_appended_to_at_once() -> None:
    figures = figures_of(
        *("append", "--ledgers", "3", "--record-size", "1KiB"),
        *("--duration", "300ms", "--via", "proxy"),
    )

    assert figures["1KiB throughput"]["ratio"]
    assert "1KiB one at a time p50" not in figures
    direct, hop, proxied = (
        figures[f"1KiB {way}throughput"]["value"]
        for way in ("", "WebSocket hop ", "via proxy ")
    )
    floor = figures["1KiB via proxy throughput"]["floor"]
    assert floor == pytest.approx(1 / (1 / direct + 1 / hop), rel=0.01)
    assert figures["1KiB via proxy throughput"]["ratio"] == pytest.approx(
        proxied / floor, rel=0.01
    )
