"""Shows where fragments lie, as a table for people: a row for each, with a picture of regions.

In the picture each region is a group of marks, one for each of its nodes, in the same order
throughout the table; a dot marks a node that is not a member. In a region with too many nodes
for that, members are counted instead.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from geolog.admin.placement.placement_description import (
    FragmentPlacement,
    NodePlace,
    PlacedMember,
    PlacementTotals,
)
from geolog.admin.placement.placement_moves import FragmentMove
from geolog.settings.quantities import short_bytes

_MARKS = {
    "up": "●",
    "readonly": "◐",
    "draining": "◑",
    "down": "○",
    "replaced": "✗",
}
_WORDS = {
    "up": "up",
    "readonly": "read-only",
    "draining": "draining",
    "down": "down",
    "replaced": "disk given up",
}
_NOBODY = "·"
_NODES_DRAWN_MAX = 12
"""Draw the nodes of a region one by one up to this number."""

_COLUMNS = (("segment", 7), ("ledger", 6), ("fragment", 8), ("entries", 9))
_JUDGED = (("adherence", 9), ("now", 6))


_GAP = "  "

_PARTS = re.compile(r"(?<=-)| ")
"""Where the name of a region may be broken."""


class PlacementTable:
    """Produces the lines of one table. `width` is that of the terminal, if there is one.

    On a narrow terminal the names of the regions are stacked; a table that is still too wide
    stays so.
    """

    def __init__(
        self,
        regions: Mapping[str, Sequence[NodePlace]],
        forbidden_regions: frozenset[str],
        *,
        width: int | None = None,
    ) -> None:
        self._terminal_width = width
        self._places = regions
        titles = {
            region: f"{region} (forbidden)" if region in forbidden_regions else region
            for region in regions
        }
        self._titles = {region: [title] for region, title in titles.items()}
        if width is not None and self._width > width:
            self._titles = {region: _PARTS.split(one) for region, one in titles.items()}
        self._widths = self._region_widths()
        self._partition: tuple[str, int] | None = None
        self._seen_states: set[str] = set()

    @property
    def _width(self) -> int:
        """Width of a line with all regions."""
        widths = [width for _, width in (*_COLUMNS, *_JUDGED)]
        widths += self._region_widths().values()
        return sum(widths) + len(_GAP) * (len(widths) - 1)

    def _region_widths(self) -> dict[str, int]:
        return {
            region: max(*map(len, parts), self._nodes_width(region))
            for region, parts in self._titles.items()
        }

    def _nodes_width(self, region: str) -> int:
        count = len(self._places[region])
        return count if count <= _NODES_DRAWN_MAX else len(f"{count}, {count} down")

    def lines(self, one: FragmentPlacement) -> Iterator[str]:
        """Yield a fragment's lines, after a heading where a partition begins."""
        if (one.stream, one.partition) != self._partition:
            if self._partition is not None:
                yield ""
            self._partition = (one.stream, one.partition)
            yield f"{one.stream}#{one.partition}, policy {one.policy}"
            yield from self._heading()
        yield self._row(one)
        if one.why:
            yield f"{'':4}{one.why}{self._next_step(one)}"

    def _heading(self) -> Iterator[str]:
        """Yield one line, or several if names are stacked; short stacks align at the bottom."""
        height = max((len(parts) for parts in self._titles.values()), default=1)
        for line in range(height):
            is_last = line == height - 1
            cells = [(name if is_last else "").rjust(width) for name, width in _COLUMNS]
            cells += [(name if is_last else "").ljust(width) for name, width in _JUDGED]
            for region, parts in self._titles.items():
                at = line - height + len(parts)
                cells.append((parts[at] if at >= 0 else "").ljust(self._widths[region]))
            yield _GAP.join(cells).rstrip()

    def _row(self, one: FragmentPlacement) -> str:
        last = "" if one.last_entry is None else one.last_entry
        entries = "none" if one.entries == 0 else f"{one.first_entry}..{last}"
        numbers = (one.segment, one.ledger, one.fragment, entries)
        cells = [
            str(value).rjust(width) for value, (_, width) in zip(numbers, _COLUMNS, strict=True)
        ]
        judged = (one.adherence, one.adherence_now)
        cells += [value.ljust(width) for value, (_, width) in zip(judged, _JUDGED, strict=True)]
        cells += [
            self._picture(region, one).ljust(self._widths[region]) for region in self._widths
        ]
        return _GAP.join(cells).rstrip()

    def _picture(self, region: str, one: FragmentPlacement) -> str:
        nodes = [place.instance for place in self._places[region]]
        here = {member.instance: member for member in one.members if member.instance in nodes}
        self._seen_states.update(member.state for member in here.values())
        if len(nodes) > _NODES_DRAWN_MAX:
            return _counted(list(here.values()))
        return "".join(_MARKS[here[node].state] if node in here else _NOBODY for node in nodes)

    def _next_step(self, one: FragmentPlacement) -> str:
        if one.is_repairable:
            return "; fix it with `geolog placement repair`"
        return f"; {one.obstacle}" if one.obstacle else ""

    def legend(self) -> Iterator[str]:
        """Yield the legend: what the marks mean, and which node each position stands for."""
        if self._partition is None:
            return
        yield ""
        marks = [
            f"{_MARKS[state]} {_WORDS[state]}" for state in _MARKS if state in self._seen_states
        ]
        yield "  ".join([*marks, f"{_NOBODY} not a member"])
        for region, places in self._places.items():
            if len(places) <= _NODES_DRAWN_MAX:
                names = f"{region}: {' '.join(place.node_id for place in places)}"
                yield from self._broken(names)
        yield ""

    def _broken(self, names: str) -> list[str]:
        """Break a list of names into lines that fit the terminal, keeping names whole."""
        if self._terminal_width is None:
            return [names]
        return textwrap.wrap(
            names,
            self._terminal_width,
            subsequent_indent=_GAP,
            break_on_hyphens=False,
            break_long_words=False,
        )


def _counted(members: Sequence[PlacedMember]) -> str:
    away = sum(member.state in ("down", "replaced") for member in members)
    return f"{len(members)}, {away} down" if away else str(len(members))


def several(count: int, noun: str) -> str:
    """Format a count with its noun: `1 segment`, `2,000 segments`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def totals_line(totals: PlacementTotals) -> str:
    """Format the totals in one line."""
    parts = [
        f"{several(totals.fragments, 'fragment')} in {several(totals.segments, 'segment')}:"
        f" {totals.strict:,} strict, {totals.soft:,} soft, {totals.fail:,} fail"
    ]
    if totals.disks_given_up:
        parts.append(f"{totals.disks_given_up:,} on a disk that was given up")
    if totals.promises_broken:
        parts.append(f"{totals.promises_broken:,} breaking the promise")
    if totals.copies_missing:
        parts.append(f"{several(totals.copies_missing, 'member')} missing")
    return "; ".join(parts)


def move_line(move: FragmentMove) -> str:
    """Format the move of one fragment in one line."""
    slots = ", ".join(
        f"slot {one.slot} from {one.from_node} ({one.from_region}) to {one.to_node}"
        f" ({one.to_region})"
        for one in move.slots
    )
    size = "" if move.bytes_about is None else f", about {short_bytes(move.bytes_about)}"
    return (
        f"{move.stream}#{move.partition} segment {move.segment} ledger {move.ledger} fragment"
        f" {move.fragment}: {slots}; {move.before} to {move.after}{size}"
    )
