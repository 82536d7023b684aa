"""Lays out the matrix of round trips between regions: a row of each region that measures.

A cell has the last round trip. Its colour compares that with the median of the last few: a
region that answers as usual, clearly later than usual, or not at all.
"""

from collections.abc import Iterator

from geolog.admin.region_latency import LatencyMatrix, LatencyRow, RegionDistance
from geolog.cli.terminal.table import Cell, Paint, Tone, list_lines, unpainted
from geolog.settings.quantities import short_seconds

USUAL_MAX = 1.5
"""A round trip up to this many times the median is as usual."""

LATE_MIN = 3.0
"""From this many times the median on, it is far too late."""

LATE_S_MIN = 0.002
"""Differences below this are noise."""


def latency_lines(
    matrix: LatencyMatrix, width: int | None, paint: Paint = unpainted
) -> Iterator[str]:
    """Yield the lines of the table."""
    rows = {row.region: row for row in matrix.rows}
    names = sorted({*matrix.regions, *rows})
    yield from list_lines(
        ["from \\ to", *matrix.regions],
        [[Cell(name), *_cells(rows.get(name), matrix.regions)] for name in names],
        width,
        paint,
    )


def _cells(row: LatencyRow | None, regions: list[str]) -> Iterator[Cell]:
    distances = {} if row is None else {one.region: one for one in row.to}
    for region in regions:
        distance = distances.get(region)
        yield Cell("-", is_number=True) if distance is None else _cell(distance)


def _cell(distance: RegionDistance) -> Cell:
    if distance.is_silent:
        return Cell("silent", is_number=True, tone="bad")
    if distance.last_s is None or distance.rtt_s is None:
        return Cell("-", is_number=True)
    text = short_seconds(distance.last_s)
    return Cell(text, is_number=True, tone=_tone(distance.last_s, distance.rtt_s))


def _tone(last_s: float, median_s: float) -> Tone:
    if last_s <= USUAL_MAX * median_s or last_s - median_s <= LATE_S_MIN:
        return "good"
    return "bad" if last_s >= LATE_MIN * median_s else "warn"
