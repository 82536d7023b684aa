"""The storage node: identity, data directories, clients and metadata put together.

Order of a start: listen, prove the node's identity and that no directory or journal is missing,
replay the journals, note in metadata how far they reach and that the node is up, answer. Each
step waits for metadata as long as it is away. Order of an end: clients, then the journals,
which are sealed, then the live record. When a disk fails there is no order: the node answers
nothing more, and the error ends the process.

Rules: PROTOCOL D8.
"""

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from geolog.ledger.repair_reporter import RepairReporter, open_repair_reporter
from geolog.metadata.nodes import NodeRecord, NodeState
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairQueue, RepairReason
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.transport.seam import (
    Address,
    ConnectionFailedError,
    Listener,
    Transport,
)
from regions.storage.config import StorageConfig
from regions.storage.connection import ClientConnection, Hosted
from regions.storage.cookies import Cookie
from regions.storage.disk import Disk, DiskFailedError, DiskFullError
from regions.storage.doubt import bound_doubt
from regions.storage.garbage import GarbageCollector
from regions.storage.identity import Claim, ProvenDirectory, prove_identity
from regions.storage.journal_end import JournalEndNote, JournalEnds
from regions.storage.outbox import Budget
from regions.storage.read_lane import ReadPermits
from regions.storage.registration import (
    NodeRegistration,
    NodeReplacedError,
    NodeUpElsewhereError,
    insist,
)
from regions.storage.service import StorageService
from regions.storage.store import Store, open_store
from topology.errors import DamagedBytesError, GeologError, first_of
from topology.location import Location

_log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5.0
"""Time limit of an orderly end; after that the node ends as in a crash."""


_ENDING = (DiskFailedError, DiskFullError, NodeReplacedError, NodeUpElsewhereError)
"""Errors that end a node from within."""


def _wall_clock_us() -> int:
    return time.time_ns() // 1000  # noqa: TID251 - where it is born.


@attrs.define
class ConnectionCounts:
    """Connection counts of a node since its start."""

    accepted: int = 0
    closed_over_limit: int = 0
    closed_over_garbage: int = 0


class StorageNode:
    """A running node. Returned by `open_storage_node`."""

    def __init__(
        self,
        config: StorageConfig,
        cookie: Cookie,
        address: Address,
        listener: Listener,
        service: StorageService,
        garbage: GarbageCollector,
    ) -> None:
        self.garbage = garbage
        self._config = config
        self._cookie = cookie
        self._listener = listener
        self._service = service
        self._outgoing = Budget(config.outgoing_bytes_max_all)
        self._reads = ReadPermits(config.reads_max_all)
        self._hosted = Hosted(config, service, self._outgoing, self._reads, self.status)
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
    def service(self) -> StorageService:
        """The service behind the node's connections."""
        return self._service

    @property
    def _state(self) -> NodeState:
        return NodeState.READ_ONLY if self._service.is_read_only else NodeState.WRITABLE

    def status(self) -> str:
        """The node's status as a JSON object."""
        return json.dumps(
            {
                "node_id": self.node_id,
                "instance": self.instance,
                "location": self._config.location,
                "address": str(self.address),
                "state": self._state.value,
                "connections": {
                    "open": len(self._connections),
                    "max": self._config.connections_max,
                    "failed_at_accept": self._listener.failures_count,
                }
                | attrs.asdict(self._counts),
                "outgoing_bytes": self._outgoing.used_bytes,
                "reads_open": self._reads.taken_count,
                "garbage": attrs.asdict(self.garbage.counts),
            }
            | attrs.asdict(self._service.statistics())
        )

    async def serve(self) -> None:
        """Accept connections; never returns.

        A connection over the limit is closed before anything is allocated for it. A connection
        counts from here, not from when its task runs: a flood arrives faster than tasks start.
        """
        async with trio.open_nursery() as nursery:
            while True:
                stream = await self._listener.accept()
                self._counts.accepted += 1
                if len(self._connections) >= self._config.connections_max:
                    self._counts.closed_over_limit += 1
                    stream.close()
                    continue
                connection = ClientConnection(stream, self._hosted)
                self._connections[connection] = None
                nursery.start_soon(self._serve_client, connection, name=f"of {stream.peer}")

    async def watch_free_space(self, membership: NodeRegistration) -> None:
        """Stop taking new entries where space is short; never returns.

        Others see the node as read-only as soon as one directory is: they cannot know in which
        directory a new ledger would be placed.
        """
        state = NodeState.WRITABLE
        while True:
            await self.look_at_free_space()
            if state is not self._state:
                state = self._state
                _log.warning("%s: now %s", self, state.value)
                membership.set_state(state)
            membership.set_free_bytes(self.free_bytes)
            await trio.sleep(self._config.free_check_s)

    @property
    def free_bytes(self) -> int:
        """Space left in all directories, as of the last check."""
        return sum(store.free_bytes for store in self._service.stores)

    async def look_at_free_space(self) -> None:
        """Check the free space of each directory and set what it may store."""
        for store in self._service.stores:
            await store.look_at_free_space()

    async def _serve_client(self, connection: ClientConnection) -> None:
        try:
            await connection.run()
        except* ConnectionFailedError:
            pass  # It left without a word.
        except* DamagedBytesError as group:
            self._counts.closed_over_garbage += 1
            _log.warning("connection of %s closed: %s", connection.peer, group.exceptions[0])
        finally:
            del self._connections[connection]


