"""The benchmark of Spark runs, and has each figure and its floor in one run."""

import json
import os
import subprocess

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from geolog.spark.job_errors import spark_errors
from tests.spark.short_java import SHORT_JAVA
from tests.system.demo_process import COMMAND_S_MAX, GEOLOG, plain_environment
from topology.errors import UnavailableError


@pytest.mark.long
def test_spark_is_measured_next_to_its_ceiling_and_to_parquet() -> None:
    arguments = ("--record-size", "1KiB", "--size", "2MiB", "--tasks", "2", "--turns", "1")

    # Spark's own start is a script: it needs a shell on PATH, which other commands do without.
    path = plain_environment()["PATH"] + os.pathsep + os.defpath
    done = subprocess.run(
        [*GEOLOG, "bench", "spark", *arguments, "-o", "json"],
        capture_output=True,
        env=plain_environment() | SHORT_JAVA | {"PATH": path},
        timeout=COMMAND_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    figures = json.loads(done.stdout)["figures"]
    rates = {one["name"]: one["value"] for one in figures if one["unit"] == "rows/s"}
    ceiling = rates["1,024 bytes, 2 tasks: ceiling of a Python source"]
    read = rates["1,024 bytes, 2 tasks: bench read, one process"]
    assert rates["1,024 bytes, 2 tasks: Parquet on this disk"] > 0
    assert abs(figures[0]["floor"] * (1 / ceiling + 1 / read) - 1) < 0.01
    [few, many] = [one["value"] for one in figures if one["unit"] == "MiB"]
    assert min(few, many) > 0  # The rest is noise in a run this small.


def test_a_machine_without_bash_is_refused_before_anything_starts() -> None:
    done = subprocess.run(
        [*GEOLOG, "bench", "spark"],
        capture_output=True,
        env=plain_environment(),  # Its PATH has nothing but Python.
        timeout=COMMAND_S_MAX,
        check=False,
    )

    assert done.returncode == 5
    [said] = done.stderr.decode().splitlines()
    assert "Spark is started by a script, which needs bash on PATH" in said


@pytest.mark.parametrize(
    "failure",
    [
        PySparkRuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.\nMore"),
        ConnectionRefusedError("no Java there"),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
)
def test_a_java_that_does_not_start_or_ends_is_told_in_one_line(failure: Exception) -> None:
    with pytest.raises(UnavailableError) as caught, spark_errors("the benchmark"):
        raise failure

    [said] = str(caught.value).splitlines()
    assert said.startswith("the benchmark failed: ")
    assert str(failure).splitlines()[0] in said
