"""The error of geolog in one that Spark raises for it.

Spark wraps what Python raised: its message has the traceback of a worker's or the driver's
Python, and stack frames of Java. People need the one line that says what was wrong.
"""

import re

from pyspark.errors import PySparkException

from topology import errors
from topology.errors import GeologError, UnavailableError

_RAISED = re.compile(r"^\s*(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


def error_of(raised: PySparkException, *, doing: str) -> GeologError:
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
