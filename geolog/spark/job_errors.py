"""The error of geolog in one that Spark raises for it.

Spark wraps what Python raised: its message has the traceback of a worker's or the driver's
Python, and stack frames of Java. People need the one line that says what was wrong.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from topology import errors
from topology.errors import GeologError, UnavailableError

_RAISED = re.compile(
    r"^(?:\s*|: |Caused by: )(?:[\w.$]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE
)

_SPARK = (PySparkException, Py4JError, ConnectionError)
"""Errors of Spark: as PySpark converts them, as Java raised them, and of a Java that ended."""


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Raise `error_of` in place of what Spark raises in the block."""
    try:
        yield
    except _SPARK as error:
        raise error_of(error, doing=doing) from error


def error_of(raised: Exception, *, doing: str) -> GeologError:
    """What geolog raised, or UnavailableError with what was raised last, or Spark's own words.

    doing: what failed, e.g. `the export`.
    """
    told = str(raised).strip()
    found: list[tuple[str, str]] = _RAISED.findall(told)
    for name, words in reversed(found):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, GeologError):
            return kind(words)
    words = found[-1][1] if found else (told.splitlines() or [type(raised).__name__])[0]
    return UnavailableError(f"{doing} failed: {words}")
