"""The storage node: identity, journal, clients and metadata put together.

Order of a start: listen, prove who this is and that no journal is missing, replay it, note in
metadata how far it is and that the node is up, answer. Order of an end: clients, then the
journal, which is sealed, then the live record. When the disk fails there is no order: nothing
is answered any more, and the error ends the process.
"""

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import (
    Address,
    ByteStream,
    ConnectionFailedError,
    Listener,
    Transport,
)
from regions.storage.config import StorageConfig
from regions.storage.connection import ClientConnection, Hosted
from regions.storage.disk import Disk, DiskFailedError, DiskFullError
from regions.storage.identity import Claim, Cookie, prove_identity
from regions.storage.journal import Journal, JournalIdentity
from regions.storage.journal_end import JournalEndNote, JournalEnds
from regions.storage.membership import Membership, NodeReplacedError, NodeUpElsewhereError
from regions.storage.outbox import Budget
from regions.storage.restart import restart_journal
from regions.storage.service import StorageService
from topology.errors import DamagedBytesError, GeologError
from topology.location import Location

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5.0
"""How long an orderly end may take; after that it is an end like any other."""


_ENDING = (DiskFailedError, DiskFullError, NodeReplacedError, NodeUpElsewhereError)
"""What ends a node from within."""


@attrs.define
class ConnectionCounts:
    """Connections of a node since it started."""

    accepted: int = 0
    closed_over_limit: int = 0
    closed_over_garbage: int = 0


class StorageNode:
    """A node that answers. Got by `open_storage_node`."""

    def __init__(
        self, config: StorageConfig, cookie: Cookie, address: Address, service: StorageService
    ) -> None:
        self._config = config
        self._cookie = cookie
        self._service = service
        self._outgoing = Budget(config.outgoing_bytes_max_all)
        self._hosted = Hosted(config, service, self._outgoing, self.status)
        self._connections: dict[ClientConnection, None] = {}
        self._counts = ConnectionCounts()
        self.address = address

    def __repr__(self) -> str:
        return f"StorageNode({self.node_id}, {self._config.location}, {self.address})"

    @property
    def instance(self) -> InstanceId:
        """The node's durable identity."""
        return self._cookie.instance

    @property
    def node_id(self) -> str:
        """The node's name in its cluster."""
        return self._cookie.node_id

    @property
    def _state(self) -> NodeState:
        return NodeState.READ_ONLY if self._service.is_read_only else NodeState.WRITABLE

    def status(self) -> str:
        """How the node is: a JSON object."""
        return json.dumps(
            {
                "node_id": self.node_id,
                "instance": self.instance,
                "location": self._config.location,
                "address": str(self.address),
                "state": self._state.value,
                "connections": {"open": len(self._connections)} | attrs.asdict(self._counts),
                "outgoing_bytes": self._outgoing.used_bytes,
            }
            | attrs.asdict(self._service.statistics())
        )

    async def serve(self, listener: Listener) -> None:
        """Accept connections; never returns."""
        async with trio.open_nursery() as nursery:
            while True:
                stream = await listener.accept()
                self._counts.accepted += 1
                if len(self._connections) >= self._config.connections_max:
                    self._counts.closed_over_limit += 1
                    stream.close()
                else:
                    nursery.start_soon(self._serve_client, stream, name=f"of {stream.peer}")

    async def watch_free_space(self, disk: Disk, membership: Membership) -> None:
        """Take nothing new while too little space is left; never returns."""
        state = NodeState.WRITABLE
        while True:
            await self.look_at_free_space(disk)
            if state is not self._state:
                state = self._state
                _log.warning("%s is %s", self, state.value)
                membership.set_state(state)
            await trio.sleep(self._config.free_check_s)

    async def look_at_free_space(self, disk: Disk) -> None:
        """Allow as much to be stored as there is space for now."""
        free_bytes = await disk.free_bytes()
        in_flight_bytes = self._service.journal.statistics().in_flight_bytes
        self._service.on_space(free_bytes - in_flight_bytes - self._config.free_bytes_min)

    async def _serve_client(self, stream: ByteStream) -> None:
        connection = ClientConnection(stream, self._hosted)
        self._connections[connection] = None
        try:
            await connection.run()
        except* ConnectionFailedError:
            pass  # It left without a word.
        except* DamagedBytesError as group:
            self._counts.closed_over_garbage += 1
            _log.warning("closed the connection of %s: %s", stream.peer, group.exceptions[0])
        finally:
            del self._connections[connection]


