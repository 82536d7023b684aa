"""A connection of the transport seam as other libraries of trio want it."""

import trio

from geolog.transport.seam import ByteStream, ConnectionFailedError

_RECEIVE_BYTES_MIN = 4 << 10
RECEIVE_BYTES_MAX = 256 << 10
"""Sizes of a connection's receive buffer: thousands of idle ones must cost little memory."""


class ReceiveBuffer:
    """Room for what a connection receives: it grows while much comes, and shrinks again."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES_MIN))

    async def receive(self, stream: ByteStream, bytes_max: int | None = None) -> bytes:
        """The next bytes of the connection; none at the end. ConnectionFailedError."""
        buffer = self._buffer if bytes_max is None else self._buffer[:bytes_max]
        count = await stream.receive_into(buffer)
        received = bytes(buffer[:count])
        size_bytes = len(self._buffer)
        if count == size_bytes < RECEIVE_BYTES_MAX:
            self._buffer = memoryview(bytearray(4 * size_bytes))
        elif count < _RECEIVE_BYTES_MIN < size_bytes:
            self._buffer = memoryview(bytearray(_RECEIVE_BYTES_MIN))
        return received


class TrioStream(trio.abc.Stream):
    """A `trio.abc.Stream` over a connection. trio.BrokenResourceError if that breaks."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = ReceiveBuffer()
        self.failure: ConnectionFailedError | None = None
        """Why the connection broke, if it did."""
        self.received_bytes = 0
        """Bytes that have come."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all; wait while the other side is slow."""
        if data:
            try:
                await self._stream.send([data])
            except ConnectionFailedError as error:
                self._fail(error)
                raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """The next bytes; none at the end."""
        try:
            received = await self._buffer.receive(self._stream, max_bytes)
        except ConnectionFailedError as error:
            self._fail(error)
            raise trio.BrokenResourceError(str(error)) from error
        self.received_bytes += len(received)
        return received

    def _fail(self, error: ConnectionFailedError) -> None:
        self.failure = error.with_traceback(None)  # It would hold this stream: a cycle.

    async def aclose(self) -> None:
        """Close at once."""
        self._stream.close()
        await trio.lowlevel.checkpoint()
