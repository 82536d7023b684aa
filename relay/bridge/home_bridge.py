"""The home's side of one bridge: sends the logs of its streams to one target.

One task opens a channel for each partition that is relayed to the target; one reads what the
target says; one sends, from `OutgoingLink`, which decides what is next. Channels take entries
from the feed of their partition, which all bridges share. A channel that is further behind than
the feed's buffer reads the log by itself, and waits while it is far ahead of what was sent.

Rules: PROTOCOL B3, B8 to B11, and G4.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.protocol.stream_state import PartitionName
from geolog.protocol.watermark import Watermark
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import ConnectionFailedError
from geolog.wire.session.batches import messages_of
from geolog.wire.session.codes import CLOSE_NORMAL, close_code
from geolog.wire.session.outgoing_messages import JOINED_BYTES_MAX
from relay.bridge.home_feed import HomeFeed, HomeFeeds
from relay.bridge.home_log import open_home_log
from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeLeaving,
    BridgeRefused,
    ChannelEnded,
    DurableTold,
    FromHome,
    TailTold,
    WatermarkTold,
    WindowTold,
)
from relay.protocol.outgoing import (
    AllSent,
    ChannelState,
    FetchAfter,
    OutgoingChannel,
    OutgoingEffect,
    StopChannel,
    StopFetching,
)
from relay.protocol.outgoing_link import LinkBounds, OutgoingLink
from relay.wire.bridge import decode_from_target, encode_bridge
from topology.errors import DamagedBytesError, FencedError, GeologError, UnavailableError

_log = logging.getLogger(__name__)

HELLO_S = 10.0
"""How long the other side may take to say hello."""

_LOOK_S = 1.0
_BEAT_S = 1.0
_ALARMS_MAX = 16
_AHEAD_BYTES = 4 << 20
"""Bytes of one partition that are read from the log ahead of what was sent."""


@attrs.define(eq=False)
class _HomeChannel:
    number: int
    feed: HomeFeed
    core: OutgoingChannel
    on_buffered: Callable[[], None] = attrs.field(init=False)
    opened_s: float
    told_s: float | None = None
    live_s: float | None = None
    fetching: trio.CancelScope | None = None
    has_room: trio.Event = attrs.field(factory=trio.Event)

    @property
    def name(self) -> PartitionName:
        return self.feed.name

    @property
    def question_s(self) -> float | None:
        """How long the target took to tell its watermark."""
        return None if self.told_s is None else self.told_s - self.opened_s

    @property
    def replay_s(self) -> float | None:
        """How long it took from there until the channel was live."""
        if self.told_s is None or self.live_s is None:
            return None
        return self.live_s - self.told_s

    def note_live(self, now_s: float) -> None:
        """Note the time if the channel is live for the first time."""
        if self.live_s is None and self.core.state is ChannelState.LIVE:
            self.live_s = now_s


@attrs.frozen
class ChannelProgress:
    """How far one partition has come on its way to one target."""

    name: PartitionName
    target: str
    state: ChannelState
    sent_count: int
    """Entries sent on this bridge."""
    replayed_count: int
    """Those of them that the target had missed, and that may have been sent before."""
    replayed_bytes: int
    """Bytes of those."""
    position: Watermark | None
    """The last entry sent, or what the target had."""
    durable: Watermark | None
    unanswered_bytes: int
    lag_records: int
    """Records at home that the target has not durably."""
    lag_bytes: int
    lag_s: float
    """Age of the oldest entry that the target lacks, by the home's clock."""
    question_s: float | None
    """How long the target took to tell its watermark on this bridge."""
    replay_s: float | None
    """How long it took from there until the channel was live."""
    round_trip_s: float | None
    """How long the last canary of the link took to come back; None if none did."""


