"""One relay: a member of its region's relay group, with bridges while it coordinates.

Theory of operation. One endpoint takes the bridges of targets, listeners to reports, and the
watches of other members. Bridges are served by the coordinator alone; others say which member
it is. Coordinator and standby both keep the newest entries of the region's relayed streams.

Rules: PROTOCOL B1, G3 and G4.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial

import attrs
import trio

from geolog.background import all_of, open_background
from geolog.client.connect import open_log
from geolog.client.log import Log, LogConfig
from geolog.metadata.relays import RelayGroups, RelayMemberRecord
from geolog.metadata.seam import Metadata
from geolog.protocol.failover_record import HeardTailsReport
from geolog.transport.message_socket import MessageSocket, MessageTransport, SocketClosedError
from geolog.transport.seam import (
    Address,
    ByteStream,
    ConnectionFailedError,
    Listener,
    Transport,
)
from geolog.transport.tls import HANDSHAKE_S, TlsIdentity, TlsTransport, accepted
from geolog.transport.websocket import WebSockets
from geolog.wire.multicast import MULTICAST_PATH
from geolog.wire.relay_report import (
    REPORT_PATH,
    SUBPROTOCOL_HEARD,
    SUBPROTOCOL_REPORT,
    encode_heard,
    encode_report,
)
from geolog.wire.session.codes import CLOSE_NORMAL, Code, close_code
from relay.bridge.bridge_ends import MULTICASTS, BridgeConfig, BridgeEnds, refuse
from relay.bridge.heard_tails import HeardTails
from relay.bridge.home_feed import FeedConfig, HomeFeeds
from relay.bridge.multicast_inlet import MulticastInlet
from relay.bridge.relay_reports import REPORT_S, coverage_report
from relay.bridge.standby_follower import StandbyFollower
from relay.bridge.target_bridge import BRIDGE_PATH
from relay.group.relay_group import GROUP_PATH, SUBPROTOCOL_GROUP, RelayGroup
from relay.protocol.bridge_messages import BridgeRefused
from relay.protocol.group_member import GroupRole
from relay.protocol.outgoing_link import LinkBounds
from relay.protocol.standby_buffer import BufferBounds
from relay.server.config import RelayConfig
from relay.server.homes import dial_homes
from relay.server.http import RelayHttpPort, RelayView
from relay.wire.bridge import MESSAGE_BYTES_MAX, SUBPROTOCOL_BRIDGE
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_SUBPROTOCOLS = (
    SUBPROTOCOL_BRIDGE,
    SUBPROTOCOL_GROUP,
    SUBPROTOCOL_REPORT,
    SUBPROTOCOL_HEARD,
    *MULTICASTS,
)
_REFUSAL = f"no known subprotocol was offered; this endpoint has {', '.join(_SUBPROTOCOLS)}\n"
_CONNECTIONS_MAX = 1000
"""Regions, and members of a group, are few; more connections than this wait."""

_CLAIM_SEEN_S = 0.5
"""How long a bridge waits for this relay to notice that it coordinates."""

_RESTED_S = 0.5
"""How long such a coordinator waits for answers to what it has sent; a target may be away."""

_SUCCEEDED_S = 2.0
"""How long a coordinator that leaves waits for its successor."""


class Relay:
    """A relay that serves."""

    def __init__(
        self, relay_id: str, address: Address, config: RelayConfig, seams: "_Seams", log: Log
    ) -> None:
        self.relay_id = relay_id
        self.address = address
        self.ends: BridgeEnds | None = None
        """Its bridges while it coordinates."""
        self.http_address: Address | None = None
        """Where it takes HTTP."""
        self.bugs_count = 0
        """Connections that an error other than geolog's own has ended."""
        self._config = config
        self._seams = seams
        self._log = log
        self._groups = RelayGroups(seams.metadata, seams.cluster)
        self._has_begun = trio.Event()
        self._heard = HeardTails(seams.now_us)
        self._feeds: HomeFeeds | None = None
        self._feeding = trio.CancelScope()
        self._dialling = trio.CancelScope()
        self._served: dict[trio.CancelScope, None] = {}  # In an order that a run can repeat.
        self._nursery: trio.Nursery | None = None
        self._failure_last = ""
        self.group = RelayGroup(
            metadata=seams.metadata,
            groups=self._groups,
            messages=seams.messages,
            record=RelayMemberRecord(relay_id=relay_id, region=config.region, address=address),
            coordinate=self._coordinate,
            on_role=self._on_role,
        )

    def __repr__(self) -> str:
        return f"Relay({self.relay_id}: {self.role.value})"

    @property
    def role(self) -> GroupRole:
        """Its place in its group now."""
        return self.group.role

    @property
    def feeds(self) -> HomeFeeds | None:
        """The newest entries of the region's relayed streams; None while it only waits."""
        return self._feeds

    @property
    def view(self) -> RelayView:
        """Its state as its HTTP port shows it."""
        return RelayView(
            relay_id=self.relay_id,
            region=self._config.region,
            role=lambda: self.role,
            reports=lambda: None if self.ends is None else self.ends.reports,
            feeds=lambda: self._feeds,
            damaged_count=lambda: 0 if self.ends is None else self.ends.damaged_count,
        )

    async def run(self, listener: Listener) -> None:
        """Be a member of the group, and serve; never returns."""
        async with open_background() as self._nursery:
            self._nursery.start_soon(self.group.run)
            room = trio.CapacityLimiter(_CONNECTIONS_MAX)
            while True:
                token = object()
                await room.acquire_on_behalf_of(token)
                stream = await listener.accept()
                release = partial(room.release_on_behalf_of, token)
                self._nursery.start_soon(self._serve, stream, release)

    async def leave(self) -> None:
        """Let another member coordinate, then close the bridges.

        Before that all that was sent, in both directions, becomes durable: nothing is sent
        again. Mirrors are closed meanwhile, and taken over by the other one in any case.
        """
        ends = self.ends  # None as soon as another relay coordinates.
        if ends is not None:
            rests = [one.rest for one in ends.served]
            rests += [one.rest for one in ends.dialled.values()]
            with trio.move_on_after(_RESTED_S):
                await all_of(rests)
                await ends.reports.rest()
            self._dialling.cancel(reason="this relay leaves")
        with trio.move_on_after(_SUCCEEDED_S), suppress(GeologError):
            await self.group.leave()
        if ends is not None:
            with trio.move_on_after(_SUCCEEDED_S):
                await all_of([bridge.leave for bridge in ends.served])

    # The endpoint.

    async def _serve(self, stream: ByteStream, release: Callable[[], None]) -> None:
        try:
            secured, is_tls = await self._secured(stream)
            if secured is None:
                return
            await self._seams.messages.serve(
                secured,
                _choose,
                partial(self._handle, is_tls=is_tls),
                refusal=_REFUSAL,
                message_bytes_max=MESSAGE_BYTES_MAX,
            )
        except* Exception as errors:  # noqa: BLE001 - one peer's bug must not end the others.
            self.bugs_count += 1
            _log.error("a connection met a bug; it ends, the relay goes on", exc_info=errors)
        finally:
            stream.close()
            release()

    async def _secured(self, stream: ByteStream) -> tuple[ByteStream | None, bool]:
        """The connection, and whether it is over TLS; none if it cannot be used."""
        if not self._seams.may_be_tls:
            return stream, False
        try:
            with trio.move_on_after(HANDSHAKE_S):
                return await accepted(stream, self._seams.identity)
        except ConnectionFailedError as error:
            # One that dials again has another port, and tells nothing new.
            reason = str(error).replace(stream.peer, "")
            if reason != self._failure_last:
                _log.warning("%s", error)
            self._failure_last = reason
        return None, False

    async def _handle(self, socket: MessageSocket, target: str, *, is_tls: bool) -> None:
        if target == GROUP_PATH:
            with suppress(SocketClosedError):
                while True:  # The transport answers pings; members say nothing else.
                    await socket.receive()
            return
        feeds = self._feeds
        if target == MULTICAST_PATH:
            if feeds is not None:
                inlet = MulticastInlet(feeds, relay_epoch=self._relay_epoch)
                await inlet.serve(socket)
            else:  # An owner may know of it earlier than it knows of its own place.
                await socket.close(close_code(Code.UNAVAILABLE), self._why_not())
            return
        if target == BRIDGE_PATH and self._seams.identity is not None and not is_tls:
            await refuse(
                socket,
                BridgeRefused(
                    Code.FORBIDDEN,
                    f"{self.relay_id} takes bridges over TLS alone: start the relays of your"
                    " region with a certificate, too (--tls-certificate)",
                ),
            )
            return
        if target == REPORT_PATH and socket.subprotocol == SUBPROTOCOL_HEARD:
            with suppress(SocketClosedError):
                await socket.send(encode_heard(HeardTailsReport(self._heard.all())))
                await socket.close(CLOSE_NORMAL, "this is all")
            return
        if target == REPORT_PATH and self.ends is None and feeds is not None:
            await self._report_coverage(socket, feeds)
            return
        if self.ends is None:  # Others may see its claim in metadata before it does.
            with trio.move_on_after(_CLAIM_SEEN_S):
                await self._has_begun.wait()
        if self.ends is None:
            await refuse(socket, BridgeRefused(Code.UNAVAILABLE, self._why_not()))
        else:
            with trio.CancelScope() as scope:
                self._served[scope] = None
                try:
                    await self.ends.handle(socket, target)
                finally:
                    self._served.pop(scope, None)

    async def _report_coverage(self, socket: MessageSocket, feeds: HomeFeeds) -> None:
        """Tell what this member's buffers have, until it coordinates."""
        with suppress(SocketClosedError):
            while self.ends is None:
                await socket.send(encode_report(coverage_report(feeds, self.relay_id)))
                await trio.sleep(REPORT_S)

    def _why_not(self) -> str:
        view = None if self.group.seen is None else self.group.seen.view
        now = "none yet" if view is None else f"{view.relay_id} at {view.address}"
        return (
            f"{self.relay_id} is {self.role.value} in {self._config.region}; its coordinator"
            f" is {now}"
        )

    # Work of a coordinator and its standby.

    def _on_role(self, role: GroupRole) -> None:
        """Keep the newest entries while this member coordinates, or would."""
        if role in (GroupRole.COORDINATOR, GroupRole.STANDBY):
            self._keep_feeds()
        elif self._feeds is not None:
            self._feeding.cancel(reason=f"this member is {role.value}")
            self._feeds = None

    def _keep_feeds(self) -> HomeFeeds:
        config = self._config
        if self._feeds is None:
            self._feeds = HomeFeeds(
                region=config.region,
                log=self._log,
                now_us=self._seams.now_us,
                config=FeedConfig(
                    buffer=BufferBounds(
                        entries_max=config.buffer_entries,
                        bytes_max=config.buffer_bytes,
                        age_s_max=config.buffer_age_s,
                    ),
                    buffered_bytes_max=config.buffers_bytes,
                ),
            )
            self._feeding = trio.CancelScope()
            assert self._nursery is not None
            self._nursery.start_soon(self._feed, self._feeds, self._feeding)
        return self._feeds

    async def _feed(self, feeds: HomeFeeds, scope: trio.CancelScope) -> None:
        follower = StandbyFollower(
            feeds, self._log.links, lambda: self.role is GroupRole.COORDINATOR
        )
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(follower.run)
                await feeds.run()

    async def _coordinate(self, epoch: int) -> None:
        """Hold all bridges in this epoch, until it is cancelled."""
        config = self._config
        ends = BridgeEnds(
            region=config.region,
            relay_epoch=epoch,
            log=self._log,
            messages=self._seams.bridge_messages,
            now_us=self._seams.now_us,
            config=BridgeConfig(
                link=LinkBounds(
                    bytes_per_s_max=config.link_bandwidth_bytes_per_s or None,
                    ahead_bytes_max=config.window_bytes // 2,
                ),
                window_bytes=config.window_bytes,
                redial_s=config.redial_s,
            ),
            feeds=self._keep_feeds(),
            heard=self._heard,
            member=self.relay_id,
            standby=self._standby,
        )
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(ends.run)
                self.ends = ends
                self._has_begun.set()
                nursery.start_soon(self._dial_homes, ends)
        finally:
            self.ends, self._has_begun = None, trio.Event()
            for scope in self._served:
                scope.cancel(reason="this relay coordinates no more")

    async def _dial_homes(self, ends: BridgeEnds) -> None:
        with trio.CancelScope() as self._dialling:
            await dial_homes(ends, self._groups)

    def _relay_epoch(self) -> int | None:
        return None if self.ends is None else self.ends.relay_epoch

    def _standby(self) -> str | None:
        standby = None if self.group.seen is None else self.group.seen.standby
        return None if standby is None else standby.record.relay_id


