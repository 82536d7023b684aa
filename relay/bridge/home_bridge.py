"""The home's side of one bridge: sends the logs of its streams to one target.

One task looks for streams that are relayed to the target, and opens a channel for each
partition; one reads what the target says; one sends, from `OutgoingLink`, which decides what is
next. Each channel has a reader of the home's log, which waits while the buffer is full.

Rules: PROTOCOL B3, B8 and B9.
"""

import logging
from collections.abc import Callable
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.client.log import Log
from geolog.protocol.stream_state import PartitionName, StreamRecord
from geolog.protocol.watermark import Watermark
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.session.batches import messages_of
from geolog.wire.session.codes import CLOSE_NORMAL, close_code
from geolog.wire.session.outgoing_messages import JOINED_BYTES_MAX
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
    ChannelState,
    FetchAfter,
    OutgoingChannel,
    OutgoingEffect,
    StopChannel,
    StopFetching,
)
from relay.protocol.outgoing_link import LinkBounds, OutgoingLink
from relay.protocol.standby_buffer import BufferBounds, StandbyBuffer
from relay.wire.bridge import decode_from_target, encode_bridge
from topology.errors import DamagedBytesError, GeologError, UnavailableError

_log = logging.getLogger(__name__)

HELLO_S = 10.0
"""How long the other side may take to say hello."""

_LOOK_S = 1.0
_BEAT_S = 1.0
_ALARMS_MAX = 16
_AHEAD_BYTES = 4 << 20
"""Bytes of one partition that are read ahead of what was sent."""


@attrs.define(eq=False)
class _HomeChannel:
    number: int
    record: StreamRecord
    name: PartitionName
    buffer: StandbyBuffer
    core: OutgoingChannel
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_room: trio.Event = attrs.field(factory=trio.Event)
    tail_us: int = 0
    """Append time of the last entry read."""


@attrs.frozen
class ChannelProgress:
    """How far one partition has come on its way to one target."""

    name: PartitionName
    target: str
    state: ChannelState
    sent_count: int
    """Entries sent on this bridge."""
    replayed_count: int
    """Those of them that the target had missed before."""
    durable: Watermark | None
    unanswered_bytes: int
    lag_records: int
    """Records read at home, as far as it reads ahead, that the target has not durably."""
    lag_s: float
    """Age of the oldest entry that the target lacks, by the home's clock."""


