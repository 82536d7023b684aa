"""Parses and formats quantities with units: `80ms`, `7d`, `64MiB`, `20MB/s`.

Inside geolog there is one unit per dimension, seconds and bytes; other units exist only here. A
number without a unit is refused: its meaning would be a guess.
"""

import re

from topology.errors import InvalidArgumentError

_SECONDS_PER = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_BYTES_PER = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_EXACT_ENOUGH = 1e-9
_SHORT_COUNT_MAX = 1000
_NUMBER_AND_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z%/]*)")


def parse_seconds(text: str) -> float:
    """Parse a time, e.g. `80ms`, `30s`, `5m`, `1h` or `7d`, into seconds."""
    number, unit = _split(text, example="80ms, 30s, 5m, 1h or 7d")
    if unit not in _SECONDS_PER:
        raise _unknown_unit(text, unit, list(_SECONDS_PER))
    return number * _SECONDS_PER[unit]


def parse_bytes(text: str) -> int:
    """Parse a size, e.g. `512B`, `64KiB`, `64MiB` or `1GB`, into bytes."""
    number, unit = _split(text, example="512B, 64KiB, 64MiB or 1GB")
    if unit not in _BYTES_PER:
        raise _unknown_unit(text, unit, list(_BYTES_PER))
    size_bytes = number * _BYTES_PER[unit]
    if size_bytes != int(size_bytes):
        raise InvalidArgumentError(f"{text!r} is not a whole number of bytes")
    return int(size_bytes)


def parse_bytes_per_second(text: str) -> float:
    """Parse a rate, e.g. `20MB/s`, into bytes per second."""
    number, unit = _split(text, example="512KiB/s or 20MB/s")
    if not unit.endswith("/s") or unit.removesuffix("/s") not in _BYTES_PER:
        raise _unknown_unit(text, unit, [f"{name}/s" for name in _BYTES_PER])
    return number * _BYTES_PER[unit.removesuffix("/s")]


def parse_share(text: str) -> float:
    """Parse a percentage, e.g. `1%`, into a share of one."""
    number, unit = _split(text, example="1% or 0.1%")
    if unit != "%":
        raise _unknown_unit(text, unit, ["%"])
    return number / 100


def format_seconds(seconds: float) -> str:
    """Format as the shortest text that `parse_seconds` accepts."""
    for unit in ("w", "d", "h", "m", "s", "ms"):
        count = seconds / _SECONDS_PER[unit]
        if count >= 1 and count == round(count):
            return f"{count:.0f}{unit}"
    return f"{_plain(seconds * 1e3)}ms" if 0 < seconds < 1 else f"{_plain(seconds)}s"


def format_bytes(size_bytes: int) -> str:
    """Format as the shortest text that `parse_bytes` accepts."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % _BYTES_PER[unit] == 0:
            return f"{size_bytes // _BYTES_PER[unit]}{unit}"
    return f"{size_bytes}B"


def counted(count: int, noun: str) -> str:
    """Format a count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def short_seconds(seconds: float) -> str:
    """Format a time for people: exact if that is short, else three digits: `7d`, `1.23ms`."""
    if seconds == 0:
        return "0s"
    units = ("d", "h", "m", "s", "ms", "us")
    for unit in units:
        count = seconds / _SECONDS_PER[unit]
        is_exact = abs(count - round(count)) < _EXACT_ENOUGH
        if is_exact and 1 <= count < _SHORT_COUNT_MAX:
            return f"{count:.0f}{unit}"
    unit = next((one for one in units if abs(seconds) >= _SECONDS_PER[one]), "us")
    return f"{_three_digits(seconds / _SECONDS_PER[unit])}{unit}"


def short_bytes(size_bytes: float) -> str:
    """Format a size for people, in three digits: `64MiB`, `10.7KiB`, `512B`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(size_bytes) >= _BYTES_PER[unit]:
            return f"{_three_digits(size_bytes / _BYTES_PER[unit])}{unit}"
    return f"{_three_digits(size_bytes)}B"


def short_rate(bytes_per_s: float) -> str:
    """Format a rate for people, in three digits: `20MB/s`, `1.5GB/s`, `512B/s`.

    Rates are decimal, as those of networks and disks are; sizes are binary.
    """
    for unit in ("TB", "GB", "MB", "kB"):
        if abs(bytes_per_s) >= _BYTES_PER[unit]:
            return f"{_three_digits(bytes_per_s / _BYTES_PER[unit])}{unit}/s"
    return f"{_three_digits(bytes_per_s)}B/s"


def _three_digits(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def _plain(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _split(text: str, *, example: str) -> tuple[float, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None and _NUMBER_AND_UNIT.fullmatch(text.strip().removeprefix("-")):
        raise InvalidArgumentError(f"{text!r} is negative: write e.g. {example}")
    if match is None:
        raise InvalidArgumentError(
            f"{text!r} is not a quantity: give a number and a unit, e.g. {example}"
        )
    if not match.group(2):
        raise InvalidArgumentError(f"{text!r} has no unit: write e.g. {example}")
    return float(match.group(1)), match.group(2)


def _unknown_unit(text: str, unit: str, known: list[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"unknown unit {unit!r} in {text!r}: use one of {', '.join(known)}"
    )
