"""Relays of another version: what they say of their version, and believe of ours.

A relay of another version is a real one whose version numbers are moved on their way out and
in: each side judges by its own rules. Nothing but the first words of a bridge is changed, for
there must be no others: a bridge that is opened in spite of it is counted as mixed.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs

from geolog.transport.message_socket import (
    MessageSocket,
    MessageTransport,
    OpenedSocket,
    ServedSocket,
)
from geolog.transport.seam import Address, ByteStream
from geolog.transport.unread_bytes import UnreadBytes
from relay.protocol.bridge_messages import BridgeHello, BridgeRefused, BridgeWelcome
from relay.wire.bridge import (
    SUBPROTOCOL_BRIDGE,
    decode_from_home,
    decode_from_target,
    encode_bridge,
)


@attrs.define(eq=False)
class MetVersions:
    """How bridges between two versions went, by the relay that has the other one."""

    refused_count: int = 0
    mixed_count: int = 0
    """Bridges that were opened: one side would not understand the other."""


@attrs.define(eq=False)
class _ShiftedSocket:
    """One end of a bridge, at a relay whose versions are `shift` above those of the others."""

    _socket: MessageSocket
    _shift: int
    _is_home: bool
    _met: MetVersions
    _has_sent: bool = attrs.field(init=False, default=False)
    _has_received: bool = attrs.field(init=False, default=False)

    @property
    def subprotocol(self) -> str | None:
        """See `MessageSocket`."""
        return self._socket.subprotocol

    @property
    def origin(self) -> str | None:
        """See `MessageSocket`."""
        return self._socket.origin

    async def receive(self) -> str | bytes:
        """The next message; the version of the first is moved. See `MessageSocket`."""
        message = await self._socket.receive()
        is_first, self._has_received = not self._has_received, True
        if not is_first:
            return message
        return self._moved(message, -self._shift, is_from_home=not self._is_home)

    async def send(self, message: str | bytes) -> None:
        """Send a message; the version of the first is moved. See `MessageSocket`."""
        is_first, self._has_sent = not self._has_sent, True
        if is_first:
            message = self._moved(message, self._shift, is_from_home=self._is_home)
        await self._socket.send(message)

    async def ping(self) -> None:
        """See `MessageSocket`."""
        await self._socket.ping()

    async def close(self, close_code: int, reason: str = "") -> None:
        """See `MessageSocket`."""
        await self._socket.close(close_code, reason)

    def _moved(self, message: str | bytes, by: int, *, is_from_home: bool) -> str | bytes:
        if isinstance(message, str):
            return message
        said = decode_from_home(message) if is_from_home else decode_from_target(message)
        match said:
            case BridgeHello():
                return encode_bridge(
                    attrs.evolve(
                        said,
                        version_first=said.version_first + by,
                        version_last=said.version_last + by,
                    )
                )
            case BridgeWelcome():
                self._met.mixed_count += 1
                return encode_bridge(attrs.evolve(said, version=said.version + by))
            case BridgeRefused():
                self._met.refused_count += 1
        return message


@attrs.define(eq=False)
class _ShiftedOpenedSocket(_ShiftedSocket):
    """Likewise, of a client."""

    _opened: OpenedSocket = attrs.field(kw_only=True)

    @property
    def received_bytes(self) -> int:
        """See `OpenedSocket`."""
        return self._opened.received_bytes


@attrs.define(eq=False)
class _ShiftedServedSocket(_ShiftedSocket):
    """Likewise, of a server."""

    _served: ServedSocket = attrs.field(kw_only=True)

    @property
    def next_arrived_s(self) -> float | None:
        """See `ServedSocket`."""
        return self._served.next_arrived_s

    async def wait_message(self) -> None:
        """See `ServedSocket`."""
        await self._served.wait_message()

    async def send_all(self, messages: Sequence[str | bytes]) -> None:
        """See `ServedSocket`."""
        for message in messages:
            await self.send(message)


@attrs.frozen
class OtherVersion:
    """The messages of a relay whose versions are `shift` above those of the others."""

    _messages: MessageTransport
    _shift: int
    _met: MetVersions

    @asynccontextmanager
    async def open(
        self,
        address: Address,
        target: str,
        *,
        subprotocols: Sequence[str],
        message_bytes_max: int,
    ) -> AsyncIterator[OpenedSocket]:
        """Connect to a server, for the length of the block. See `MessageTransport`."""
        async with self._messages.open(
            address, target, subprotocols=subprotocols, message_bytes_max=message_bytes_max
        ) as socket:
            if socket.subprotocol == SUBPROTOCOL_BRIDGE:
                socket = _ShiftedOpenedSocket(
                    socket, self._shift, is_home=False, met=self._met, opened=socket
                )
            yield socket

    async def serve(
        self,
        stream: ByteStream,
        choose: Callable[[Sequence[str]], str | None],
        handle: Callable[[ServedSocket, str], Awaitable[None]],
        *,
        refusal: str,
        message_bytes_max: int,
        unread: UnreadBytes | None = None,
    ) -> None:
        """Serve one accepted connection. See `MessageTransport`."""

        async def handle_shifted(socket: ServedSocket, target: str) -> None:
            if socket.subprotocol == SUBPROTOCOL_BRIDGE:
                socket = _ShiftedServedSocket(
                    socket, self._shift, is_home=True, met=self._met, served=socket
                )
            await handle(socket, target)

        await self._messages.serve(
            stream,
            choose,
            handle_shifted,
            refusal=refusal,
            message_bytes_max=message_bytes_max,
            unread=unread,
        )