class HomeBridge:
    """One accepted bridge; `run` serves it until it ends."""

    def __init__(
        self,
        socket: MessageSocket,
        *,
        log: Log,
        region: str,
        gate: BridgeGate,
        bounds: LinkBounds,
        now_us: Callable[[], int],
    ) -> None:
        self._socket = socket
        self._log = log
        self._region = region
        self._gate = gate
        self._bounds = bounds
        self._now_us = now_us
        self._target = ""
        self._link = OutgoingLink(1, bounds, now_s=trio.current_time())
        self._channels: dict[int, _HomeChannel] = {}
        self._channel_last = 0
        self._outgoing: list[FromHome] = []
        self._awake = trio.Event()
        self.alarms: list[str] = []
        """Why channels were stopped, the last few."""

    def __repr__(self) -> str:
        return f"HomeBridge({self._region}->{self._target}, {self._link!r})"

    @property
    def link(self) -> OutgoingLink:
        """The channels, and how much of them is unanswered."""
        return self._link

    async def run(self) -> None:
        """Serve until the bridge ends. DamagedBytesError, UnavailableError if it is stuck."""
        if not await self._admit():
            return
        async with open_background() as nursery:
            nursery.start_soon(self._look)
            nursery.start_soon(self._send_all)
            nursery.start_soon(self._beat)
            while True:
                await self._hear(nursery)

    async def _admit(self) -> bool:
        with trio.fail_after(HELLO_S):
            message = await self._socket.receive()
        hello = decode_from_target(_bytes_of(message))
        if not isinstance(hello, BridgeHello):
            raise DamagedBytesError(f"a bridge begins with {type(hello).__name__}, not a hello")
        answer = self._gate.answer(hello)
        await self._socket.send(encode_bridge(answer))
        if isinstance(answer, BridgeRefused):
            await self._socket.close(close_code(answer.code), answer.error)
            return False
        self._target = hello.region
        self._link.on_window(hello.window_bytes)
        return True

    def progress(self) -> list[ChannelProgress]:
        """How far each partition has come."""
        return [self._progress_of(channel) for channel in self._channels.values()]

    def _progress_of(self, channel: _HomeChannel) -> ChannelProgress:
        core, end = channel.core, channel.buffer.end
        durable = 0 if core.durable is None else core.durable.sequence_next
        since_us = core.behind_since_us
        return ChannelProgress(
            channel.name,
            self._target,
            core.state,
            core.sent_count,
            core.replayed_count,
            core.durable,
            core.unanswered_bytes,
            lag_records=0 if end is None else max(0, end.sequence_next - durable),
            lag_s=0.0 if since_us is None else max(0, self._now_us() - since_us) / 1e6,
        )

    # Streams.

    async def _look(self) -> None:
        """Open channels for what is relayed to the target, and end those of what is not."""
        while True:
            try:
                await self._open_missing()
            except GeologError as error:
                if not error.retriable:
                    raise
            await trio.sleep(_LOOK_S)

    async def _open_missing(self) -> None:
        catalog = self._log.partition_opener.upkeep.catalog
        wanted: dict[PartitionName, StreamRecord] = {}
        for stream in await catalog.names():
            try:
                record = await catalog.read(stream)
            except GeologError as error:
                if error.retriable:
                    raise
                continue  # It is being made or deleted.
            if record.home == self._region and self._target in record.relay_to:
                wanted |= dict.fromkeys(record.partition_names(), record)
        known = {channel.name: channel for channel in self._channels.values()}
        for name, channel in known.items():
            if name not in wanted:
                self._end(channel, 404, f"{name} is not relayed to {self._target} any more")
        for name in wanted.keys() - known.keys():
            self._open(name, wanted[name])

    def _open(self, name: PartitionName, record: StreamRecord) -> None:
        self._channel_last += 1
        number = self._channel_last
        buffer = StandbyBuffer(None, BufferBounds(bytes_max=1 << 62, age_s_max=float("inf")))
        core = OutgoingChannel(buffer)
        self._channels[number] = _HomeChannel(number, record, name, buffer, core)
        self._link.open(number, core, now_s=trio.current_time())
        self._tell(
            AskWatermark(
                channel=number,
                stream=str(name.stream),
                life=name.life,
                partition=name.number,
                home_epoch=record.home_epoch,
            )
        )

    def _stop(self, channel: _HomeChannel, code: int, error: str) -> None:
        """End a channel that cannot go on, with an alarm; it is asked again a little later."""
        alarm = f"{channel.name} to {self._target}: {error}"
        _log.warning("%s", alarm)
        self.alarms.append(alarm)
        del self.alarms[:-_ALARMS_MAX]
        self._end(channel, code, error)

    def _end(self, channel: _HomeChannel, code: int, error: str) -> None:
        self._drop(channel)
        self._tell(ChannelEnded(channel.number, code, error))

    def _drop(self, channel: _HomeChannel) -> None:
        self._channels.pop(channel.number, None)
        self._link.end(channel.number)
        channel.reading.cancel(reason="the channel is over")

    # Reading the log.

    async def _read(self, channel: _HomeChannel, position: Watermark | None) -> None:
        """Fill the buffer from the log, behind the mirror's watermark, while there is room."""
        with channel.reading:
            try:
                scan = self._log.scan_of(channel.record, channel.name)
                async with open_home_log(scan, position) as log:
                    while entries := await log.next_entries():
                        channel.tail_us = entries[-1].encoded.header.append_time_us
                        for entry in entries:
                            channel.buffer.push(entry, now_s=trio.current_time())
                        self._perform(channel, channel.core.on_buffered())
                        self._link.on_ready(channel.number)
                        self._awake.set()
                        while channel.buffer.coverage.bytes_count > _AHEAD_BYTES:
                            channel.has_room = trio.Event()
                            await channel.has_room.wait()
            except GeologError as error:
                if channel.number in self._channels:
                    self._stop(channel, error.code, str(error))

    def _perform(self, channel: _HomeChannel, effects: list[OutgoingEffect]) -> None:
        for effect in effects:
            match effect:
                case StopChannel(code, error):
                    self._stop(channel, code, error)
                case FetchAfter() | StopFetching():
                    raise AssertionError(f"{channel.name}: the buffer begins at the watermark")
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
            self._perform(channel, effects)
            channel.buffer.trim(message.entry.watermark)
            if channel.buffer.coverage.bytes_count <= _AHEAD_BYTES:
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
                raise UnavailableError(
                    f"the link to {self._target} is stuck: no answer for"
                    f" {self._bounds.stuck_s:g} s"
                )
            self._tell(BridgeHeartbeat(self._now_us(), tuple(self._tails())))

    def _tails(self) -> list[TailTold]:
        tails = []
        for channel in self._channels.values():
            end = channel.buffer.end
            if end is not None:
                backlog_bytes = channel.core.unanswered_bytes
                backlog_bytes += channel.buffer.coverage.bytes_count
                tails.append(
                    TailTold(channel.number, end.sequence_next, channel.tail_us, backlog_bytes)
                )
        return tails

    async def _hear(self, nursery: trio.Nursery) -> None:
        for data in messages_of(_bytes_of(await self._socket.receive())):
            message = decode_from_target(data)
            now_s = trio.current_time()
            match message:
                case WatermarkTold(number, watermark):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.buffer.begin_behind(watermark)
                        effects = self._link.on_told(number, watermark, now_s=now_s)
                        self._perform(channel, effects)
                        nursery.start_soon(self._read, channel, watermark)
                case DurableTold(number, watermark):
                    channel = self._channels.get(number)
                    if channel is not None:
                        effects = self._link.on_durable(number, watermark, now_s=now_s)
                        self._perform(channel, effects)
                        self._awake.set()
                case WindowTold(window_bytes):
                    self._link.on_window(window_bytes)
                    self._awake.set()
                case ChannelEnded(number, code, error):
                    channel = self._channels.get(number)
                    if channel is not None:
                        channel.core.on_ended(code, error)
                        self._drop(channel)
                case BridgeHeartbeat():
                    pass
                case BridgeLeaving() | BridgeRefused():
                    raise SocketClosedError(CLOSE_NORMAL, "the target leaves")
                case BridgeHello():
                    raise DamagedBytesError("a second hello on a bridge")
                case _:
                    assert_never(message)


def _bytes_of(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise DamagedBytesError(f"a text on a bridge: {message[:100]!r}")
    return message
