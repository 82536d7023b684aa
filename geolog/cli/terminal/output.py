"""Prints results on stdout: tables for people, JSON with stable keys for programs."""

import base64
import enum
import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs

from geolog.cli.terminal.table import Cell, Paint, Tone, document_lines, list_lines, unpainted
from geolog.protocol.ids import DLSN, Position
from geolog.settings.command_config import Output
from geolog.settings.quantities import short_bytes, short_rate, short_seconds

# Same names as the options that set them.
_LABELS = {
    "segment_bytes": "segment size",
    "simulated_s_per_s": "simulated per s",
    "size_bytes": "size",
}

_TONES: dict[tuple[str, str], Tone] = {
    **{("state", text): "good" for text in ("healthy", "up", "writable")},
    **{
        ("state", text): "bad"
        for text in ("cut", "degraded", "down", "paused", "replaced", "silent", "unhealthy")
    },
    **{(name, "yes"): "good" for name in ("good", "is_complete", "is_healthy", "is_settled")},
    **{(name, "no"): "bad" for name in ("good", "is_complete", "is_healthy", "is_settled")},
}
_SGR = {"head": "1", "good": "32", "warn": "33", "bad": "31"}

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def plain(value: object) -> Plain:
    """Convert a result to JSON types. Keys are the names of attributes, in their order."""
    match value:
        case enum.Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case DLSN() | Position() | Path():
            return str(value)
        case bytes():
            return _text_or_base64(value)
        case dict():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return _attributes(value)


def show(
    result: object, output: Output, columns: Sequence[str] = (), *, empty: str = "none"
) -> None:
    """Print one result. `columns` are the keys shown in the table; empty means all."""
    document = plain(result)
    match output:
        case "json":
            print_json(document)
        case "jsonl":
            for item in document if isinstance(document, list) else [document]:
                print_json(item)
        case "table":
            _show_table(document, columns, empty)


def print_json(document: Plain) -> None:
    """Print one JSON document on one line of stdout."""
    line = json.dumps(document, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:  # Half a surrogate pair; only JSON's escapes can express it.
        line = json.dumps(document)
    sys.stdout.write(line + "\n")


def _show_table(document: Plain, columns: Sequence[str], empty: str) -> None:
    match document:
        case []:
            print(empty, file=sys.stderr)
            return
        case [dict() as first, *_]:
            names = list(columns or first)
            rows = [
                [_cell_of(name, item.get(name)) for name in names]
                for item in document
                if isinstance(item, dict)
            ]
            lines = list_lines([_label(name) for name in names], rows, *table_medium())
        case [*items]:
            lines = (line for item in items for line in _text(item).split("\n"))
        case dict():
            pairs = [
                (_label(name), _cell_of(name, document.get(name)))
                for name in columns or document
            ]
            lines = document_lines(pairs, *table_medium())
        case other:
            lines = iter([_text(other)])
    sys.stdout.writelines(f"{line}\n" for line in lines)


def table_medium() -> tuple[int | None, Paint]:
    """Return the width of the terminal on stdout, if it is one, and the paint to use.

    A redirected table keeps its lines whole, for grep.
    """
    width = terminal_width()
    has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return width, _paint if has_colours and width is not None else unpainted


def terminal_width() -> int | None:
    """Width of the terminal on stdout, or None if it is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _paint(text: str, tone: Tone) -> str:
    return f"\x1b[{_SGR[tone]}m{text}\x1b[0m" if tone in _SGR else text


def _label(name: str) -> str:
    """Label for people: without the unit, which the value shows."""
    if name in _LABELS:
        return _LABELS[name]
    return name.removesuffix("_us").removesuffix("_s").removesuffix("_per").replace("_", " ")


def _cell_of(name: str, value: Plain) -> Cell:
    """Format a value by its name: dates, times, sizes and rates get their units."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(_quantity(name, value), is_number=True)
    text = _text(value)
    return Cell(text, tone=_TONES.get((name, text), "plain"))


def _quantity(name: str, value: float) -> str:
    words = name.rpartition(".")[2].split("_")
    if words[-1] == "us":
        moment = datetime.fromtimestamp(value / 1_000_000, UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    if "bytes" in words:
        return short_rate(value) if words[-2:] == ["per", "s"] else short_bytes(value)
    is_time = "s" in words and "per" not in words
    return short_seconds(value) if is_time else _text(value)


def _text(value: Plain) -> str:
    match value:
        case None | "":
            return "-"
        case True:
            return "yes"
        case False:
            return "no"
        case float():
            return f"{value:g}"
        case list() | dict() if not value:
            return "-"
        case list() if all(isinstance(item, dict) for item in value):
            return "\n".join(_text(item) for item in value)
        case list():
            return _harmless(", ".join(str(item) for item in value))
        case dict():
            pairs = (f"{_label(name)} {_text(item)}" for name, item in value.items())
            return _harmless(", ".join(pairs))
        case _:
            return _harmless(str(value))


def _harmless(text: str) -> str:
    """Escape control characters, so that they cannot affect a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _attributes(value: object) -> Plain:
    cls = type(value)
    if not attrs.has(cls):
        return str(value)
    return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(cls)}


def _text_or_base64(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
