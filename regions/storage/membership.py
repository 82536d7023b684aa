"""A node's live record in metadata: there while its session is, and true about its state."""

import logging

import trio

from geolog.metadata.documents import seal_document
from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    Create,
    Delete,
    Metadata,
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    SessionState,
)
from topology.errors import OutcomeUnknownError, UnavailableError

_log = logging.getLogger(__name__)

_RETRY_S = 0.5
"""Pause before metadata that did not answer is asked again."""


class Membership:
    """Keeps the live record. `run` does the work, after the first `register`."""

    def __init__(self, metadata: Metadata, cluster: str, record: NodeRecord) -> None:
        self._metadata = metadata
        self._path = ClusterPaths(cluster).node_live(record.instance)
        self._record = record
        self._stale = trio.Event()

    def set_state(self, state: NodeState) -> None:
        """Tell others what the node takes now."""
        if state is not self._record.state:
            record = self._record
            self._record = NodeRecord(
                record.node_id, record.instance, record.address, record.location, state
            )
            self._stale.set()

    async def register(self) -> None:
        """Make the live record, in place of one that an older session left."""
        create = Create(self._path, seal_document(self._record), is_ephemeral=True)
        try:
            await self._metadata.multi([create])
        except NodeExistsError:
            await self._metadata.multi([Delete(self._path), create])

    async def run(self) -> None:
        """Register again when the session or the node's state has changed; never returns."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_session)
            while True:
                await self._stale.wait()
                self._stale = trio.Event()
                try:
                    await self.register()
                except (
                    NodeExistsError,
                    NoNodeError,
                    SessionLostError,
                    UnavailableError,
                    OutcomeUnknownError,
                ) as error:
                    _log.warning("cannot say in metadata that this node is up: %s", error)
                    await trio.sleep(_RETRY_S)
                    self._stale.set()

    async def leave(self) -> None:
        """Take the live record away; if that fails it goes with the session."""
        try:
            await self._metadata.delete(self._path)
        except (NoNodeError, SessionLostError, UnavailableError, OutcomeUnknownError) as error:
            _log.warning("cannot say in metadata that this node leaves: %s", error)

    async def _follow_session(self) -> None:
        seen = self._metadata.session_state
        while True:
            seen = await self._metadata.wait_state_change(seen)
            if seen is SessionState.CONNECTED:
                self._stale.set()
