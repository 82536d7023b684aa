"""Locations of nodes: as registered, unless a table or a script overrides them.

A table is TOML, node or pattern to location, first match wins:

    [locations]
    "node-7" = "/eu-west/rack-3"
    "eu-*" = "/eu-west/rack-1"

A script runs elsewhere; its output for each node comes here. Locations are taken over only if
all of them are valid.

Rules: PROTOCOL P9.
"""

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError
from topology.json_values import structured
from topology.location import Location


@attrs.frozen
class _Document:
    locations: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class StaticTable:
    """Locations by node, or by a pattern with `*` and `?`."""

    rows: Mapping[str, Location]

    @classmethod
    def parse(cls, text: str, where: str) -> "StaticTable":
        """Parse the TOML; InvalidConfigError with `where` and the problem."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidConfigError(f"{where} is not TOML: {error}") from None
        given = structured(document, _Document, where, InvalidConfigError)
        return cls(located(given.locations, where))

    def location_of(self, node: str) -> Location | None:
        """Location of the node; None if no row matches."""
        exact = self.rows.get(node)
        if exact is not None:
            return exact
        for pattern, location in self.rows.items():
            if fnmatch.fnmatchcase(node, pattern):
                return location
        return None


def located(texts: Mapping[str, str], where: str) -> dict[str, Location]:
    """Parse locations, all of one depth; InvalidConfigError names the bad node."""
    found: dict[str, Location] = {}
    for node, text in texts.items():
        try:
            found[node] = Location.parse(text)
        except InvalidArgumentError as error:
            raise InvalidConfigError(f"{where}: node {node!r}: {error}") from None
    _check_one_depth(found)
    return found


def resolved(
    nodes: Iterable[str],
    *,
    registered: Mapping[str, Location],
    table: StaticTable | None = None,
    scripted: Mapping[str, Location] | None = None,
    default: Location,
) -> dict[str, Location]:
    """A location for each node: from the script, the table, its registration, or the default.

    InvalidConfigError if their depths differ; then none should be taken over.
    """
    found: dict[str, Location] = {}
    for node in nodes:
        location = None if scripted is None else scripted.get(node)
        if location is None and table is not None:
            location = table.location_of(node)
        found[node] = location or registered.get(node) or default
    _check_one_depth(found)
    return found


def _check_one_depth(found: Mapping[str, Location]) -> None:
    first = next(iter(found.items()), None)
    for node, location in found.items():
        if first is not None and location.depth != first[1].depth:
            raise InvalidConfigError(
                f"location {location} of node {node!r} has {location.depth}"
                f" parts, {first[1]} of {first[0]!r} has {first[1].depth}: give all nodes"
                " locations of the same depth"
            )
