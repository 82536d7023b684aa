"""Both ends of a coordinator's bridges: it serves those of targets, and dials homes.

A bridge that fails is told why, if the other side still listens, and ends alone; a target dials
again after a pause. Bridges hold no state that the next one needs: it asks.

Rules: PROTOCOL B1, B9 and B10.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress

import attrs
import trio

from geolog.client.log import Log
from geolog.transport.message_socket import (
    MessageSocket,
    MessageTransport,
    SocketClosedError,
)
from geolog.transport.seam import Address, ByteStream, Listener
from geolog.wire.multicast import (
    MULTICAST_PATH,
    SUBPROTOCOL_MULTICAST,
    SUBPROTOCOL_MULTICAST_OF_ENTRIES,
)
from geolog.wire.relay_report import (
    REPORT_PATH,
    SUBPROTOCOL_HEARD,
    SUBPROTOCOL_REPORT,
)
from geolog.wire.session.codes import CLOSE_TOO_LARGE, Code, close_code
from relay.bridge.heard_tails import HeardTails
from relay.bridge.home_bridge import HomeBridge
from relay.bridge.home_feed import FeedConfig, HomeFeeds
from relay.bridge.mirror_keeper import MirrorKeeper, open_mirrors
from relay.bridge.multicast_inlet import MulticastInlet
from relay.bridge.relay_reports import RelayReports
from relay.bridge.target_bridge import BRIDGE_PATH, TargetBridge, dial_home
from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import BridgeHello, BridgeRefused
from relay.protocol.outgoing_link import LinkBounds, LinkBucket
from relay.wire.bridge import MESSAGE_BYTES_MAX, SUBPROTOCOL_BRIDGE, encode_bridge
from topology.errors import DamagedBytesError, GeologError, first_of

_log = logging.getLogger(__name__)

MULTICASTS = (SUBPROTOCOL_MULTICAST, SUBPROTOCOL_MULTICAST_OF_ENTRIES)

SUBPROTOCOLS = (SUBPROTOCOL_BRIDGE, SUBPROTOCOL_REPORT, SUBPROTOCOL_HEARD, *MULTICASTS)
"""All that a relay's endpoint speaks."""

REFUSED_S = 5.0
"""A side that does not read why it is refused is not waited for longer."""

_REFUSAL = f"this endpoint speaks {' and '.join(SUBPROTOCOLS)}\n"


@attrs.frozen(kw_only=True)
class BridgeConfig:
    """Bounds of a coordinator's bridges."""

    link: LinkBounds = attrs.field(factory=LinkBounds)
    """Of each link to a target."""

    feed: FeedConfig = attrs.field(factory=FeedConfig)
    """Of the buffers of relayed streams at home."""

    window_bytes: int = 64 << 20
    """Most bytes that a home may send before they are durable here."""

    redial_s: float = 0.5
    """Pause before a bridge that ended is dialled again."""


