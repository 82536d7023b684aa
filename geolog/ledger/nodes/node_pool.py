"""The storage nodes that a process talks to, and its connections to them.

A link stands for one instance and one use. Reads have a connection of their own, so that the
answers to a large read never delay those to adds. A link stays connected while it has users,
with growing pauses between attempts; users are notified when it comes up. A connection that
nobody has used for a while is closed. There is one task per link, none per ledger. Three more
tasks close connections to nodes that leave something unanswered, follow the list of nodes, and
push the LAC of writers that have gone idle.

Rules: PROTOCOL D3 and N14.
"""

import enum
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import attrs
import trio

from geolog.background import open_background
from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.cluster_nodes import ClusterNodes
from geolog.ledger.nodes.connection import ConnectionConfig, NodeConnection
from geolog.ledger.nodes.placement_config import PlacementConfig
from geolog.metadata.nodes import NodeRecord, list_known_nodes, list_live_nodes
from geolog.metadata.seam import Metadata
from geolog.protocol.ids import InstanceId
from geolog.transport.seam import Address, ConnectionFailedError, Transport
from topology.errors import GeologError, InvalidArgumentError, UnavailableError
from topology.location import Location
from topology.own_policy import NONE_KNOWN, OwnPolicies
from topology.region_round_trips import RegionRoundTrips

_log = logging.getLogger(__name__)

LAC_PUSH_TURNS = 3
"""Turns of the event loop that a writer is idle before its LAC is pushed."""

# This is the extra delay of a record at the tail when no other record follows. The turns give
# the application, whose append was just answered, time to add again. If it does so at once, as
# one that waits for each answer does, its next add carries the LAC and nothing is pushed. A
# timer would be longer than most appends: the event loop sleeps in whole milliseconds.


class LinkUse(enum.Enum):
    """Purpose of a connection."""

    WRITING = "writing"
    """Adds, fences, and other small messages."""
    READING = "reading"
    """Reads and follows."""


class LinkUser(Protocol):
    """A user of a node's connection, notified each time it comes up."""

    def on_link_up(self, instance: InstanceId, connection: NodeConnection) -> None:
        """The connection is new: nothing sent before it will be answered."""
        ...

    def on_link_down(self, instance: InstanceId, why: str) -> None:
        """The node cannot be reached; the link tries again after a pause."""
        ...


class LacPusher(Protocol):
    """A writer with a LAC that readers may be waiting for."""

    def push_lac_nowait(self) -> None:
        """Send the LAC to the members, unless an add has carried it since."""
        ...


@attrs.frozen(kw_only=True)
class PoolConfig:
    """How a process connects to storage nodes."""

    connection: ConnectionConfig = attrs.field(factory=ConnectionConfig)
    """Limits of each connection."""

    retry_delay_s_min: float = 0.1
    """First pause before connecting again to an unreachable node; doubles each time."""

    retry_delay_s_max: float = 2.0
    """Longest pause before connecting again."""

    watch_interval_s: float = 0.5
    """How often to check for nodes that leave something unanswered."""

    nodes_refresh_s: float = 5.0
    """How often to read the list of nodes again, even if no watch fired."""

    idle_s: float = 60.0
    """How long to keep an unused connection."""

    placement: PlacementConfig = attrs.field(factory=PlacementConfig)
    """How to choose nodes for new entries, and replicas for reads."""