class HomeBridge:
    """One accepted bridge; `run` serves it until it ends."""

    def __init__(
        self,
        socket: MessageSocket,
        *,
        region: str,
        gate: BridgeGate,
        bounds: LinkBounds,
        now_us: Callable[[], int],
        feeds: HomeFeeds,
        on_admitted: Callable[["HomeBridge"], None],
    ) -> None:
        """on_admitted: hears that the target is known; earlier bridges of it give way."""
        self._socket = socket
        self._feeds = feeds
        self._region = region
        self._gate = gate
        self._bounds = bounds
        self._now_us = now_us
        self._on_admitted = on_admitted
        self._serving = trio.CancelScope()
        self._target = ""
        self._link = OutgoingLink(1, bounds, now_s=trio.current_time())
        self._channels: dict[int, _HomeChannel] = {}
        self._channel_last = 0
        self._outgoing: list[FromHome] = []
        self._awake = trio.Event()
        self._answered = trio.Event()
        self._nursery: trio.Nursery
        self._is_over = False
        """Whether the nursery takes no more tasks, or soon will not."""
        self.fetched_count = 0
        """Entries read from the log because the buffer did not have them."""
        self.refusal = ""
        """Why the target was not let in."""
        self.alarms: list[str] = []
        """Why channels were stopped, the last few."""

    def __repr__(self) -> str:
        return f"HomeBridge({self._region}->{self._target}, {self._link!r})"

    @property
    def target(self) -> str:
        """The region at the other end; empty before its hello."""
        return self._target

    @property
    def link(self) -> OutgoingLink:
        """The channels, and how much of them is unanswered."""
        return self._link

    async def run(self) -> None:
        """Serve until the bridge ends.

        DamagedBytesError, UnavailableError if it is stuck, FencedError if it gave way.
        """
        if not await self._admit():
            return
        self._on_admitted(self)
        try:
            with self._serving:
                async with open_background() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._look)
                    nursery.start_soon(self._send_all)
                    nursery.start_soon(self._beat)
                    try:
                        while True:
                            await self._hear()
                    finally:
                        self._is_over = True
            raise FencedError(f"{self._target} has opened a newer bridge")
        finally:
            for channel in list(self._channels.values()):
                self._drop(channel)

    def give_way(self) -> None:
        """End, because the target has a newer bridge: what this one tells may be old."""
        self._serving.cancel(reason="a newer bridge of this target was opened")

    async def _admit(self) -> bool:
        with trio.fail_after(HELLO_S):
            message = await self._socket.receive()
        hello = decode_from_target(_bytes_of(message))
        if not isinstance(hello, BridgeHello):
            raise DamagedBytesError(f"a bridge begins with {type(hello).__name__}, not a hello")
        answer = self._gate.answer(hello)
        await self._socket.send(encode_bridge(answer))
        if isinstance(answer, BridgeRefused):
            self.refusal = f"refused a bridge of {hello.region}: {answer.error}"
            await self._socket.close(close_code(answer.code), answer.error)
            return False
        self._target = hello.region
        self._link.on_window(hello.window_bytes)
        return True

    async def rest(self) -> None:
        """Send no further entries, and wait until those that were sent are durable."""
        self._link.rest()
        while self._link.unanswered_bytes:
            self._answered = trio.Event()
            await self._answered.wait()

    async def leave(self) -> None:
        """Say that this side leaves in good order, and close; the target asks the successor."""
        with suppress(SocketClosedError):
            await self._socket.send(encode_bridge(BridgeLeaving()))
            await self._socket.close(CLOSE_NORMAL, "the coordinator leaves")

    def progress(self) -> list[ChannelProgress]:
        """How far each partition has come."""
        return [self._progress_of(channel) for channel in self._channels.values()]

    def _progress_of(self, channel: _HomeChannel) -> ChannelProgress:
        core, feed = channel.core, channel.feed
        durable = feed.standing(self._target).durable
        lag = feed.lag_of(self._target)
        since_us = lag.since_us
        if core.behind_since_us is not None:
            since_us = min(core.behind_since_us, since_us or core.behind_since_us)
        return ChannelProgress(
            channel.name,
            self._target,
            core.state,
            core.sent_count,
            core.replayed_count,
            core.replayed_bytes,
            core.position,
            durable,
            core.unanswered_bytes,
            lag_records=lag.records,
            lag_bytes=lag.bytes,
            lag_s=0.0 if since_us is None else max(0, self._now_us() - since_us) / 1e6,
            question_s=channel.question_s,
            replay_s=channel.replay_s,
            round_trip_s=self._link.round_trip_s,
        )

    # Streams.

    async def _look(self) -> None:
        """Open channels for what is relayed to the target, and end those of what is not."""
        while True:
            self._open_missing()
            await trio.sleep(_LOOK_S)

    def _open_missing(self) -> None:
        wanted = {feed.name: feed for feed in self._feeds.feeds_of(self._target)}
        known = {channel.name: channel for channel in self._channels.values()}
        for name, channel in list(known.items()):
            if wanted.get(name) is not channel.feed:
                del known[name]
                self._end(channel, 404, f"{name} is not relayed to {self._target} now")
        for name, feed in wanted.items():
            if name not in known:
                self._open(feed)

    def _open(self, feed: HomeFeed) -> None:
        self._channel_last += 1
        number = self._channel_last
        channel = _HomeChannel(
            number,
            feed,
            OutgoingChannel(feed.buffer, handed=feed.standing(self._target).handed),
            opened_s=trio.current_time(),
        )
        feed.standing(self._target).handed = None
        channel.on_buffered = partial(self._on_buffered, channel)
        feed.listeners.append(channel.on_buffered)
        self._channels[number] = channel
        self._link.open(number, channel.core, now_s=trio.current_time())
        self._tell(
            AskWatermark(
                channel=number,
                stream=str(feed.name.stream),
                life=feed.name.life,
                partition=feed.name.number,
                home_epoch=feed.record.home_epoch,
            )
        )

    def _on_buffered(self, channel: _HomeChannel) -> None:
        self._perform(channel, channel.core.on_buffered())
        self._link.on_ready(channel.number)
        self._awake.set()

    def _stop(self, channel: _HomeChannel, code: int, error: str) -> None:
        """End a channel that cannot go on, with an alarm; it is asked again a little later."""
        alarm = f"{channel.name} to {self._target}: {error}"
        _log.warning("%s", alarm)
        self.alarms.append(alarm)
        del self.alarms[:-_ALARMS_MAX]
        channel.feed.standing(self._target).alarm = error
        self._end(channel, code, error)

    def _end(self, channel: _HomeChannel, code: int, error: str) -> None:
        self._drop(channel)
        self._tell(ChannelEnded(channel.number, code, error))

    def _drop(self, channel: _HomeChannel) -> None:
        if self._channels.pop(channel.number, None) is not None:
            channel.feed.listeners.remove(channel.on_buffered)
            if channel.told_s is not None:
                handed = AllSent(channel.core.position)
                channel.feed.standing(self._target).handed = handed
        self._link.end(channel.number)
        self._awake.set()  # It may have taken the room of others.
        self._answered.set()
        if channel.fetching is not None:
            channel.fetching.cancel(reason="the channel is over")

    # Reading the log for a target that is further behind than the buffer.

    async def _fetch(
        self, channel: _HomeChannel, scope: trio.CancelScope, fetch: FetchAfter
    ) -> None:
        with scope:
            try:
                scan = self._feeds.log.scan_of(channel.feed.record, channel.name)
                async with open_home_log(
                    scan, fetch.position, first_sequence=fetch.first_sequence
                ) as log:
                    while entries := await log.next_entries():
                        self.fetched_count += len(entries)
                        self._perform(channel, channel.core.on_fetched(fetch, entries))
                        self._link.on_ready(channel.number)
                        self._awake.set()
                        while channel.core.fetched_bytes > _AHEAD_BYTES:
                            channel.has_room = trio.Event()
                            await channel.has_room.wait()
            except GeologError as error:
                if channel.number in self._channels:
                    self._perform(channel, channel.core.on_gone(fetch, str(error)))

    def _perform(self, channel: _HomeChannel, effects: list[OutgoingEffect]) -> None:
        for effect in effects:
            match effect:
                case StopChannel(code, error):
                    self._stop(channel, code, error)
                case FetchAfter() if self._is_over:
                    pass  # The buffer has moved after the bridge ended: nothing more is sent.
                case FetchAfter():
                    channel.fetching = trio.CancelScope()
                    self._nursery.start_soon(self._fetch, channel, channel.fetching, effect)
                case StopFetching():
                    assert channel.fetching is not None
                    channel.fetching.cancel(reason="the buffer has the rest")
                    channel.fetching = None
                case _:
                    assert_never(effect)

    # The socket.

    def _tell(self, message: FromHome) -> None:
        self._outgoing.append(message)
        self._awake.set()

    async def _send_all(self) -> None:
        while True:
            await self._awake.wait()
            self._awake = trio.Event()
            while await self._send_next():
                pass
            wait_s = self._link.wait_s(now_s=trio.current_time())
            if wait_s > 0:
                await trio.sleep(wait_s)
                self._awake.set()

    async def _send_next(self) -> bool:
        """Send what is next; False if nothing is, or the window is full."""
        if self._outgoing:
            messages, self._outgoing = self._outgoing, []
            await self._socket.send(b"".join(map(encode_bridge, messages)))
            return True
        encoded: list[bytes] = []
        size_bytes = 0
        while size_bytes < JOINED_BYTES_MAX:
            taken = self._link.take(now_s=trio.current_time())
            if taken is None:
                break
            message, effects = taken
            channel = self._channels[message.channel]
            channel.note_live(trio.current_time())
            self._perform(channel, effects)
            if channel.core.fetched_bytes <= _AHEAD_BYTES:
                channel.has_room.set()
            encoded.append(encode_bridge(message))
            size_bytes += len(encoded[-1])
        if encoded:
            await self._socket.send(b"".join(encoded))
        return bool(encoded)

    async def _beat(self) -> None:
        """Say where the logs end; leave a link on which nothing moves."""
        while True:
            await trio.sleep(_BEAT_S)
            if self._link.is_stuck(now_s=trio.current_time()):
                stuck = (
                    f"the link to {self._target} is stuck: no answer for"
                    f" {self._bounds.stuck_s:g} s"
                )
                for channel in self._channels.values():
                    standing = channel.feed.standing(self._target)
                    standing.alarm = stuck
                    standing.stalls_count += 1
                raise UnavailableError(stuck)
            now_us = self._now_us()
            self._link.on_canary_sent(now_us, now_s=trio.current_time())
            self._tell(BridgeHeartbeat(now_us, tuple(self._tails())))

    def _tails(self) -> list[TailTold]:
        tails = []
        for channel in self._channels.values():
            feed = channel.feed
            end = feed.buffer.end
            if end is not None:
                lag_bytes = feed.lag_of(self._target).bytes
                tails.append(
                    TailTold(channel.number, end.sequence_next, feed.tail_us, lag_bytes)
                )
        return tails

    async def _hear(self) -> None:
        for data in messages_of(_bytes_of(await self._socket.receive())):
            message = decode_from_target(data)
            now_s = trio.current_time()
            match message:
                case WatermarkTold(number, watermark, first_sequence):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.feed.on_heard(
                            self._target,
                            watermark,
                            relay_epoch=self._gate.relay_epoch,
                            first_sequence=first_sequence,
                        )
                        effects = self._link.on_told(
                            number, watermark, first_sequence=first_sequence, now_s=now_s
                        )
                        channel.told_s = now_s
                        channel.note_live(now_s)
                        self._perform(channel, effects)
                        self._awake.set()
                case DurableTold(number, watermark):
                    channel = self._channels.get(number)
                    if channel is not None:
                        effects = self._link.on_durable(number, watermark, now_s=now_s)
                        self._perform(channel, effects)
                        if channel.core.durable == watermark:
                            epoch = self._gate.relay_epoch
                            channel.feed.on_heard(self._target, watermark, relay_epoch=epoch)
                        self._awake.set()
                        self._answered.set()
                case WindowTold(window_bytes):
                    self._link.on_window(window_bytes)
                    self._awake.set()
                case ChannelEnded(number, code, error):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.core.on_ended(code, error)
                        channel.feed.standing(self._target).alarm = error
                        self._drop(channel)
                case BridgeHeartbeat(mark_us):
                    self._link.on_canary_back(mark_us, now_s=now_s)
                case BridgeLeaving():  # It closes once all that it was sent is durable.
                    self._link.rest()
                    self._tell(BridgeLeaving())
                case BridgeRefused(code, error):
                    raise ConnectionFailedError(
                        f"{self._target} refused the bridge: {code} {error}"
                    )
                case BridgeHello():
                    raise DamagedBytesError("a second hello on a bridge")
                case _:
                    assert_never(message)


def _bytes_of(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise DamagedBytesError(f"a text on a bridge: {message[:100]!r}")
    return message
