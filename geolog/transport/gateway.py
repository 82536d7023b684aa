"""Connections through a gateway: one line asks for a server, one line answers.

A gateway is between regions. A client that wants to reach a server connects to the gateway
instead and sends `geolog-dial/1 REGION HOST:PORT`. The gateway answers with one line:

- `open`: the server was reached; everything that follows is between the two;
- `direct`: the gateway does not handle this server (e.g. it is in the same region): connect
  without the gateway;
- `refused REASON`: the server cannot be reached;
- `unknown REASON`: the gateway does not know REGION, and never connects anyone from there.
"""

from typing import ClassVar

import attrs

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from geolog.transport.tcp import TcpTransport
from topology.errors import InvalidArgumentError

LINE_BYTES_MAX = 512

OPEN, DIRECT, REFUSED, UNKNOWN = "open", "direct", "refused", "unknown"

_GREETING = "geolog-dial/1"


class UnknownHereError(ConnectionFailedError):
    """The gateway does not know the caller's region: no later try will connect."""

    retriable: ClassVar[bool] = False


@attrs.frozen
class Gateway:
    """A gateway, and the region from which the client asks it."""

    address: Address
    region: str


def gateway_of(address: Address | str | None, region: str | None) -> Gateway | None:
    """The gateway for these settings. InvalidArgumentError if the region is missing."""
    if address is None:
        return None
    if region is None:
        raise InvalidArgumentError(
            f"gateway {address} needs your region: give --region, or region= in a program"
        )
    where = Address.parse(address) if isinstance(address, str) else address
    return Gateway(where, region)


def dial_line(region: str, address: Address) -> bytes:
    """The line that a client in `region` sends to reach `address`."""
    return f"{_GREETING} {region} {address}\n".encode()


def parse_dial_line(line: bytes) -> tuple[str, Address]:
    """The region and the address. InvalidArgumentError for any other line."""
    match line.decode("utf-8", "replace").split():
        case [greeting, region, where] if greeting == _GREETING:
            return region, Address.parse(where)
    raise InvalidArgumentError(f"a gateway expects {_GREETING} REGION HOST:PORT, got {line!r}")


def is_open(line: bytes, address: Address) -> bool:
    """Whether the gateway opened the connection; if not, connect without it.

    UnknownHereError if it does not know the region; ConnectionFailedError if it refused, or
    answered something else.
    """
    word, _, reason = line.decode("utf-8", "replace").strip().partition(" ")
    if word == UNKNOWN:
        raise UnknownHereError(f"unknown {reason}")
    if word == REFUSED:
        raise ConnectionFailedError(f"cannot connect to {address}: {reason}")
    if word not in (OPEN, DIRECT):
        raise ConnectionFailedError(
            f"cannot connect to {address}: the gateway answered {line!r}; is one running there?"
        )
    return word == OPEN


@attrs.frozen
class GatewayTransport:
    """`Transport` over TCP that connects through a gateway, and listens without one."""

    gateway: Gateway
    tcp: TcpTransport = attrs.field(factory=TcpTransport)

    async def connect(self, address: Address) -> ByteStream:
        """Ask the gateway for the address; connect directly if the gateway says so."""
        stream = await self.tcp.connect(self.gateway.address)
        try:
            await stream.send([dial_line(self.gateway.region, address)])
            opened = is_open(await _line(stream), address)
        except BaseException:
            stream.close()
            raise
        if not opened:
            stream.close()
            return await self.tcp.connect(address)
        return stream

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen, as without a gateway."""
        return await self.tcp.listen(address, first_bytes_min=first_bytes_min)


async def check_region_known(gateway: Gateway) -> None:
    """UnknownHereError if the gateway does not know the region; it answers that at once.

    Any other ConnectionFailedError: the gateway cannot be reached, or is none.
    """
    stream = await TcpTransport().connect(gateway.address)
    try:
        # Its own address is behind no link, so that nothing but the region decides.
        await stream.send([dial_line(gateway.region, gateway.address)])
        is_open(await _line(stream), gateway.address)
    finally:
        stream.close()


def transport_through(gateway: Gateway | None) -> TcpTransport | GatewayTransport:
    """TCP, through the gateway if there is one."""
    return TcpTransport() if gateway is None else GatewayTransport(gateway)


async def _line(stream: ByteStream) -> bytes:
    """The gateway's answer, without consuming any byte after it."""
    line, byte = b"", bytearray(1)
    while not line.endswith(b"\n") and len(line) < LINE_BYTES_MAX:
        if not await stream.receive_into(byte):
            break
        line += byte
    return line
