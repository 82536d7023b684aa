"""The target's side of one bridge: dials a home, owns the mirrors, and tells what is durable.

Each channel has a task that feeds its mirror: it gets the mirror from the keeper, answers the
home's question, and then only waits; entries go into the mirror as they come.

Rules: PROTOCOL B3, B4, B9, B11, B12 and G4.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.client.log import Log
from geolog.partition.mirror_entry import MirrorEntry
from geolog.partition.mirror_writer import MirrorWriter
from geolog.protocol.stream_state import StreamName, StreamRecord
from geolog.protocol.watermark import Watermark
from geolog.transport.message_socket import MessageTransport, OpenedSocket, SocketClosedError
from geolog.transport.seam import Address, ConnectionFailedError
from geolog.wire.session.batches import messages_of
from geolog.wire.session.codes import CLOSE_NORMAL, Code, close_code
from geolog.wire.session.outgoing_messages import JOINED_BYTES_MAX
from relay.bridge.heard_tails import HeardTails
from relay.bridge.mirror_keeper import MirrorKeeper, MirrorUser
from relay.protocol.bridge_gate import BridgeGate
from relay.protocol.bridge_messages import (
    AskWatermark,
    BridgeHeartbeat,
    BridgeHello,
    BridgeLeaving,
    BridgeRefused,
    BridgeWelcome,
    ChannelEnded,
    FromHome,
    FromTarget,
    RelayedEntry,
    SendEntry,
    TailTold,
    WatermarkTold,
)
from relay.protocol.canary import PARTIAL_MARK, PARTIAL_S, TakenCanary
from relay.protocol.incoming import IncomingChannel, IncomingEffect, PushEntry, Tell
from relay.wire.bridge import (
    MESSAGE_BYTES_MAX,
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    encode_bridge,
)
from topology.errors import DamagedBytesError, GeologError, NoSuchStreamError, SealedError

BRIDGE_PATH = "/relay/bridge"

_HELLO_S = 10.0
_SILENT_S_MAX = 10.0
"""A home of which nothing comes for this long, not a part of a heartbeat, is left."""


@attrs.define(eq=False)
class _TargetChannel:
    """One mirror as its channel sees it: a `MirrorListener`."""

    bridge: "TargetBridge"
    asked: AskWatermark
    core: IncomingChannel
    mirror: MirrorWriter | None = None
    owning: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def on_durable(self, watermark: Watermark) -> None:
        """Tell the home. See `MirrorListener`."""
        self.bridge.perform(self, self.core.on_durable(watermark))


class TargetBridge:
    """One bridge to a home; `run` keeps its mirrors until it ends."""

    def __init__(
        self,
        socket: OpenedSocket,
        *,
        log: Log,
        mirrors: MirrorKeeper,
        hello: BridgeHello,
        home: str,
        heard: HeardTails | None = None,
    ) -> None:
        self._socket = socket
        self._heard = heard
        self._log = log
        self._mirrors = mirrors
        self._hello = hello
        self._home = home
        self._channels: dict[int, _TargetChannel] = {}
        self._canary = TakenCanary()
        self._outgoing: deque[bytes] = deque()
        self._awake = trio.Event()
        self._is_leaving = False
        self._home_rests = trio.Event()
        self.relay_epoch = 0
        """The home's, once its welcome was accepted."""

    def __repr__(self) -> str:
        return f"TargetBridge({self._hello.region}<-{self._home}, {len(self._channels)} open)"

    @property
    def mirrors(self) -> list[MirrorWriter]:
        """Those that it feeds now."""
        return [one.mirror for one in self._channels.values() if one.mirror is not None]

    async def run(self, gate: BridgeGate) -> None:
        """Serve until the bridge ends. ConnectionFailedError if the home refuses."""
        with suppress(SocketClosedError):  # A home that refuses at once has said why before.
            await self._socket.send(encode_bridge(self._hello))
        with trio.fail_after(_HELLO_S):
            welcome = decode_from_home(_bytes_of(await self._socket.receive()))
        if isinstance(welcome, BridgeRefused):
            raise ConnectionFailedError(f"{self._home} refused the bridge: {welcome.error}")
        if not isinstance(welcome, BridgeWelcome):
            raise DamagedBytesError(f"a bridge answers with {type(welcome).__name__}")
        fault = gate.fault_of_welcome(welcome, expected_region=self._home)
        if fault is not None:
            await self._socket.send(encode_bridge(fault))
            await self._socket.close(close_code(fault.code), fault.error)
            raise ConnectionFailedError(f"left the bridge to {self._home}: {fault.error}")
        self.relay_epoch = welcome.relay_epoch
        try:
            async with open_background() as nursery:
                nursery.start_soon(self._send_all)
                while True:
                    await self._hear(nursery)
        finally:
            self._home_rests.set()

    async def rest(self) -> None:
        """Have the home send nothing more, and wait until all that it sent is durable."""
        self._is_leaving = True
        self._tell(BridgeLeaving())
        await self._home_rests.wait()
        for mirror in self.mirrors:
            with suppress(GeologError):
                await mirror.wait_durable()

    async def _send_all(self) -> None:
        while True:
            await self._awake.wait()
            self._awake = trio.Event()
            while self._outgoing:
                messages: list[bytes] = []
                size_bytes = 0
                while self._outgoing and size_bytes < JOINED_BYTES_MAX:
                    messages.append(self._outgoing.popleft())
                    size_bytes += len(messages[-1])
                await self._socket.send(b"".join(messages))

    async def _hear(self, nursery: trio.Nursery) -> None:
        received = await self._receive()
        for data in messages_of(_bytes_of(received)):
            self._take(decode_from_home(data), nursery)

    async def _receive(self) -> str | bytes:
        """The next message. ConnectionFailedError if nothing comes, not even a part of it."""
        heard_s, heard_bytes = trio.current_time(), self._socket.received_bytes
        while True:
            with trio.move_on_after(PARTIAL_S):
                return await self._socket.receive()
            if self._socket.received_bytes != heard_bytes:
                heard_s, heard_bytes = trio.current_time(), self._socket.received_bytes
                self._tell(BridgeHeartbeat(PARTIAL_MARK))
            elif trio.current_time() >= heard_s + _SILENT_S_MAX:
                raise ConnectionFailedError(
                    f"{self._home} said nothing for {_SILENT_S_MAX:g} s"
                )

    def _take(self, message: FromHome, nursery: trio.Nursery) -> None:
        match message:
            case SendEntry(number, entry):
                channel = self._channels.get(number)
                if channel is not None:  # Else it has ended, and the home will hear of it.
                    self.perform(channel, channel.core.on_entry(entry))
            case AskWatermark():
                if message.channel in self._channels:
                    raise DamagedBytesError(f"channel {message.channel} is open")
                channel = _TargetChannel(self, message, IncomingChannel(message))
                self._channels[message.channel] = channel
                nursery.start_soon(
                    partial(self._own, channel), name=f"mirror of {message.stream}"
                )
            case ChannelEnded(number):
                ended = self._channels.pop(number, None)
                if ended is not None:
                    ended.core.on_ended()
                    ended.owning.cancel(reason="the home has ended the channel")
                self._send_back(self._canary.on_ended(number))
            case BridgeHeartbeat(mark_us, tails):
                self._remember(tails)
                owed = {
                    number: channel.core.last
                    for number, channel in self._channels.items()
                    if not channel.core.is_settled
                }
                mark_back_us = self._canary.take(mark_us, owed)
                # It has arrived, whatever it waits for.
                self._send_back(-mark_us if mark_back_us is None else mark_back_us)
            case BridgeLeaving() if self._is_leaving:
                self._home_rests.set()
            case BridgeLeaving() | BridgeRefused():
                raise SocketClosedError(CLOSE_NORMAL, "the home leaves")
            case BridgeWelcome():
                raise DamagedBytesError("a second welcome on a bridge")
            case _:
                assert_never(message)

    def _remember(self, tails: Sequence[TailTold]) -> None:
        if self._heard is None:
            return
        for tail in tails:
            channel = self._channels.get(tail.channel)
            if channel is not None:
                self._heard.hear(
                    stream=channel.asked.stream,
                    life=channel.asked.life,
                    partition=channel.asked.partition,
                    home=self._home,
                    home_epoch=channel.asked.home_epoch,
                    sequence_next=tail.sequence_next,
                    lag_bytes=tail.size_bytes,
                    tail_us=tail.append_time_us,
                    region=self._hello.region,
                )

    async def _own(self, channel: _TargetChannel) -> None:
        """Own the channel's mirror until the channel ends, or the mirror fails."""
        asked = channel.asked
        try:
            with channel.owning:
                opener = self._log.partition_opener
                record = await self._record(StreamName.parse(asked.stream), asked)
                if record.life != asked.life or record.home != self._home:
                    raise NoSuchStreamError(
                        f"{asked.stream} of life {asked.life!r} is not relayed from"
                        f" {self._home}: it has life {record.life!r} and home {record.home}"
                    )
                name = record.log_in(self._hello.region, asked.partition)
                try:
                    user = MirrorUser(channel, partial(self._on_taken, channel))
                    async with self._mirrors.use(record, name, user) as mirror:
                        first = await opener.upkeep.partitions.trims.read(name)
                        channel.mirror = mirror
                        opened = channel.core.on_mirror_opened(
                            mirror.watermark, first_sequence=first.first_sequence
                        )
                        self.perform(channel, opened)
                        raise await mirror.wait_failed()
                except SealedError:  # It has all of a home that is sealed.
                    channel.mirror = None
                    last = await opener.end_sealed_mirror(name)
                    self.perform(channel, channel.core.on_mirror_sealed(last))
                    await trio.sleep_forever()
        except GeologError as error:
            self.perform(channel, channel.core.on_mirror_failed(error))
        finally:
            channel.mirror = None
            if self._channels.get(asked.channel) is channel:
                del self._channels[asked.channel]
                self._send_back(self._canary.on_ended(asked.channel))

    async def _record(self, name: StreamName, asked: AskWatermark) -> StreamRecord:
        """The stream's settings; those of a nearby server if it knows what the home means."""
        catalog = self._log.partition_opener.upkeep.catalog
        record = await catalog.read(name)
        is_known = (
            record.life == asked.life
            and asked.partition < record.partitions
            and asked.home_epoch <= record.home_epoch
        )
        return record if is_known else await catalog.read_latest(name)

    def _on_taken(self, channel: _TargetChannel, why: GeologError) -> None:
        channel.mirror = None
        self.perform(channel, channel.core.on_mirror_failed(why))

    def perform(self, channel: _TargetChannel, effects: list[IncomingEffect]) -> None:
        """Perform what the core of a channel decides."""
        for effect in effects:
            match effect:
                case PushEntry(entry):
                    self._push(channel, entry)
                case Tell(message):
                    self._tell(message)
                    if isinstance(message, ChannelEnded):
                        channel.owning.cancel(reason="the channel has ended")
                    elif isinstance(message, WatermarkTold):
                        self._send_back(self._canary.on_told(message.channel))
                    else:
                        told = self._canary.on_durable(message.channel, message.watermark)
                        self._send_back(told)
                case _:
                    assert_never(effect)

    def _tell(self, message: FromTarget) -> None:
        self._outgoing.append(encode_bridge(message))
        self._awake.set()

    def _send_back(self, mark_us: int | None) -> None:
        """Send this canary back, behind all that was told before."""
        if mark_us is not None:
            self._tell(BridgeHeartbeat(mark_us))

    def _push(self, channel: _TargetChannel, entry: RelayedEntry) -> None:
        try:
            if channel.mirror is None:
                raise SealedError(f"{channel.asked.stream}: an entry came after the last one")
            channel.mirror.push(
                MirrorEntry.of(entry.encoded.join(), previous=entry.previous, begin=entry.begin)
            )
        except GeologError as error:
            self.perform(channel, channel.core.on_mirror_failed(error))


