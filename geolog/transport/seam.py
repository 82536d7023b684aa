"""The transport seam: ordered byte streams between processes, as TCP gives them.

A stream may end, or break at any byte. Framing, checksums and bounds stand above it, in
`geolog.wire`; so does every protocol decision.
"""

from collections.abc import Sequence
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
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `HOST:PORT`. InvalidArgumentError."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > _PORT_MAX:
            raise InvalidArgumentError(f"{text!r} is not an address: write HOST:PORT")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ByteStream(Protocol):
    """One connection. One task sends and one receives, at most, at a time."""

    @property
    def peer(self) -> str:
        """The other side, as a person would name it."""
        ...

    async def send(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send all bytes in order; wait while the other side is slow. ConnectionFailedError."""
        ...

    def send_nowait(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        """Send what the other side takes at once, and return how many bytes that was."""
        ...

    async def receive_into(self, buffer: bytearray | memoryview) -> int:
        """Wait for bytes, put them at the front of `buffer`, return how many; 0 at the end."""
        ...

    def close(self) -> None:
        """Close at once; whoever waits on either side is told. Closing again does nothing."""
        ...


class Listener(Protocol):
    """A place where others connect to."""

    @property
    def address(self) -> Address:
        """Where it listens, with the real port."""
        ...

    @property
    def failures_count(self) -> int:
        """How many times a connection could not be accepted."""
        ...

    async def accept(self) -> ByteStream:
        """Wait for the next connection; one that cannot be accepted is passed over."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Transport(Protocol):
    """The seam."""

    async def connect(self, address: Address) -> ByteStream:
        """Connect, or raise ConnectionFailedError; the caller bounds the wait."""
        ...

    async def listen(self, address: Address) -> Listener:
        """Listen; port 0 takes a free one. AddressInUseError."""
        ...