@attrs.frozen(kw_only=True)
class _Seams:
    """The outside of a relay."""

    metadata: Metadata
    transport: Transport
    messages: MessageTransport
    bridge_messages: MessageTransport
    identity: TlsIdentity | None
    may_be_tls: bool
    cluster: str
    rng: random.Random
    now_us: Callable[[], int]
    log_config: LogConfig | None


@asynccontextmanager
async def open_relay(
    config: RelayConfig,
    *,
    metadata: Metadata,
    transport: Transport,
    cluster: str,
    rng: random.Random,
    now_us: Callable[[], int],
    messages: MessageTransport | None = None,
    log_config: LogConfig | None = None,
) -> AsyncIterator[Relay]:
    """Serve while the block lasts; it begins once this relay is a member of its group.

    messages: carries bridges; WebSockets over the transport if None.
    log_config: of the log that is relayed, and of the mirrors; the defaults if None.

    When it ends, also by cancellation, another member coordinates before the bridges close.
    """
    identity = config.identity
    secured = transport if identity is None else TlsTransport(transport, identity)
    seams = _Seams(
        metadata=metadata,
        transport=transport,
        messages=messages or WebSockets(transport),
        bridge_messages=messages or WebSockets(secured),
        identity=identity,
        may_be_tls=messages is None,
        cluster=cluster,
        rng=rng,
        now_us=now_us,
        log_config=log_config,
    )
    to_end = trio.Event()
    async with open_background() as nursery:
        try:
            yield await nursery.start(_serve, config, seams, to_end)
        finally:
            to_end.set()