async def dial_home(
    messages: MessageTransport,
    address: Address,
    *,
    log: Log,
    mirrors: MirrorKeeper,
    hello: BridgeHello,
    home: str,
    gate: BridgeGate,
    opened: dict[str, TargetBridge],
    heard: HeardTails | None = None,
) -> None:
    """Keep one bridge to a home's coordinator until it ends. ConnectionFailedError.

    heard: is told how far the home has come.
    opened: has the bridge under its home, for as long as it is there.
    """
    async with messages.open(
        address,
        BRIDGE_PATH,
        subprotocols=(SUBPROTOCOL_BRIDGE,),
        message_bytes_max=MESSAGE_BYTES_MAX,
    ) as socket:
        bridge = opened[home] = TargetBridge(
            socket, log=log, mirrors=mirrors, hello=hello, home=home, heard=heard
        )
        try:
            await bridge.run(gate)
        except DamagedBytesError as error:
            with trio.move_on_after(_HELLO_S), suppress(SocketClosedError):
                await socket.send(encode_bridge(BridgeRefused(Code.BAD_MESSAGE, str(error))))
                await socket.close(close_code(Code.BAD_MESSAGE), str(error))
            raise
        finally:
            del opened[home]


def _bytes_of(message: str | bytes) -> bytes:
    if isinstance(message, str):
        raise DamagedBytesError(f"a text on a bridge: {message[:100]!r}")
    return message
