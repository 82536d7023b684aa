"""Node locations as the client resolves them: from a script, a table, or the registration.

The script is run once for each node id, and its answers are kept for a while. The table is a
TOML file that is read again when it changes. If either has an error, none of its answers are
used: known locations stay, new nodes get their registered locations, and a warning gives the
reason. On the first look it is an error instead, because nothing is known yet.
"""

import logging
from collections.abc import Iterable, Mapping

import trio

from geolog.ledger.nodes.location_script import LocationScript, LocationScriptConfig
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.ids import InstanceId
from topology.errors import GeologError, InvalidConfigError
from topology.location import Location
from topology.resolvers import StaticTable, resolved
from topology.stream_policy import DEFAULT_LOCATION

_log = logging.getLogger(__name__)

_RETRY_S = 30.0
"""After a failure, keep the known locations for so long before resolving again."""


class NodeLocations:
    """Resolves the locations of nodes, repeatedly."""

    def __init__(self, config: PlacementConfig) -> None:
        self._table_path = config.locations
        self._script = _script_of(config)
        self._table: StaticTable | None = None
        self._table_stamp: tuple[int, int] | None = None
        self._known: dict[InstanceId, Location] | None = None
        self._warned: str | None = None
        self._not_before_s = float("-inf")

    async def locate(self, nodes: Iterable[NodeRecord]) -> Mapping[InstanceId, Location]:
        """Locations of these nodes. At first InvalidConfigError, UnavailableError."""
        records = list(nodes)
        if self._table_path is None and self._script is None:
            return {one.instance: one.location for one in records}
        try:
            if trio.current_time() >= self._not_before_s:
                self._known = await self._resolve(records)
                self._warned = None
        except GeologError as error:
            if self._known is None:
                raise
            self._not_before_s = trio.current_time() + _RETRY_S
            self._warn(error)
        assert self._known is not None
        known = self._known
        return {one.instance: known.get(one.instance, one.location) for one in records}

    async def _resolve(self, records: list[NodeRecord]) -> dict[InstanceId, Location]:
        table = await self._read_table()
        names = [one.node_id for one in records]
        scripted = None if self._script is None else await self._script.locate(names)
        found = resolved(
            names,
            registered={one.node_id: one.location for one in records},
            table=table,
            scripted=scripted,
            default=DEFAULT_LOCATION,
        )
        return {one.instance: found[one.node_id] for one in records}

    async def _read_table(self) -> StaticTable | None:
        path = self._table_path
        if path is None:
            return None
        try:
            status = await trio.Path(path).stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp != self._table_stamp:
                text = await trio.Path(path).read_text(encoding="utf-8")
                self._table, self._table_stamp = StaticTable.parse(text, str(path)), stamp
        except OSError as error:
            raise InvalidConfigError(
                f"cannot read the locations table {path}: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise InvalidConfigError(
                f"the locations table {path} is not UTF-8 at byte {error.start}"
            ) from error
        return self._table

    def _warn(self, error: GeologError) -> None:
        if str(error) != self._warned:
            self._warned = str(error)
            _log.warning("node locations: keeping the last known ones (%s)", error)


def _script_of(config: PlacementConfig) -> LocationScript | None:
    if config.location_script is None:
        return None
    return LocationScript(
        LocationScriptConfig(
            path=str(config.location_script),
            script_timeout_s=config.script_timeout_s,
            kept_s=config.script_kept_s,
        )
    )
