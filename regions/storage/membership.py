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
)
from topology.errors import OutcomeUnknownError, UnavailableError

_log = logging.getLogger(__name__)

_RETRY_S = 0.5
"""Pause before metadata that did not answer is asked again."""

_NO_ANSWER_ERRORS = (
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    UnavailableError,
    OutcomeUnknownError,
)


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
        """Register again when the record is gone or untrue; never returns."""
        while True:
            try:
                await self._register_if_stale()
            except _NO_ANSWER_ERRORS as error:
                _log.warning("cannot say in metadata that this node is up: %s", error)
                await trio.sleep(_RETRY_S)
            else:
                await self._stale.wait()

    async def _register_if_stale(self) -> None:
        # A watch of the record is set too when the session ends: then it is gone, or will be.
        self._stale = trio.Event()
        found = await self._metadata.find(self._path, changed=self._stale)
        if found is None or found.data != seal_document(self._record):
            await self.register()
            await self._metadata.find(self._path, changed=self._stale)

    async def leave(self) -> None:
        """Take the live record away; if that fails it goes with the session."""
        try:
            await self._metadata.delete(self._path)
        except _NO_ANSWER_ERRORS as error:
            _log.warning("cannot say in metadata that this node leaves: %s", error)