@attrs.define(kw_only=True)
class BridgeEnds:
    """The bridges of one region's coordinator."""

    region: str
    relay_epoch: int
    log: Log
    messages: MessageTransport
    now_us: Callable[[], int]
    config: BridgeConfig = attrs.field(factory=BridgeConfig)
    feeds: HomeFeeds | None = None
    """The region's relayed streams, if something else keeps them; else `run` does."""
    heard: HeardTails | None = None
    """Remembers how far homes have come, if something is to."""
    member: str = ""
    """The name of this member in its group."""
    standby: Callable[[], str | None] = lambda: None
    """The member that would go on, as far as this one knows."""
    reports: RelayReports = attrs.field(init=False)
    """Of the streams of this region; set by `run`."""
    inlet: MulticastInlet = attrs.field(init=False)
    """Takes the multicast of owners; set by `run`."""
    served: list[HomeBridge] = attrs.field(factory=list, init=False)
    """Bridges to targets that are open now."""
    dialled: dict[str, TargetBridge] = attrs.field(factory=dict, init=False)
    """Bridges to homes that are open now, by region."""
    failures: list[str] = attrs.field(factory=list, init=False)
    """Why bridges ended, the last few."""
    damaged_count: int = attrs.field(default=0, init=False)
    """Bridges that ended because the other side sent what cannot be a message: it was damaged,
    cut or too large."""
    bugs_count: int = attrs.field(default=0, init=False)
    """Bridges that an error other than geolog's own has ended."""
    _gate: BridgeGate = attrs.field(init=False)
    _buckets: dict[str, LinkBucket] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._gate = BridgeGate(self.log.cluster, self.region, self.relay_epoch)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep what `handle` needs, which is there once this has started; never returns."""
        async with trio.open_nursery() as nursery:
            if self.feeds is None:
                self.feeds = HomeFeeds(
                    region=self.region,
                    log=self.log,
                    now_us=self.now_us,
                    config=self.config.feed,
                )
                nursery.start_soon(self.feeds.run)
            self.reports = RelayReports(
                self.feeds,
                self.served,
                coordinator=self.member,
                relay_epoch=self.relay_epoch,
                standby=self.standby,
            )
            self.inlet = MulticastInlet(self.feeds, relay_epoch=lambda: self.relay_epoch)
            nursery.start_soon(self.reports.run)
            task_status.started()

    async def serve(self, listener: Listener) -> None:
        """Serve bridges of targets, and all that this needs; never returns."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.run)
            while True:
                nursery.start_soon(self._serve_one, await listener.accept())

    async def _serve_one(self, stream: ByteStream) -> None:
        try:
            await self.messages.serve(
                stream,
                _choose,
                self.handle,
                refusal=_REFUSAL,
                message_bytes_max=MESSAGE_BYTES_MAX,
            )
        finally:
            stream.close()

    async def handle(self, socket: MessageSocket, target: str) -> None:
        """Serve one bridge, or one listener to reports, until it ends; tell it why."""
        if target == MULTICAST_PATH and socket.subprotocol in MULTICASTS:
            await self.inlet.serve(socket)
            return
        if target == REPORT_PATH and socket.subprotocol == SUBPROTOCOL_REPORT:
            await self.reports.serve(socket)
            return
        if target != BRIDGE_PATH:
            await refuse(socket, BridgeRefused(Code.NOT_FOUND, f"there is no {target} here"))
            return
        assert self.feeds is not None
        bridge = HomeBridge(
            socket,
            feeds=self.feeds,
            region=self.region,
            gate=self._gate,
            bounds=self.config.link,
            now_us=self.now_us,
            on_admitted=self._make_way,
            buckets=self._buckets,
        )
        self.served.append(bridge)
        farewell: BridgeRefused | None = None
        try:
            await bridge.run()
        except* SocketClosedError as errors:
            if _is_too_large(first_of(errors)):  # Else it has left, and will ask again.
                self._note(bridge, errors)
        except* GeologError as errors:
            farewell = self._note(bridge, errors)
        except* trio.TooSlowError:
            farewell = BridgeRefused(Code.TIMED_OUT, "no hello came in time")
        except* Exception as errors:  # noqa: BLE001 - noted, and told to the target.
            self._note_bug(bridge, errors)
            farewell = BridgeRefused(Code.INTERNAL, "the home's relay met a bug")
        finally:
            self.served.remove(bridge)
        if bridge.refusal:
            self._remember(bridge.refusal)
        if farewell is not None:
            await refuse(socket, farewell)

    def _make_way(self, bridge: HomeBridge) -> None:
        for other in self.served:
            if other is not bridge and other.target == bridge.target:
                other.give_way()

    def _note(self, bridge: object, errors: ExceptionGroup[GeologError]) -> BridgeRefused:
        error = first_of(errors)
        told = f"a message is over {MESSAGE_BYTES_MAX} bytes" if _is_too_large(error) else error
        self._remember(f"{bridge} ended: {told}")
        # The other side sent damaged bytes: this relay has no fault.
        is_damaged = isinstance(error, DamagedBytesError)
        self.damaged_count += is_damaged or _is_too_large(error)
        return BridgeRefused(Code.BAD_MESSAGE if is_damaged else error.code, str(error))

    def _note_bug(self, bridge: object, errors: ExceptionGroup[Exception]) -> None:
        self.bugs_count += 1
        _log.error("%s: met a bug; it ends, the relay goes on", bridge, exc_info=errors)

    def _remember(self, failure: str) -> None:
        """Keep a failure, and log it unless it only repeats the last one."""
        if self.failures[-1:] != [failure]:
            _log.warning("%s", failure)
        self.failures.append(failure)
        del self.failures[:-16]

    def open_mirrors(self) -> AbstractAsyncContextManager[MirrorKeeper]:
        """Own mirrors while the block lasts, whichever bridges feed them."""
        return open_mirrors(self.log)

    async def mirror(self, home: str, address: Address, mirrors: MirrorKeeper) -> None:
        """Keep a bridge to a home, and dial again whenever it ends; never returns."""
        while True:
            try:
                await dial_home(
                    self.messages,
                    address,
                    log=self.log,
                    mirrors=mirrors,
                    hello=BridgeHello(
                        cluster=self.log.cluster,
                        region=self.region,
                        relay_epoch=self.relay_epoch,
                        window_bytes=self.config.window_bytes,
                    ),
                    home=home,
                    gate=self._gate,
                    opened=self.dialled,
                    heard=self.heard,
                )
            except* GeologError as errors:
                self._note(f"bridge {self.region}<-{home}", errors)
            except* trio.TooSlowError:
                self._remember(f"{home} did not answer a hello in time")
            except* Exception as errors:  # noqa: BLE001 - one bridge must not end the others.
                self._note_bug(f"bridge {self.region}<-{home}", errors)
            await trio.sleep(self.config.redial_s)


def _is_too_large(error: GeologError) -> bool:
    """Whether one side closed the WebSocket for a message over the limit."""
    return isinstance(error, SocketClosedError) and error.close_code == CLOSE_TOO_LARGE


async def refuse(socket: MessageSocket, refusal: BridgeRefused) -> None:
    """Say why a bridge cannot be, and close it."""
    with suppress(SocketClosedError):
        with trio.move_on_after(REFUSED_S):
            await socket.send(encode_bridge(refusal))
        await socket.close(close_code(refusal.code), refusal.error)


def _choose(offered: Sequence[str]) -> str | None:
    return next((one for one in offered if one in SUBPROTOCOLS), None)
