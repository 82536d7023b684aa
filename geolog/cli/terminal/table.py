"""Lays out tables for people: whole words, numbers to the right, no wider than the terminal.

A cell is broken only if it is a sentence or a long list, never within an id. If a table does
not fit, its headings are stacked first; if that is not enough, each row becomes a block of
lines, one value per line. Without a width (redirected output) every row is one line.
"""

import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import attrs

Tone = Literal["plain", "head", "good", "warn", "bad"]

Paint = Callable[[str, Tone], str]
"""Adds colour to a text, or returns it unchanged."""

_GAP = "  "
_BREAKABLE_FROM = 40
"""Cells wider than this may be broken: ids and addresses are shorter."""

_BROKEN_WIDTH_MIN = 16
"""Minimum width of a broken cell."""


@attrs.frozen
class Cell:
    """One value as text, possibly of several lines."""

    text: str
    is_number: bool = False
    tone: Tone = "plain"


def unpainted(text: str, _: Tone) -> str:
    """Paint without colours."""
    return text


def list_lines(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    paint: Paint = unpainted,
) -> Iterator[str]:
    """Yield a table with a row per item; every row has a cell for each heading."""
    columns = [_Column.of([row[i] for row in rows]) for i in range(len(headings))]
    for heads in ([heading] for heading in headings), (one.split() for one in headings):
        stacked = list(heads)
        widths = _fitting_widths(columns, stacked, width)
        if widths is not None:
            yield from _table(stacked, columns, rows, widths, paint)
            return
    assert width is not None
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from document_lines(list(zip(headings, row, strict=True)), width, paint)


def document_lines(
    pairs: Sequence[tuple[str, Cell]], width: int | None, paint: Paint = unpainted
) -> Iterator[str]:
    """Yield one item, a line per name and value; long values continue on the next line."""
    names_width = max((text_width(name) for name, _ in pairs), default=0)
    room = None if width is None else width - names_width - len(_GAP)
    if room is not None and room < _BROKEN_WIDTH_MIN:
        room = None
    for name, cell in pairs:
        head = paint(_pad(name, names_width), "head")
        for line in _lines_of(cell.text, room):
            yield (head + _GAP + paint(line, cell.tone)).rstrip()
            head = " " * names_width


def text_width(text: str) -> int:
    """Return the width of a text in terminal cells."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


@attrs.frozen
class _Column:
    width: int
    is_number: bool
    is_breakable: bool

    @staticmethod
    def of(cells: Sequence[Cell]) -> "_Column":
        lines = [line for cell in cells for line in cell.text.split("\n")]
        width = max(map(text_width, lines), default=0)
        return _Column(
            width,
            is_number=any(cell.is_number for cell in cells),
            is_breakable=width > _BREAKABLE_FROM
            or (width > _BROKEN_WIDTH_MIN and any(" " in line for line in lines)),
        )


def _fitting_widths(
    columns: Sequence[_Column], heads: Sequence[Sequence[str]], width: int | None
) -> list[int] | None:
    """Find a width for each column so that all fit; None if they cannot."""
    heads_widths = [max(map(text_width, head), default=0) for head in heads]
    widths = [max(one.width, head) for one, head in zip(columns, heads_widths, strict=True)]
    if width is None:
        return widths
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    # Shrink breakable columns in turn, the widest first.
    for i in sorted(range(len(widths)), key=lambda i: -widths[i]):
        if excess > 0 and columns[i].is_breakable:
            least = max(_BROKEN_WIDTH_MIN, heads_widths[i])
            given = max(0, min(excess, widths[i] - least))
            widths[i] -= given
            excess -= given
    return widths if excess <= 0 else None


def _table(
    heads: Sequence[Sequence[str]],
    columns: Sequence[_Column],
    rows: Sequence[Sequence[Cell]],
    widths: Sequence[int],
    paint: Paint,
) -> Iterator[str]:
    height = max(map(len, heads))
    for line in range(height):
        # Shorter stacks of words align at the bottom.
        words = [head[at] if (at := line - height + len(head)) >= 0 else "" for head in heads]
        cells = [
            paint(_pad(word, width, is_number=column.is_number), "head")
            for word, width, column in zip(words, widths, columns, strict=True)
        ]
        yield _GAP.join(cells).rstrip()
    for row in rows:
        yield from _row(row, columns, widths, paint)


def _row(
    row: Sequence[Cell], columns: Sequence[_Column], widths: Sequence[int], paint: Paint
) -> Iterator[str]:
    parts = [
        _lines_of(cell.text, width if column.is_breakable else None)
        for cell, column, width in zip(row, columns, widths, strict=True)
    ]
    for line in range(max(map(len, parts))):
        cells = [
            paint(
                _pad(part[line] if line < len(part) else "", width, is_number=column.is_number),
                cell.tone,
            )
            for part, cell, column, width in zip(parts, row, columns, widths, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def _lines_of(text: str, width: int | None) -> list[str]:
    """Split a text into lines, broken between words where possible."""
    lines = text.split("\n")
    if width is None or all(text_width(line) <= width for line in lines):
        return lines
    wrapper = _Wrapper(width, break_on_hyphens=False)
    return [part for line in lines for part in wrapper.wrap(line) or [""]]


class _Wrapper(textwrap.TextWrapper):
    """Breaks a text between words, and a list without spaces after its commas."""

    wordsep_simple_re = re.compile(r"([\t\n ]+)|(?<=,)(?!\d{3}\b(?![.:]))(?=\S)")
    # Not within 1,000 records, but within 10.0.0.1:2181,127.0.0.1:2181.


def _pad(text: str, width: int, *, is_number: bool = False) -> str:
    space = " " * (width - text_width(text))
    return space + text if is_number else text + space
