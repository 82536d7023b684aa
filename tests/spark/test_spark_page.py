"""The page about Spark: its program runs, and its table has every option."""

import os
import re

import pytest
from pyspark.sql import SparkSession

from geolog.spark import spark_environment
from geolog.spark.options import OPTION_NAMES
from tests.spark.demo_stream import RECORDS
from tests.static.checkout import ROOT

pytestmark = pytest.mark.xdist_group("session")
PAGE = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8")


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
