"""Reads the links of an emulated WAN from a file, with units on its quantities.

    [[link]]
    between = ["us-east", "eu-west"]      # or from = "us-east", to = "eu-west": one direction
    rtt = "80ms"
    jitter = "5ms"
    bandwidth = "20MB/s"
    stall_rate = "1%"
    stall = "200ms"

A region may be "all". Links that the file does not name keep their defaults. If two tables name
the same link, the later one wins.
"""

import tomllib
from collections.abc import Callable
from pathlib import Path

from geolog.settings.quantities import parse_bytes_per_second, parse_seconds, parse_share
from sim.processes.wan.conditions import LinkChange, Wan
from sim.processes.wan.profile import default_wan
from topology.errors import GeologError, InvalidArgumentError, InvalidConfigError
from topology.nearest import suggestion

_QUANTITIES: dict[str, tuple[str, Callable[[str], float]]] = {
    "rtt": ("rtt_s", parse_seconds),
    "jitter": ("jitter_s", parse_seconds),
    "bandwidth": ("bandwidth_bytes_per_s", parse_bytes_per_second),
    "stall_rate": ("stall_rate", parse_share),
    "stall": ("stall_s", parse_seconds),
}
_ENDS = ("between", "from", "to")


def read_wan(path: Path, regions: tuple[str, ...]) -> Wan:
    """Read the links between the regions. InvalidConfigError says what is wrong, and where."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidConfigError(f"cannot read --wan {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfigError(f"--wan {path} is not valid TOML: {error}") from error
    tables = document.pop("link", [])
    if document or not isinstance(tables, list):
        raise InvalidConfigError(f"{path}: only [[link]] tables are allowed")
    wan = default_wan(regions)
    for number, table in enumerate(tables, start=1):
        try:
            wan = _with_link(wan, table)
        except GeologError as error:
            raise InvalidConfigError(f"{path}: link {number}: {error}") from error
    return wan


def _with_link(wan: Wan, table: dict[str, object]) -> Wan:
    known = [*_ENDS, *_QUANTITIES]
    for key in table:
        if key not in known:
            raise InvalidArgumentError(f"unknown key {key!r}{suggestion(key, known)}")
    given: dict[str, float] = {}
    for key, (field, parse) in _QUANTITIES.items():
        if key in table:
            given[field] = parse(_text(table, key))
    is_one_way = "between" not in table
    match table:
        case {"between": [str(here), str(there)]} if "from" not in table and "to" not in table:
            pass
        case {"from": str(here), "to": str(there)} if is_one_way:
            pass
        case _:
            raise InvalidArgumentError(
                'name its ends: between = ["A", "B"], or from = "A" and to = "B" (one way)'
            )
    return wan.changed(here, there, LinkChange(**given), is_one_way=is_one_way)  # type: ignore[arg-type]


def _text(table: dict[str, object], key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise InvalidArgumentError(
            f'{key} = {value!r} has no unit: give a string, e.g. "80ms" or "1%"'
        )
    return value