@asynccontextmanager
async def open_storage_node(
    config: StorageConfig,
    *,
    transport: Transport,
    disks: Sequence[Disk],
    metadata: Metadata,
    random_bytes: Callable[[int], bytes],
    now_us: Callable[[], int] = _wall_clock_us,
) -> AsyncIterator[StorageNode]:
    """Run a node that answers until the block ends.

    `disks` are all of its data directories, in any order. `random_bytes` returns that many
    unguessable bytes, for instance ids. `now_us` dates the node's reports to the repair queue.
    Raises DiskFailedError or DiskFullError out of the block when a disk fails.
    """
    listener = await transport.listen(config.listen)
    try:
        address = config.advertise or listener.address
        claim = Claim(
            config.cluster,
            config.node_id or str(address),
            address,
            Location.parse(config.location),
        )
        directories = await insist(
            "cannot check yet whose disk this is",
            partial(prove_identity, disks, metadata, claim, random_bytes=random_bytes),
        )
        cookie = directories[0].cookie
        end_note = JournalEndNote(metadata, config.cluster, cookie.instance)
        noted = await insist("cannot read the noted end of the journal yet", end_note.find)
        stores = await _open_stores(config, directories, noted, random_bytes)
        await insist(
            "cannot read the ledger counter yet",
            partial(bound_doubt, stores, metadata, config.cluster),
        )
        ends = [store.journal.end for store in stores]
        await insist("cannot note the end of the journal yet", partial(end_note.note, ends))
        service = StorageService(cookie.instance, stores, config)
        garbage = GarbageCollector(
            metadata,
            cookie,
            config,
            service.garbage_watch,
            ledgers=service.ledgers,
            delete=service.delete,
            let_go=service.let_go,
        )
        node = StorageNode(config, cookie, address, listener, service, garbage)
        record = NodeRecord(cookie.node_id, cookie.instance, address, cookie.location)
        membership = NodeRegistration(metadata, config.cluster, record)
        await node.look_at_free_space()
        membership.set_free_bytes(node.free_bytes)
        await membership.register_for_certain()
        repairs = RepairQueue(metadata, ClusterPaths(config.cluster), now_us=now_us)
        try:
            async with (
                open_repair_reporter(repairs) as reporter,
                _serving(node, service, membership, end_note),
            ):
                _report_damage(stores, reporter)
                yield node
        finally:
            with trio.move_on_after(_STOP_TIMEOUT_S, shield=True):
                for store in stores:
                    await store.finish()
                await end_note.try_note([store.journal.end for store in stores])
                await membership.leave()
    finally:
        listener.close()


def _report_damage(stores: Sequence[Store], reporter: RepairReporter) -> None:
    """Report each ledger with an entry found damaged, so that other nodes' copies repair it."""

    def report(ledger: LedgerId, _entry: EntryId) -> None:
        reporter.report_nowait(ledger, RepairReason.DAMAGED)

    for store in stores:
        store.entries.on_corrupt = report


async def _open_stores(
    config: StorageConfig,
    directories: Sequence[ProvenDirectory],
    noted: JournalEnds,
    random_bytes: Callable[[int], bytes],
) -> list[Store]:
    """Replay all directories at once: each waits for a disk of its own."""
    stores: dict[int, Store] = {}

    async def open_one(found: ProvenDirectory) -> None:
        index = found.cookie.directory
        stores[index] = await open_store(
            config,
            found.disk,
            found.cookie,
            noted=noted.of(index),
            random_bytes=random_bytes,
        )

    failure: GeologError | None = None
    try:
        async with trio.open_nursery() as nursery:
            for each in directories:
                nursery.start_soon(open_one, each, name=f"replay of {each.disk}")
    except* GeologError as group:
        failure = first_of(group)
    if failure is not None:
        raise failure
    return [stores[index] for index in sorted(stores)]


@asynccontextmanager
async def _serving(
    node: StorageNode,
    service: StorageService,
    membership: NodeRegistration,
    end_note: JournalEndNote,
) -> AsyncIterator[None]:
    """Run the node's tasks. The error that ends the node, or the block, comes out unwrapped."""
    failure: GeologError | None = None
    error_of_block: Exception | None = None
    journals = [store.journal for store in service.stores]
    try:
        async with trio.open_nursery() as nursery:
            for store in service.stores:
                _start_store(nursery, store)
            nursery.start_soon(node.serve, name="accept")
            nursery.start_soon(service.run_follow_timer, name="follow timer")
            nursery.start_soon(service.run_crowds, name="crowds of followers")
            nursery.start_soon(membership.run, name="membership")
            nursery.start_soon(end_note.run, journals, name="journal end")
            nursery.start_soon(node.garbage.run, name="garbage")
            nursery.start_soon(node.watch_free_space, membership, name="free space")
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised again below, outside the group.
                error_of_block = error
            nursery.cancel_scope.cancel(reason="the node ends")
    except* _ENDING as group:
        failure = first_of(group)
    if failure is not None:
        raise failure
    if error_of_block is not None:
        raise error_of_block


def _start_store(nursery: trio.Nursery, store: Store) -> None:
    """Start the tasks of one data directory: its journal, compaction and scrub."""
    nursery.start_soon(store.journal.run, name=f"journal {store.directory}")
    nursery.start_soon(store.compaction.run, name=f"compaction {store.directory}")
    nursery.start_soon(store.scrub.run, name=f"scrub {store.directory}")
