"""The commands of jobs look for their streams before they start Spark, which takes seconds."""

import os
import subprocess

import pytest

from geolog.cli.exits import Exit
from tests.system.demo_process import GEOLOG, DemoProcess, plain_environment

NO_SPARK = ("--master", "spark://127.0.0.1:1")
"""A cluster that does not exist: with it, no session could start."""


@pytest.mark.parametrize(
    "argv",
    [
        ("audit", "no/such"),
        pytest.param(("export", "no/such", "out"), marks=pytest.mark.long),
        pytest.param(("replay", "in", "no/such"), marks=pytest.mark.long),
    ],
)
def test_a_job_refuses_a_stream_that_is_missing_without_a_session(
    demo: DemoProcess, argv: tuple[str, ...]
) -> None:
    done = run(demo, *argv)

    assert done.returncode == Exit.NOT_FOUND
    assert "there is no stream 'no/such'" in done.stderr


def test_a_job_refuses_a_region_that_is_missing_without_a_session(demo: DemoProcess) -> None:
    done = run(demo, "audit", "--region", "mars")

    assert done.returncode == Exit.NOT_FOUND
    assert "mars" in done.stderr


def test_an_export_refuses_batches_of_no_bytes_without_a_session(demo: DemoProcess) -> None:
    done = run(demo, "export", "--batch-bytes", "0B", "no/such", "out")

    assert done.returncode == Exit.USAGE
    assert "--batch-bytes must be at least 1B, e.g. 1GiB; got '0B'" in done.stderr
    assert "maxBytesPerTrigger" not in done.stderr


@pytest.mark.long
def test_a_job_says_why_spark_does_not_start(demo: DemoProcess) -> None:
    done = run(demo, "audit", "--master", "local[many]")

    assert done.returncode == Exit.UNAVAILABLE
    assert "the start of Spark failed" in done.stderr
    assert "Could not parse Master URL" in done.stderr
    assert "is a bug" not in done.stderr
    assert "\tat " not in done.stderr


def run(demo: DemoProcess, *argv: str) -> "subprocess.CompletedProcess[str]":
    path = plain_environment()["PATH"] + os.pathsep + os.defpath
    return subprocess.run(
        [*GEOLOG, "pipeline", *argv[:1], *NO_SPARK, *argv[1:]],
        env=plain_environment() | {"PATH": path, "GEOLOG_CONFIG": str(demo.config)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
