"""The pages about Spark: their programs run, and the table has every option."""

import itertools
import json
import os
import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
from matplotlib.axes import Axes
from numpy import asarray
from pyspark.sql import SparkSession

from geolog.spark import spark_environment
from geolog.spark.options import OPTION_NAMES
from sim.processes.demo.flights import flights_archive, read_flights
from tests.spark.demo_stream import RECORDS, connected
from tests.static.checkout import ROOT

PAGE = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8")
CHART_PAGE = (ROOT / "docs" / "SPARK_CHART.md").read_text(encoding="utf-8")


def test_the_program_shows_every_record(
    spark: SparkSession,
    zookeeper: str,
    orders: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for variable in spark_environment():  # The program sets them; they are restored afterwards.
        monkeypatch.setenv(variable, os.environ[variable])

    exec(program.replace("127.0.0.1:2181", zookeeper), {})

    counts = re.findall(r"\|\s+[01]\|\s+[abc]\|\s+(\d+)\|", capsys.readouterr().out)
    assert sum(map(int, counts)) == RECORDS


def test_the_table_has_every_option() -> None:
    [table] = re.findall(r"\n## Options\n(.*?)\n## ", PAGE, re.DOTALL)
    named = {
        name
        for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }

    assert named == set(OPTION_NAMES)


def test_the_chart_shows_the_mean_delays(
    spark: SparkSession,
    zookeeper: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    flights = list(itertools.islice(read_flights(flights_archive()), 5_000))
    with connected(zookeeper) as log:
        log.create_stream(  # One of the three nodes may have been killed before.
            "demo/flights", ensemble_size=2, write_quorum=2, ack_quorum=2, min_regions=2
        )
        with log.open_writer("demo/flights") as writer:
            for pending in [writer.append_nowait(flight) for flight in flights]:
                pending.wait()
    for variable in spark_environment():
        monkeypatch.setenv(variable, os.environ[variable])
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    [program] = re.findall(r"```python\n(.*?)```", CHART_PAGE, re.DOTALL)
    program = re.sub(r".*gateway.*\n", "", program).replace("eu-west", "b")

    shown: dict[str, object] = {}
    exec(program.replace("127.0.0.1:2181", zookeeper), shown)

    axes = shown["axes"]
    assert isinstance(axes, Axes)
    known: dict[tuple[str, int], list[float]] = defaultdict(list)
    for flight in map(json.loads, flights):
        if flight["dep_delay"] is not None:
            known[flight["origin"], flight["hour"]].append(flight["dep_delay"])
    drawn = {
        (line.get_label(), hour): minutes
        for line in axes.lines
        for hour, minutes in asarray(line.get_xydata()).tolist()
    }
    assert drawn == pytest.approx({place: fmean(all_min) for place, all_min in known.items()})
    assert (tmp_path / "delays.svg").read_text().startswith("<?xml")
