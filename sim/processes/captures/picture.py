"""Renders terminal output as a self-contained SVG, without remote fonts."""

import io
import re

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

_THEME = TerminalTheme(
    (22, 27, 34),
    (201, 209, 217),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (201, 209, 217),
    ],
)

_FORMAT = """\
<svg viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})"
clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def picture_of(output: str, *, title: str, columns: int) -> str:
    """The SVG of a terminal of `columns` columns after `output`, which may contain escapes."""
    console = Console(
        record=True, width=columns, file=io.StringIO(), highlight=False, emoji=False
    )
    for line in shown_lines(output):
        text = Text.from_ansi(line)
        # Break lines at the last column, even inside a word, as terminals do.
        for part in text.divide(range(columns, len(text), columns)):
            console.print(part, soft_wrap=True)
    name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
    svg = console.export_svg(title=title, theme=_THEME, code_format=_FORMAT, unique_id=name)
    return "\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n"


def shown_lines(output: str) -> list[str]:
    """The lines visible at the end, without text that was overwritten."""
    lines = output.replace("\r\n", "\n").split("\n")
    seen = [line.rpartition("\r")[2].removeprefix("\x1b[K") for line in lines]
    while seen and not seen[-1].strip():
        seen.pop()
    return seen
