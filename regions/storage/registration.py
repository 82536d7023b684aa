"""A node's live record in metadata: present while its session is, and true about its state.

A record at the node's own address is left from an older session of the node, and is replaced. A
record at another address belongs to another process with the same disk's identity. Either that
process is dead, and the record goes with its session; or one of the two runs on a copy of the
disk, or on a disk that was moved. Their answers would count as one, so only one may go on.

Rules: PROTOCOL D4 and D8.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import attrs
import trio

from geolog.metadata.documents import open_document, seal_document
from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import (
    BadVersionError,
    Create,
    Delete,
    Freshness,
    Metadata,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    SessionLostError,
)
from topology.errors import ConflictError, GeologError, OutcomeUnknownError, UnavailableError

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NOTICE_S = 10.0
"""Interval between log lines that say that the node waits for metadata."""

_RETRY_S = 0.5
"""Pause before retrying when metadata did not answer."""

_SESSIONS_WAITED = 2.0
"""Session time-outs to wait for the record of a dead process to disappear."""

_FREE_STEP_SHARE = 0.25
"""Publish the free space again after it changed by this share of the published value: each
time is a write that everyone who follows the nodes receives."""

_NO_ANSWER_ERRORS = (
    NodeExistsError,
    NoNodeError,
    SessionLostError,
    UnavailableError,
    OutcomeUnknownError,
)


class NodeUpElsewhereError(ConflictError):
    """Another process runs with this disk's identity: one of the two disks is a copy."""


class NodeReplacedError(ConflictError):
    """Metadata knows another disk under this node id."""


async def wait_until_alone(metadata: Metadata, cluster: str, record: NodeRecord) -> None:
    """Wait until the node is up at no other address; NodeUpElsewhereError if it stays up."""
    path = ClusterPaths(cluster).node_live(record.instance)
    changed = trio.Event()
    other = await _find_elsewhere(metadata, path, record, changed)
    with trio.move_on_after(_SESSIONS_WAITED * metadata.session_timeout_s):
        while other is not None:
            await changed.wait()
            changed = trio.Event()
            other = await _find_elsewhere(metadata, path, record, changed)
    if other is not None:
        raise NodeUpElsewhereError(
            f"node {record.node_id} is up at {other.address} with the identity of this disk: "
            "a data directory must not be copied. End that process, or start this one as a "
            "node of its own, with an empty --data-dir and another --node-id"
        )


async def _find_elsewhere(
    metadata: Metadata, path: str, record: NodeRecord, changed: trio.Event | None = None
) -> NodeRecord | None:
    found = await metadata.find(path, changed=changed)
    if found is None:
        return None
    other = open_document(found.data, NodeRecord, path=path)
    return other if other.address != record.address else None


async def insist(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask metadata until it answers, without a time limit; log at intervals what waits.

    Raises errors that retrying cannot mend.
    """
    told_s = -math.inf
    while True:
        try:
            return await ask()
        except GeologError as error:
            if not error.retriable:
                raise
            if trio.current_time() - told_s >= _NOTICE_S:
                told_s = trio.current_time()
                _log.warning("%s: %s; retrying", what, error)
        await trio.sleep(_RETRY_S)


class NodeRegistration:
    """Keeps the live record true. `run` does the work, after `register_for_certain`."""

    def __init__(self, metadata: Metadata, cluster: str, record: NodeRecord) -> None:
        self._metadata = metadata
        self._path = ClusterPaths(cluster).node_live(record.instance)
        self._known_path = ClusterPaths(cluster).node_known(record.node_id)
        self._record = record
        self._stale = trio.Event()

    def set_state(self, state: NodeState) -> None:
        """Publish what the node accepts now."""
        if state is not self._record.state:
            self._record = attrs.evolve(self._record, state=state)
            self._stale.set()

    def set_free_bytes(self, free_bytes: int) -> None:
        """Publish the free space if it changed by a significant share."""
        told_bytes = self._record.free_bytes
        if abs(free_bytes - told_bytes) >= max(1, told_bytes * _FREE_STEP_SHARE):
            self._record = attrs.evolve(self._record, free_bytes=free_bytes)
            self._stale.set()

    async def register_for_certain(self) -> None:
        """Create the live record, and make sure that it is in the session that lasts.

        Retries as long as metadata does not answer: a node that starts together with ZooKeeper
        waits for its quorum.
        """

        async def attempt() -> bool:
            await self.register()
            found = await self._metadata.find(self._path)
            return found is not None and found.session_id == self._metadata.session_id

        while not await insist("cannot register this node yet", attempt):
            pass  # The session that created it has ended.

    async def register(self) -> None:
        """Create the live record, replacing one that an older session left.

        The same step changes the known record's version, so that nobody can replace the node
        without having seen it up. NodeReplacedError if it was replaced before.
        """
        while True:
            prove_known = await self._prove_known()
            create = Create(self._path, seal_document(self._record), is_ephemeral=True)
            try:
                await self._metadata.multi([prove_known, create])
            except NodeExistsError:
                await self._check_own()
                create_anew: list[Operation] = [prove_known, Delete(self._path), create]
                try:
                    await self._metadata.multi(create_anew)
                except (BadVersionError, NoNodeError):
                    continue
            except (BadVersionError, NoNodeError):
                continue  # The known record changed: read again whether it is still ours.
            return

    async def _prove_known(self) -> Put:
        """A change of only the version of the record that says who owns this node id."""
        found = await self._metadata.find(self._known_path, freshness=Freshness.LATEST)
        if found is not None:
            known = open_document(found.data, NodeRecord, path=self._known_path)
            if known.instance == self._record.instance:
                return Put(self._known_path, found.data, found.version)
        raise NodeReplacedError(
            f"node {self._record.node_id} was replaced: its disk, that of instance"
            f" {self._record.instance}, must not be used any more"
        )

    async def _check_own(self) -> None:
        """NodeUpElsewhereError if the live record belongs to another process."""
        other = await _find_elsewhere(self._metadata, self._path, self._record)
        if other is not None:
            raise NodeUpElsewhereError(
                f"node {other.node_id} is now up at {other.address} with the identity of this "
                f"disk; stopping this process, at {self._record.address}: one of the two disks "
                "is a copy"
            )

    async def run(self) -> None:
        """Register again when the record is gone or untrue; never returns.

        NodeUpElsewhereError when another process has taken the record; NodeReplacedError when
        the node was replaced while its session was lost.
        """
        while True:
            try:
                await self._register_if_stale()
            except _NO_ANSWER_ERRORS as error:
                _log.warning("live record not checked: %s; retrying", error)
                await trio.sleep(_RETRY_S)
            else:
                await self._stale.wait()

    async def _register_if_stale(self) -> None:
        # A watch of the record also fires when the session ends: the record is gone or will be.
        self._stale = trio.Event()
        found = await self._metadata.find(self._path, changed=self._stale)
        session = self._metadata.session_id
        found_now = found if found is not None and found.session_id == session else None
        if found_now is None or found_now.data != seal_document(self._record):
            await self.register()
            await self._metadata.find(self._path, changed=self._stale)

    async def leave(self) -> None:
        """Remove the live record; if that fails it goes with the session."""
        try:
            if await _find_elsewhere(self._metadata, self._path, self._record) is None:
                await self._metadata.delete(self._path)
        except _NO_ANSWER_ERRORS as error:
            _log.warning("live record not removed: %s; it expires with the session", error)
