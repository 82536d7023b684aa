"""Relays as real processes: mirrors in other regions, coordinators that are killed or leave."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.system.demo_process import (
    WAIT_S_MAX,
    DemoProcess,
    plain_environment,
    running_demo,
    wait_until,
)

STREAM = "shop/parcels"
HOME, TARGETS = "a", ("b", "c")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run three regions with two nodes and two relays each, and a stream that all mirror."""
    directory = tmp_path_factory.mktemp("demo")
    small = ("--regions", "a,b,c", "--nodes-per-region", "2", "--relays-per-region", "2")
    links = directory / "near.toml"
    links.write_text('[[link]]\nbetween = ["all", "all"]\nrtt = "2ms"\n')
    with running_demo(directory, *small, "--wan", str(links)) as running:
        quorums = ("--ensemble", "2", "--write-quorum", "2", "--ack-quorum", "2")
        running.json(
            *("stream", "create", STREAM, "--mode", "regional", "--home", HOME),
            *("--relay-to", ",".join(TARGETS), "--min-regions", "1", *quorums),
        )
        yield running


def coordinator(demo: DemoProcess, region: str) -> str:
    """The name of a region's coordinator, as its ready line or its log tells."""
    assert isinstance(demo.ready, dict)
    began = [
        (int(line.rpartition(" ")[2]), str(member["name"]))
        for member in demo.ready["regions"][region]["relays"]
        for line in Path(member["log"]).read_text(encoding="utf-8").splitlines()
        if ": coordinates in epoch " in line
    ]
    return max(began)[1]


def is_succeeded(demo: DemoProcess, region: str, victim: str) -> bool:
    return coordinator(demo, region) != victim


FEED = """\
import sys, time
for number in range(int(sys.argv[1]), int(sys.argv[2])):
    print(number, flush=True)
    time.sleep(0.01)
"""


@contextmanager
def appending(demo: DemoProcess, first: int, end: int) -> Iterator[None]:
    """Append numbers at home, one every few milliseconds; the block ends when all are."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", FEED, str(first), str(end)],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        ) as source,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "geolog", "append", STREAM, "--region", HOME],
            stdin=source.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plain_environment() | {"GEOLOG_CONFIG": str(demo.config)},
        ) as append,
    ):
        yield
        _, told = append.communicate(timeout=WAIT_S_MAX)
        assert append.returncode == 0, told.decode()


def records_of(demo: DemoProcess, region: str, count: int) -> list[dict[str, object]]:
    """The first records as a region's readers get them, however long relaying takes."""
    done = demo.run(
        "read", STREAM, "--region", region, "--follow", "--count", str(count), "-o", "jsonl"
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_mirrored(demo: DemoProcess, values: list[bytes]) -> None:
    """Every target has exactly these records, as its home has them."""
    at_home = records_of(demo, HOME, len(values))
    assert [str(one["value"]).encode() for one in at_home] == values
    for target in TARGETS:
        mirrored = records_of(demo, target, len(values))
        assert [(one["dlsn"], one["value"]) for one in mirrored] == [
            (one["dlsn"], one["value"]) for one in at_home
        ]
        assert {one["origin"] for one in mirrored} == {HOME}
    verified = demo.run("verify", STREAM)
    assert verified.returncode == 0, verified.stderr.decode()


@pytest.mark.long
def test_mirrors_equal_their_home_though_coordinators_are_killed_and_leave(
    demo: DemoProcess,
) -> None:
    values: list[bytes] = []

    def append_while(*ends: tuple[str, str]) -> None:
        first, end = len(values), len(values) + 200
        with appending(demo, first, end):
            for verb, region in ends:
                victim = coordinator(demo, region)
                demo.json("demo", verb, victim)
                wait_until(partial(is_succeeded, demo, region, victim))
                demo.json("demo", "restart", victim)
        values.extend(b"%d" % number for number in range(first, end))
        assert_mirrored(demo, values)

    append_while(("kill", HOME), ("stop", HOME))
    append_while(("kill", "b"), ("stop", "c"))


@pytest.mark.parametrize("fault", ["kill", pytest.param("drain", marks=pytest.mark.long)])
def test_a_drill_on_relays_loses_and_repeats_nothing(demo: DemoProcess, fault: str) -> None:
    place = ("--on-demo", "--data-dir", str(demo.directory))

    verdict = demo.json("drill", "run", "relay-kill", "--times", "1", "--fault", fault, *place)

    assert isinstance(verdict, dict)
    counts, (outage,) = verdict["counts"], verdict["rounds"]
    assert (counts["faults"], counts["lost"], counts["repeated"]) == (1, 0, 0)
    assert counts["acknowledged"] > 0
    assert min(outage["detection_s"], outage["pause_s_max"]) > 0


def test_whatever_breaks_relays_and_links_every_region_has_the_records_once_and_in_order(
    demo: DemoProcess,
) -> None:
    place = ("--on-demo", "--data-dir", str(demo.directory), "--outage", "1s")
    faults = ("both-ends", "cut-one-way", "made-again", "versions")
    chosen = [word for fault in faults for word in ("--fault", fault)]

    verdict = demo.json("drill", "run", "relay-matrix", *place, *chosen)

    assert isinstance(verdict, dict)
    counts = verdict["counts"]
    assert (verdict["problems"], counts.pop("faults")) == ([], len(faults))
    assert counts.pop("acknowledged") > 100
    assert set(counts.values()) == {0}
    assert {name.rpartition("_")[0] for name in counts} == {
        "lost",
        "repeated",
        "out_of_order",
        "gaps",
        "unequal_or_foreign",
    }


def test_the_ready_file_names_the_relays_of_each_region(demo: DemoProcess) -> None:
    assert isinstance(demo.ready, dict)
    for name, region in demo.ready["regions"].items():
        assert [one["id"] for one in region["relays"]] == [f"{name}-relay-1", f"{name}-relay-2"]
        assert all({"address", "pid", "argv", "log"} <= one.keys() for one in region["relays"])
