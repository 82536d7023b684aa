"""A command that runs Spark says what is missing before it begins."""

from importlib.metadata import PackageNotFoundError

import click
import pytest

from geolog.cli.spark_needs import check_spark
from topology.errors import UnavailableError


def check(
    *, missing: str = "", pyspark: str = "4.2.0", bash: str | None = "/usr/bin/bash"
) -> None:
    """Check a machine of this kind."""
    check_spark(
        "pipeline audit",
        is_there=lambda package: package != missing,
        version_of=lambda _package: pyspark,
        which=lambda _command: bash,
    )


@pytest.mark.parametrize(("missing", "name"), [("pyspark", "PySpark"), ("pyarrow", "PyArrow")])
def test_what_the_extra_brings_is_named(missing: str, name: str) -> None:
    with pytest.raises(click.UsageError, match=rf"needs {name}, .*'geolog\[spark\]'"):
        check(missing=missing)


@pytest.mark.parametrize("pyspark", ["4.1.1", "3.5.0", "4.0.0rc1"])
def test_an_old_spark_is_refused_with_the_version_that_is_needed(pyspark: str) -> None:
    with pytest.raises(click.UsageError, match=f"4.2 or newer, and {pyspark} is installed"):
        check(pyspark=pyspark)


@pytest.mark.parametrize("pyspark", ["4.2.0", "4.10.0", "5.0.0.dev1"])
def test_newer_versions_are_taken(pyspark: str) -> None:
    check(pyspark=pyspark)


def test_a_machine_without_bash_cannot_start_spark() -> None:
    with pytest.raises(UnavailableError, match="bash"):
        check(bash=None)


def test_a_spark_that_was_unpacked_by_hand_is_taken() -> None:
    def unknown(package: str) -> str:
        raise PackageNotFoundError(package)

    check_spark(
        "pipeline audit",
        is_there=lambda _package: True,
        version_of=unknown,
        which=lambda _command: "/usr/bin/bash",
    )