async def _serve(
    config: RelayConfig,
    seams: _Seams,
    to_end: trio.Event,
    *,
    task_status: trio.TaskStatus[Relay],
) -> None:
    """Serve until `to_end`, then leave. Cancellation from outside only begins the leaving."""
    with ExitStack() as stack:
        listener = await seams.transport.listen(config.listen)
        stack.callback(listener.close)
        http = None
        if config.http is not None:
            http = await seams.transport.listen(config.http)
            stack.callback(http.close)
        with trio.CancelScope() as scope:
            await _serve_at(listener, http, config, seams, scope, to_end, task_status)


async def _serve_at(
    listener: Listener,
    http: Listener | None,
    config: RelayConfig,
    seams: _Seams,
    scope: trio.CancelScope,
    to_end: trio.Event,
    task_status: trio.TaskStatus[Relay],
) -> None:
    address = config.advertise or listener.address
    relay_id = config.relay_id or str(address)
    async with (
        open_log(
            metadata=seams.metadata,
            transport=seams.transport,
            cluster=seams.cluster,
            region=config.region,
            who=f"relay {relay_id} in {config.region}",
            rng=seams.rng,
            now_us=seams.now_us,
            config=seams.log_config,
            messages=seams.messages,
        ) as log,
        open_background() as nursery,
    ):
        relay = Relay(relay_id, address, config, seams, log)
        nursery.start_soon(relay.run, listener)
        if http is not None:
            relay.http_address = http.address
            nursery.start_soon(RelayHttpPort(http, relay.view, nursery).run)
        await relay.group.is_joined.wait()
        scope.shield = True
        task_status.started(relay)
        await to_end.wait()
        await relay.leave()


def _choose(offered: Sequence[str]) -> str | None:
    return next((one for one in offered if one in _SUBPROTOCOLS), None)
