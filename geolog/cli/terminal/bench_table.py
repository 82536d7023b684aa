"""Table of `geolog bench append`: one row a load, in the units of people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from geolog.cli.terminal.table import Cell, Paint, list_lines
from geolog.settings.quantities import short_bytes, short_rate, short_seconds

_HEADINGS = (
    "load",
    "records/s",
    "throughput",
    "floor",
    "of floor",
    "goal",
    "p50",
    "p99",
    "p99.9",
    "max",
    "group write",
)

_MEASURES = (
    *("WebSocket hop throughput", "WebSocket hop p50"),
    *("rate", "throughput", "group write", "p50", "p99", "p99.9", "max"),
)
"""The ends of the names of figures; those that others end with come later."""

_MISSING = Cell("-", is_number=True)


class Measured(Protocol):
    """A figure, as benchmarks make them."""

    @property
    def name(self) -> str:
        """The load and the measure, e.g. `1KiB p50`."""
        ...

    @property
    def value(self) -> float:
        """In records/s, MB/s, bytes or ms, by its measure."""
        ...

    @property
    def floor(self) -> float | None:
        """The same of the disk alone, if that was measured."""
        ...

    @property
    def ratio(self) -> float | None:
        """Value divided by floor."""
        ...

    @property
    def goal(self) -> str | None:
        """Bound of the value, in words."""
        ...


def bench_lines(figures: Sequence[Measured], width: int | None, paint: Paint) -> Iterator[str]:
    """Yield the table of these figures, with a row for each load."""
    loads: dict[str, dict[str, Measured]] = {}
    for figure in figures:
        load, measure = _parts(figure.name)
        loads.setdefault(load, {})[measure] = figure
    rows = [_row(load, found) for load, found in loads.items()]
    yield from list_lines(_HEADINGS, rows, width, paint)


def _parts(name: str) -> tuple[str, str]:
    measure = next(one for one in _MEASURES if name.endswith(f" {one}"))
    load = name.removesuffix(f" {measure}")
    if measure.startswith("WebSocket hop"):
        return f"{load} WebSocket hop", measure.removeprefix("WebSocket hop ")
    return load, measure


def _row(load: str, found: Mapping[str, Measured]) -> list[Cell]:
    """Row of one load. Its floor is that of the throughput, or of the p50 without one."""
    judged = found.get("throughput") or found.get("p50")
    floor = ratio = None
    if judged is not None and judged.floor is not None and judged.ratio is not None:
        is_rate = "throughput" in found
        floor = _rate(judged.floor) if is_rate else _time(judged.floor)
        ratio = f"{judged.ratio:.0%}" if is_rate else f"{judged.ratio:.3g}x"
    goal = None if judged is None else judged.goal
    rate, group = found.get("rate"), found.get("group write")
    through = found.get("throughput")
    return [
        Cell(load),
        _number(None if rate is None else f"{rate.value:,.0f}"),
        _number(None if through is None else _rate(through.value)),
        _number(floor),
        _number(ratio),
        Cell((goal or "-").replace(" of the floor", "").replace(" x the floor", "x")),
        *(
            _number(_time(found[name].value) if name in found else None)
            for name in ("p50", "p99", "p99.9", "max")
        ),
        _number(None if group is None else short_bytes(group.value)),
    ]


def _number(text: str | None) -> Cell:
    return _MISSING if text is None else Cell(text, is_number=True)


def _rate(megabytes_per_s: float) -> str:
    return short_rate(megabytes_per_s * 1e6)


def _time(milliseconds: float) -> str:
    return short_seconds(milliseconds / 1e3)