@asynccontextmanager
async def open_storage_node(
    config: StorageConfig,
    *,
    transport: Transport,
    disk: Disk,
    metadata: Metadata,
    random_bytes: Callable[[int], bytes],
) -> AsyncIterator[StorageNode]:
    """A node that answers as long as the block runs.

    `random_bytes` gives so many bytes that nobody can guess: instance ids come from it. Raises
    DiskFailedError or DiskFullError out of the block when the disk fails.
    """
    listener = await transport.listen(config.listen)
    try:
        address = config.advertise or listener.address
        cookie = await prove_identity(
            disk,
            metadata,
            Claim(
                config.cluster,
                config.node_id or str(address),
                address,
                Location.parse(config.location),
            ),
            random_bytes=random_bytes,
        )
        end_note = JournalEndNote(metadata, config.cluster, cookie.instance)
        noted = await end_note.find()
        journal, service = await _restart(config, disk, cookie, noted, random_bytes)
        await end_note.note([journal.end])
        node = StorageNode(config, cookie, address, service)
        record = NodeRecord(cookie.node_id, cookie.instance, address, cookie.location)
        membership = Membership(metadata, config.cluster, record)
        await node.look_at_free_space(disk)
        await membership.register()
        try:
            async with _serving(node, listener, journal, membership, end_note, disk):
                yield node
        finally:
            with trio.move_on_after(_STOP_TIMEOUT_S, shield=True):
                await journal.finish()
                await service.close()
                await end_note.try_note([journal.end])
                await membership.leave()
    finally:
        listener.close()


async def _restart(
    config: StorageConfig,
    disk: Disk,
    cookie: Cookie,
    noted: JournalEnds,
    random_bytes: Callable[[int], bytes],
) -> tuple[Journal, StorageService]:
    identity = JournalIdentity(cookie.instance, cookie.cluster_id, cookie.node_id)
    found = await restart_journal(
        disk,
        identity,
        noted=noted.of(0),
        cached_bytes_max=config.tail_cache_bytes_max,
        salt_source=random_bytes,
    )
    journal = Journal(
        disk,
        identity,
        found.ledgers,
        found.entries,
        found.files,
        found.opened,
        file_bytes_max=config.journal_file_bytes,
        group_bytes_max=config.group_bytes_max,
        in_flight_bytes_max=config.in_flight_bytes_max,
        mark_idle_s=config.mark_idle_s,
        ahead_bytes=config.journal_ahead_bytes,
        salt_source=random_bytes,
    )
    service = StorageService(
        cookie.instance,
        found.ledgers,
        found.entries,
        journal,
        read_bytes_max=config.read_bytes_max,
    )
    return journal, service


@asynccontextmanager
async def _serving(
    node: StorageNode,
    listener: Listener,
    journal: Journal,
    membership: Membership,
    end_note: JournalEndNote,
    disk: Disk,
) -> AsyncIterator[None]:
    """The node's tasks. What ends the node, or the block, comes out as it is."""
    failure: GeologError | None = None
    error_of_block: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(journal.run, name="journal")
            nursery.start_soon(node.serve, listener, name="accept")
            nursery.start_soon(membership.run, name="membership")
            nursery.start_soon(end_note.run, [journal], name="journal end")
            nursery.start_soon(node.watch_free_space, disk, membership, name="free space")
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below, outside the group.
                error_of_block = error
            nursery.cancel_scope.cancel(reason="the node ends")
    except* _ENDING as group:
        failure = _first_of(group)
    if failure is not None:
        raise failure
    if error_of_block is not None:
        raise error_of_block


def _first_of(group: BaseExceptionGroup[GeologError]) -> GeologError:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, GeologError)
    return first
