"""One socket to one proxy, shared by all channels of this process.

A task reads answers and hands each to its channel or request; another sends from a queue, which
the writers' windows bound. When the socket is over, every channel and request is told. A proxy
that says nothing and answers no ping is left: a process that was stopped keeps its sockets
open. Silence is counted in beats of this process, so that its own pauses do not count. A proxy
that drains is left as soon as nothing is open or asked there, because it waits for that.

Rules: PROTOCOL S23.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import assert_never

import attrs
import trio

from geolog.background import open_background
from geolog.partition.batch_admission import FenceRefusedError
from geolog.partition.batch_sink import AnswerListener
from geolog.partition.home_lease import sleepless_clocks
from geolog.protocol.isolation_lease import LeaseClocks
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.transport.message_socket import (
    MessageSocket,
    MessageTransport,
    SocketClosedError,
)
from geolog.transport.seam import Address, ConnectionFailedError
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import (
    SUBPROTOCOL_BATCHES,
    BatchesFromProxy,
    decode_from_proxy,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import (
    AskStanding,
    BatchCompared,
    BatchPlaced,
    BatchRefused,
    ChannelClosed,
    ChannelOpened,
    CloseChannel,
    DescribeRequest,
    OpenChannel,
    RequestRefused,
    SendBatch,
    SessionGoaway,
    StandingTold,
    StreamTold,
)
from geolog.wire.session.outgoing_messages import OutgoingMessages
from geolog.wire.session.paths import SESSION_PATH
from geolog.wire.session.told_errors import error_of
from topology.errors import DamagedBytesError, GeologError, OutcomeUnknownError

_CONNECT_S = 5.0
"""How long a proxy may take to accept a connection; then others are asked."""

BEAT_S = 1.0
"""Time between two pings."""

SILENT_BEATS_MAX = 5
"""Beats in a row without a word from the proxy, after which the connection is over."""


@attrs.define(eq=False)
class ProxyChannel:
    """One channel of a connection, and what the proxy has told on it."""

    number: int
    listener: AnswerListener
    """Hears of answers to batches, and takes them from here."""
    answers: deque[BatchPlaced | BatchCompared | BatchRefused] = attrs.field(factory=deque)
    told: ChannelOpened | None = None
    closed: ChannelClosed | None = None
    """Why it is over; None if the connection was lost."""
    opened: trio.Event = attrs.field(factory=trio.Event)
    """Set when it takes batches, or is over."""
    over: trio.Event = attrs.field(factory=trio.Event)

    def on_opened(self, message: ChannelOpened) -> None:
        """The channel takes batches."""
        self.told = message
        self.opened.set()

    def on_closed(self, message: ChannelClosed | None) -> None:
        """The channel is over; None if the whole connection is."""
        self.closed = message
        self.over.set()
        self.opened.set()


@attrs.define(eq=False)
class _Asked:
    """A request, and its answer once that has come."""

    done: trio.Event = attrs.field(factory=trio.Event)
    answer: StreamTold | StandingTold | RequestRefused | None = None


class ProxyConnection:
    """A session with one proxy; opened by `open_proxy_connection`."""

    def __init__(self, address: Address, socket: MessageSocket) -> None:
        self.address = address
        self._socket = socket
        self._channels: dict[int, ProxyChannel] = {}
        self._channel_last = 0
        self._asked: dict[int, _Asked] = {}
        self._request_last = 0
        self._outgoing = OutgoingMessages()
        self._has_outgoing = trio.Event()
        self._is_heard = True
        """Whether the proxy has said anything since the last beat."""
        self.is_over = False
        self.is_going_away = False
        """Whether the proxy drains: no new channels."""
        self._receiving = trio.CancelScope()

    def __repr__(self) -> str:
        return f"ProxyConnection({self.address}, {len(self._channels)} channels)"

    def open_channel(
        self,
        stream: str,
        life: str,
        partition: int,
        listener: AnswerListener,
        *,
        avoid: tuple[str, ...] = (),
    ) -> ProxyChannel:
        """Ask for a channel, and wait for `opened`. ConnectionFailedError.

        avoid: addresses of proxies that cannot be used now.
        """
        self._check()
        self._channel_last += 1
        channel = ProxyChannel(self._channel_last, listener)
        self._channels[channel.number] = channel
        self._send(OpenChannel(channel.number, stream, life, partition, avoid))
        return channel

    def send_batch(self, message: SendBatch) -> None:
        """Send a batch on an open channel."""
        self._send(message)

    def close_channel(self, channel: ProxyChannel) -> None:
        """Give a channel up; its listener hears no more."""
        if self._channels.pop(channel.number, None) is not None:
            self._send(CloseChannel(channel.number))
            self._leave_if_done()

    async def describe(self, stream: str) -> StreamTold:
        """The facts of a stream that a writer needs. NoSuchStreamError."""
        asked, request = self._new_request()
        self._send(DescribeRequest(request, stream))
        answer = await self._answer_to(asked, request)
        assert isinstance(answer, StreamTold)
        return answer

    async def ask_standing(
        self, channel: int, writer_id: bytes, fence: WriterFence | None
    ) -> WriterStanding:
        """Where a named writer stands. FenceRefusedError; OutcomeUnknownError if lost."""
        asked, request = self._new_request()
        self._send(AskStanding(channel, request, writer_id, fence))
        answer = await self._answer_to(asked, request)
        assert isinstance(answer, StandingTold)
        return answer.standing

    def _new_request(self) -> tuple[_Asked, int]:
        self._check()
        self._request_last += 1
        asked = self._asked[self._request_last] = _Asked()
        return asked, self._request_last

    async def _answer_to(self, asked: _Asked, request: int) -> StreamTold | StandingTold:
        try:
            await asked.done.wait()
        finally:
            self._asked.pop(request, None)
            self._leave_if_done()
        answer = asked.answer
        if answer is None:
            raise OutcomeUnknownError(f"the connection to proxy {self.address} was lost")
        if isinstance(answer, RequestRefused):
            if answer.epoch is not None:
                raise FenceRefusedError(answer.error.error, epoch=answer.epoch)
            raise error_of(answer.error)
        return answer

    def _check(self) -> None:
        if self.is_over:
            raise ConnectionFailedError(f"the connection to proxy {self.address} is over")

    def _send(
        self, message: DescribeRequest | OpenChannel | AskStanding | SendBatch | CloseChannel
    ) -> None:
        if not self.is_over:  # Else everyone has been told.
            self._outgoing.push(encode_batches(message))
            self._has_outgoing.set()

    async def run(self) -> None:
        """Read and send until the connection is over; then tell everyone."""
        try:
            async with open_background() as nursery:
                nursery.start_soon(self._send_all)
                nursery.start_soon(self._ping)
                nursery.start_soon(self._watch_silence)
                with self._receiving:
                    while True:
                        message = await self._socket.receive()
                        self._is_heard = True
                        if isinstance(message, str):
                            raise DamagedBytesError(
                                f"proxy {self.address} says {message[:500]}"
                            )
                        self._take_all(message)
        finally:
            self.is_over = True
            for asked in self._asked.values():
                asked.done.set()
            channels, self._channels = self._channels, {}
            for channel in channels.values():
                channel.on_closed(None)

    async def _send_all(self) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing = trio.Event()
            with suppress(SocketClosedError):  # The task that receives meets it, too.
                while self._outgoing:
                    messages, _ = self._outgoing.take()
                    await self._socket.send(messages)

    async def _ping(self) -> None:
        # A ping under way is never cancelled: half of a frame would spoil those behind it.
        with suppress(SocketClosedError):
            while True:
                await self._socket.ping()
                self._is_heard = True
                await trio.sleep(BEAT_S)

    async def _watch_silence(self) -> None:
        silent_beats = 0
        while silent_beats < SILENT_BEATS_MAX:
            await trio.sleep(BEAT_S)
            silent_beats = 0 if self._is_heard else silent_beats + 1
            self._is_heard = False
        raise ConnectionFailedError(
            f"proxy {self.address} said nothing for {SILENT_BEATS_MAX * BEAT_S:g} s"
        )

    def _take_all(self, messages: bytes) -> None:
        """Take messages that came together; each channel hears of its answers once."""
        answered: dict[ProxyChannel, None] = {}
        try:
            for one in messages_of(messages):
                self._take(decode_from_proxy(one), answered)
        finally:
            for channel in answered:
                channel.listener.on_answers()

    def _take(self, message: BatchesFromProxy, answered: dict[ProxyChannel, None]) -> None:
        match message:
            case BatchPlaced() | BatchCompared() | BatchRefused():
                channel = self._channels.get(message.channel)
                if channel is not None:
                    channel.answers.append(message)
                    answered[channel] = None
            case ChannelOpened():
                channel = self._channels.get(message.channel)
                if channel is not None:
                    channel.on_opened(message)
            case ChannelClosed():
                closed = self._channels.pop(message.channel, None)
                if closed is not None:
                    closed.on_closed(message)
                self._leave_if_done()
            case StreamTold() | StandingTold() | RequestRefused():
                asked = self._asked.get(message.request)
                if asked is not None:
                    asked.answer = message
                    asked.done.set()
            case SessionGoaway():
                self.is_going_away = True
                self._leave_if_done()
            case _:
                assert_never(message)

    def _leave_if_done(self) -> None:
        """End the connection if the proxy drains, and nothing is open or asked there."""
        if self.is_going_away and not self._channels and not self._asked:
            self._receiving.cancel(reason="the proxy drains, and nothing is left there")


@asynccontextmanager
async def open_proxy_connection(
    messages: MessageTransport, address: Address
) -> AsyncIterator[ProxyConnection]:
    """Connect to a proxy, for the length of the block; `run` must run meanwhile."""
    async with messages.open(
        address,
        SESSION_PATH,
        subprotocols=(SUBPROTOCOL_BATCHES,),
        message_bytes_max=FRAME_BYTES_MAX,
    ) as socket:
        yield ProxyConnection(address, socket)


class ProxyConnections:
    """Connections of this process, one to each proxy; opened when first needed."""

    def __init__(
        self,
        messages: MessageTransport,
        nursery: trio.Nursery,
        lease_clocks: Callable[[], LeaseClocks] = sleepless_clocks,
    ) -> None:
        """lease_clocks: those of this machine; an answer counts until the first one says no."""
        self.lease_clocks = lease_clocks
        self._messages = messages
        self._nursery = nursery
        self._connections: dict[Address, ProxyConnection] = {}
        self._opening: dict[Address, trio.Lock] = {}

    def __repr__(self) -> str:
        return f"ProxyConnections({len(self._connections)})"

    async def to(self, address: Address) -> ProxyConnection:
        """The connection to a proxy. ConnectionFailedError."""
        async with self._opening.setdefault(address, trio.Lock()):
            found = self._connections.get(address)
            if found is None or found.is_over:
                found = await self._connected(address)
            return found

    async def _connected(self, address: Address) -> ProxyConnection:
        with trio.move_on_after(_CONNECT_S):
            connection: ProxyConnection = await self._nursery.start(self._keep, address)
            return connection
        raise ConnectionFailedError(f"proxy {address} did not answer for {_CONNECT_S:g} s")

    async def _keep(
        self,
        address: Address,
        task_status: trio.TaskStatus[ProxyConnection] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        kept: ProxyConnection | None = None
        try:
            async with open_proxy_connection(self._messages, address) as connection:
                kept = self._connections[address] = connection
                task_status.started(connection)
                await connection.run()
        except GeologError:
            if kept is None:
                raise
        finally:
            if self._connections.get(address) is kept:
                self._connections.pop(address, None)
