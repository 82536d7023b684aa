"""The machine that Spark runs on: its region, its Java and its Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from geolog.spark.surroundings import own_region, spark_environment
from topology.errors import UnavailableError


def test_a_bare_machine_gets_a_java_that_takes_sparks_command(tmp_path: Path) -> None:
    variables = spark_environment(tmp_path / "ja va", {"PATH": ""})

    assert variables["PYSPARK_PYTHON"] == sys.executable
    started = subprocess.run(
        [
            f"{variables['JAVA_HOME']}/bin/java",
            "--add-modules=jdk.incubator.vector",
            "-Done=two words",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert "one = two words" in started.stderr


def test_a_python_that_is_named_is_kept(tmp_path: Path) -> None:
    named = {"PATH": "", "PYSPARK_PYTHON": "/opt/geolog/bin/python"}
    variables = spark_environment(tmp_path, named)

    assert variables["PYSPARK_PYTHON"] == "/opt/geolog/bin/python"
    assert variables["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_a_full_java_is_taken_as_it_is(tmp_path: Path) -> None:
    bare = spark_environment(tmp_path, {"PATH": ""})

    # The launcher accepts the flag, so it passes for a full Java.
    found = spark_environment(tmp_path / "unused", {"JAVA_HOME": bare["JAVA_HOME"]})

    assert found["JAVA_HOME"] == bare["JAVA_HOME"]
    assert not (tmp_path / "unused").exists()


def test_a_launcher_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory", encoding="utf-8")

    with pytest.raises(UnavailableError, match=r"taken/bin/java.*Not a directory.*XDG_CACHE"):
        spark_environment(tmp_path / "taken", {"PATH": ""})


@pytest.mark.parametrize(
    ("environ", "content", "region"),
    [
        ({"GEOLOG_REGION": "eu-west"}, "us-east\n", "eu-west"),
        ({}, "us-east\n", "us-east"),
        ({"GEOLOG_REGION": ""}, "\n", None),
        ({}, None, None),
    ],
)
def test_a_region_is_named_by_the_environment_then_by_the_file(
    tmp_path: Path, environ: dict[str, str], content: str | None, region: str | None
) -> None:
    file = tmp_path / "region"
    if content is not None:
        file.write_text(content, encoding="utf-8")

    assert own_region(environ, file) == region
