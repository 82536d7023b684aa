"""The transport seam: ordered byte streams between processes, like TCP's.

A stream may end, or break at any byte. Framing, checksums and bounds are the job of the layer
above, `geolog.wire`; so is every protocol decision.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import ClassVar, Protocol

import attrs

from topology.errors import InvalidArgumentError, UnavailableError

_PORT_MAX = 65535


class ConnectionFailedError(UnavailableError):
    """The other side could not be reached, or the connection broke."""


class AddressInUseError(UnavailableError):
    """Another process listens there already: end it, or choose another port."""

    retriable: ClassVar[bool] = False


@attrs.frozen(order=True)
class Address:
    """Address on which a server listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `HOST:PORT`. InvalidArgumentError."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > _PORT_MAX:
            raise InvalidArgumentError(f"{text!r} is not an address: use HOST:PORT")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes on the same machine can connect to it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class ByteStream(Protocol):
    """One connection. One task sends and one receives, at most, at a time."""

    @property
    def peer(self) -> str:
        """Name of the other side, for people."""
        ...

    async def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send all bytes in order; wait while the other side is slow. ConnectionFailedError."""
        ...

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Send as much as the other side takes at once, and return how many bytes that was."""
        ...

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Wait for bytes, put them at the front of `buffer`, return how many; 0 at the end."""
        ...

    def close(self) -> None:
        """Close at once; tasks waiting on either side are woken. Closing again does nothing."""
        ...


class Listener(Protocol):
    """An address to which others connect."""

    @property
    def address(self) -> Address:
        """The address it listens on, with the real port."""
        ...

    @property
    def failures_count(self) -> int:
        """How many connections could not be accepted."""
        ...

    async def accept(self) -> ByteStream:
        """Wait for the next connection; one that cannot be accepted is skipped."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Transport(Protocol):
    """The seam."""

    async def connect(self, address: Address) -> ByteStream:
        """Connect, or raise ConnectionFailedError; the caller bounds the wait."""
        ...

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen; port 0 picks a free port. AddressInUseError.

        first_bytes_min: no client can say anything in fewer bytes, so a connection may stay
        silent until it has them, or has ended.
        """
        ...
