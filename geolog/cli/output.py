"""Puts results on stdout: tables for people, JSON with stable keys for programs."""

import base64
import enum
import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs

from geolog.cli.quantities import short_bytes, short_seconds
from geolog.cli.settings import Output
from geolog.protocol.ids import DLSN, Position

# Named as the options that set them.
_LABELS = {"segment_bytes": "segment size", "size_bytes": "size"}

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


def plain(value: object) -> Plain:
    """A result as JSON can say it. Keys are the names of attributes, in their order."""
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
    """Print one result. `columns` are the keys that the table for people has; all, if none."""
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
    """One JSON document on one line of stdout."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def _show_table(document: Plain, columns: Sequence[str], empty: str) -> None:
    from rich.console import Console  # Slow to import, and only people need it.
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=False)
    match document:
        case []:
            print(empty, file=sys.stderr)
            return
        case [dict() as first, *_]:
            table.show_header = True
            names = list(columns or first)
            for name in names:
                table.add_column(_label(name), overflow="fold")
            for item in document:
                assert isinstance(item, dict)
                table.add_row(*(_cell_of(name, item.get(name)) for name in names))
        case [*items]:
            for item in items:
                table.add_row(_cell(item))
        case dict():
            for name in columns or document:
                table.add_row(f"[bold]{_label(name)}[/]", _cell_of(name, document.get(name)))
        case other:
            table.add_row(_cell(other))
    if sys.stdout.isatty():
        Console(highlight=False, emoji=False).print(table)
        return
    # Redirected, a table keeps its lines whole: they are for grep then.
    console = Console(width=1000, highlight=False, emoji=False, file=io.StringIO())
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())


def _label(name: str) -> str:
    """A name for people: units stand beside the values, so they go."""
    if name in _LABELS:
        return _LABELS[name]
    return name.removesuffix("_us").removesuffix("_s").removesuffix("_per").replace("_", " ")


def _cell_of(name: str, value: Plain) -> str:
    """A value under its name: times of day, times, sizes and rates are written out."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _cell(value)
    words = name.rpartition(".")[2].split("_")
    if words[-1] == "us":
        moment = datetime.fromtimestamp(value / 1_000_000, UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    if "bytes" in words:
        size = short_bytes(value)
        return f"{size}/s" if words[-2:] == ["per", "s"] else size
    is_time = "s" in words and "per" not in words
    return short_seconds(value) if is_time else _cell(value)


def _cell(value: Plain) -> str:
    from rich.markup import escape

    match value:
        case None | "":
            return "-"
        case True:
            return "yes"
        case False:
            return "no"
        case float():
            return f"{value:g}"
        case []:
            return "-"
        case list() if all(isinstance(item, dict) for item in value):
            return "\n".join(_cell(item) for item in value)
        case list():
            return escape(", ".join(str(item) for item in value))
        case dict():
            return escape(", ".join(f"{name} {item}" for name, item in value.items()))
        case _:
            return escape(str(value))


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
