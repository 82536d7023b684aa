"""Checks that a command can run Spark on this machine, before Spark is loaded."""

import importlib.util
import re
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import click

from topology.errors import UnavailableError

_PYSPARK_MIN = (4, 2)
"""The first version whose Python data sources read streams by limits and write by Arrow."""


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def check_spark(
    what: str,
    *,
    is_there: Callable[[str], bool] = _is_there,
    version_of: Callable[[str], str] = version,
    which: Callable[[str], str | None] = shutil.which,
) -> None:
    """UsageError or UnavailableError if `what` cannot be run on this machine."""
    for name, package in (("PySpark", "pyspark"), ("PyArrow", "pyarrow")):
        if not is_there(package):
            raise click.UsageError(
                f"{what} needs {name}, which is not installed: pip install 'geolog[spark]'"
            )
    try:
        found = version_of("pyspark")
    except PackageNotFoundError:  # It comes with a Spark that was unpacked by hand.
        found = "of an unknown version"
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers and numbers < _PYSPARK_MIN:
        needed = ".".join(map(str, _PYSPARK_MIN))
        raise click.UsageError(
            f"{what} needs PySpark {needed} or newer, and {found} is installed: pip install"
            " 'geolog[spark]'"
        )
    if which("bash") is None:
        raise UnavailableError("Spark is started by a script, which needs bash on PATH")