class NodeLink:
    """A process's connection to one instance, for one use."""

    def __init__(self, pool: "NodePool", instance: InstanceId, use: LinkUse) -> None:
        self._pool = pool
        self.instance = instance
        self.use = use
        self.connection: NodeConnection | None = None
        self.why_down = "not tried yet"
        self._users: dict[LinkUser, None] = {}
        self._wanted = trio.Event()
        self._waiting_count = 0
        self._bells: dict[Bell, None] = {}
        self._changed = trio.Event()
        self._wanted_s = trio.current_time()
        self.is_resting = False

    def subscribe(self, user: LinkUser) -> None:
        """Keep the link up for this user, and notify it at once if the link is up already."""
        self._users[user] = None
        self._wanted.set()
        if self.connection is not None:
            user.on_link_up(self.instance, self.connection)
        elif self.is_resting:
            user.on_link_down(self.instance, self.why_down)

    def unsubscribe(self, user: LinkUser) -> None:
        """Stop keeping the link up for this user."""
        self._users.pop(user, None)

    async def wait_connection(self) -> NodeConnection:
        """Return the connection, waiting for an attempt under way.

        ConnectionFailedError if that attempt fails, or at once while the link pauses after a
        failure, so that the caller can try other replicas.
        """
        if self.is_resting:
            raise ConnectionFailedError(self.why_down)
        self._wanted_s = trio.current_time()
        self._waiting_count += 1
        self._wanted.set()
        try:
            while self.connection is None:
                await self._changed.wait()
                if self.connection is None:
                    raise ConnectionFailedError(self.why_down)
            return self.connection
        finally:
            self._waiting_count -= 1

    def connection_nowait(self, bell: Bell) -> NodeConnection | None:
        """The connection; None while an attempt is under way, whose end will ring the bell.

        ConnectionFailedError while the link pauses after a failure. A caller that does not wait
        any longer calls `forget`.
        """
        if self.is_resting:
            raise ConnectionFailedError(self.why_down)
        self._wanted_s = trio.current_time()
        if self.connection is None:
            self._bells[bell] = None
            self._wanted.set()
        return self.connection

    def forget(self, bell: Bell) -> None:
        """Do not ring this bell."""
        self._bells.pop(bell, None)

    def give_up_if_idle(self) -> None:
        """Close the connection if it has been unused for a while."""
        connection = self.connection
        if connection is None or self._users or not connection.is_idle:
            self._wanted_s = trio.current_time()
        elif trio.current_time() - self._wanted_s > self._pool.config.idle_s:
            connection.break_off("unused for a while")

    def _announce(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        bells, self._bells = self._bells, {}
        for bell in bells:
            bell.ring()

    async def run(self) -> None:
        """Keep the link up while it is wanted; never returns."""
        delay_s = self._pool.config.retry_delay_s_min
        while True:
            if not self._users and not self._waiting_count and not self._bells:
                self._wanted = trio.Event()
                await self._wanted.wait()
            was_up = await self._connect_once()
            self._announce()
            if not was_up:
                for user in list(self._users):
                    user.on_link_down(self.instance, self.why_down)
            delay_s = (
                self._pool.config.retry_delay_s_min
                if was_up
                else min(2 * delay_s, self._pool.config.retry_delay_s_max)
            )
            self.is_resting = True
            await trio.sleep(delay_s * self._pool.rng.uniform(0.5, 1.0))
            self.is_resting = False

    async def _connect_once(self) -> bool:
        """Run one connection from start to end. Returns whether it ever came up."""
        was_up = False

        def on_ready(connection: NodeConnection) -> None:
            nonlocal was_up
            if connection.instance != self.instance:
                connection.break_off(
                    f"expected instance {self.instance}, but {connection.instance} answered:"
                    " the node was replaced"
                )
                return
            was_up = True
            self._pool.note_greeting(connection)
            self.connection = connection
            self._announce()
            for user in list(self._users):
                user.on_link_up(self.instance, connection)

        try:
            address = await self._pool.address_of(self.instance)
            with trio.fail_after(self._pool.config.connection.connect_timeout_s):
                stream = await self._pool.transport.connect(address)
        except trio.TooSlowError:
            self.why_down = f"node {self.instance} did not accept a connection in time"
            return False
        except GeologError as error:
            self.why_down = str(error)
            return False
        connection = NodeConnection(stream, self._pool.config.connection, str(address))
        try:
            await connection.run(cluster=self._pool.cluster, on_ready=on_ready)
        finally:
            self.connection = None
            self.why_down = connection.broken_why
        return was_up


class NodePool:
    """The links of a process, and the nodes that metadata lists; see `open_node_pool`."""

    def __init__(
        self,
        *,
        transport: Transport,
        metadata: Metadata,
        cluster: str,
        rng: random.Random,
        config: PoolConfig,
        nursery: trio.Nursery,
        own_policies: OwnPolicies = NONE_KNOWN,
    ) -> None:
        self.transport = transport
        self.cluster = cluster
        self.rng = rng
        self.config = config
        self._metadata = metadata
        self._nursery = nursery
        self._links: dict[tuple[InstanceId, LinkUse], NodeLink] = {}
        self._addresses: dict[InstanceId, Address] = {}
        self._idle_writers: dict[LacPusher, None] = {}
        self._has_idle_writers = trio.Event()
        self.round_trips = RegionRoundTrips()
        """Round trips to regions, by greetings of nodes and by probes."""
        self.nodes = ClusterNodes(
            metadata,
            cluster,
            config.placement,
            live_nodes=self.live_nodes,
            nursery=nursery,
            own_policies=own_policies,
        )

    def link(self, instance: InstanceId, use: LinkUse = LinkUse.WRITING) -> NodeLink:
        """The link to an instance, created on first use."""
        link = self._links.get((instance, use))
        if link is None:
            link = self._links[instance, use] = NodeLink(self, instance, use)
            self._nursery.start_soon(link.run, name=f"link to {instance} for {use.value}")
        return link

    def is_connected(self, instance: InstanceId, use: LinkUse) -> bool:
        """Whether a request to this instance could leave at once."""
        link = self._links.get((instance, use))
        connection = None if link is None else link.connection
        return connection is not None and not connection.is_broken

    def start_soon(self, run: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Run this in a task of the pool, which is cancelled when the pool closes."""
        self._nursery.start_soon(run, name=name)

    def links(self) -> list[NodeLink]:
        """All links created so far."""
        return list(self._links.values())

    def note_greeting(self, connection: NodeConnection) -> None:
        """A node said hello: a round trip to its region."""
        assert connection.node is not None
        try:
            location = Location.parse(connection.node.location)
        except InvalidArgumentError:
            return  # Only a node of an unknown release names such a place.
        self.round_trips.note(location.region, connection.greeting_s, trio.current_time())

    def unreachable(self) -> list[InstanceId]:
        """Instances that this process failed to reach, whatever metadata says."""
        resting = {link.instance: None for link in self._links.values() if link.is_resting}
        return list(resting)

    async def live_nodes(self) -> list[NodeRecord]:
        """The nodes that are up, according to metadata."""
        records = await list_live_nodes(self._metadata, self.cluster)
        # The caller will soon connect to some of them: save their links the lookup.
        self._addresses.update({record.instance: record.address for record in records})
        return records

    async def address_of(self, instance: InstanceId) -> Address:
        """Address of an instance. Read once, since an instance seldom moves."""
        known = self._addresses.get(instance)
        if known is None:
            for record in await list_known_nodes(self._metadata, self.cluster):
                self._addresses[record.instance] = record.address
            known = self._addresses.get(instance)
        if known is None:
            raise UnavailableError(
                f"no node of this cluster has instance {instance}: it was replaced"
            )
        return known

    def push_lac_soon(self, writer: LacPusher) -> None:
        """Push this writer's LAC shortly, unless an add carries it first."""
        self._idle_writers[writer] = None
        self._has_idle_writers.set()

    async def run_lac_pusher(self) -> None:
        """Push the LAC of idle writers; never returns."""
        while True:
            await self._has_idle_writers.wait()
            for _ in range(LAC_PUSH_TURNS):
                await trio.lowlevel.checkpoint()
            self._has_idle_writers = trio.Event()
            writers, self._idle_writers = self._idle_writers, {}
            for writer in writers:
                writer.push_lac_nowait()

    async def run_watch(self) -> None:
        """Close unused connections, and those with late answers; never returns."""
        while True:
            await trio.sleep(self.config.watch_interval_s)
            for link in self.links():
                if link.connection is not None:
                    link.connection.break_off_if_late()
                link.give_up_if_idle()

    async def run_addresses(self) -> None:
        """Follow nodes that move to another address; never returns."""
        while True:
            await trio.sleep(self.config.nodes_refresh_s)
            try:
                records = await list_known_nodes(self._metadata, self.cluster)
            except GeologError as error:
                # Keep using the last list, whether metadata is away or a record is damaged.
                if not error.retriable:
                    _log.warning("node list: cannot be read, keeping the last one (%s)", error)
                continue
            self._addresses = {record.instance: record.address for record in records}


@asynccontextmanager
async def open_node_pool(
    *,
    transport: Transport,
    metadata: Metadata,
    cluster: str,
    rng: random.Random,
    config: PoolConfig | None = None,
    own_policies: OwnPolicies = NONE_KNOWN,
) -> AsyncIterator[NodePool]:
    """Open a pool for the block. own_policies: of other packages, to place nodes by."""
    async with open_background() as nursery:
        pool = NodePool(
            transport=transport,
            metadata=metadata,
            cluster=cluster,
            rng=rng,
            config=config or PoolConfig(),
            nursery=nursery,
            own_policies=own_policies,
        )
        for run in (pool.run_lac_pusher, pool.run_watch, pool.run_addresses):
            nursery.start_soon(run)
        yield pool
