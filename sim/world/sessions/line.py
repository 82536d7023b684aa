"""One connection between a session and an owner: whole messages, as Python objects.

The format belongs to the simulator. What matters is that a message takes time, arrives behind
those sent before it, and is lost with all behind it when the connection breaks.
"""

import pickle
import struct

import attrs
import trio

from geolog.partition.batch_admission import FenceRefusedError
from geolog.protocol.ids import DLSN, Sequence
from geolog.protocol.writer_standing import WriterFence, WriterStanding
from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.wire.batch import SealedBatch
from geolog.wire.batch_terms import BatchTerms
from topology.errors import GeologError

_LENGTH = struct.Struct("<I")


@attrs.frozen
class Introduction:
    """The first message: the partition that the session means."""

    partition: int


@attrs.frozen
class Welcome:
    """The owner's answer to that; none comes if the process does not own the partition."""

    transaction_id: int | None


@attrs.frozen
class Greeting:
    """Ask where the writer stands, or fence its older sessions."""

    number: int
    writer_id: bytes
    fence: WriterFence | None


@attrs.frozen
class Delivery:
    """Append a batch."""

    number: int
    sealed: SealedBatch
    terms: BatchTerms


@attrs.frozen
class RecordComparison:
    """Compare a record of a batch with the log, which has its seq."""

    number: int
    sealed: SealedBatch
    terms: BatchTerms
    row: int


@attrs.frozen
class LinePlace:
    """The place of a record; of a batch, that of its first."""

    dlsn: DLSN
    sequence: Sequence


@attrs.frozen
class LineError:
    """An error, without what cannot be sent."""

    kind: type[GeologError]
    words: str
    outcome: str
    epoch: int | None = None

    @classmethod
    def of(cls, error: GeologError) -> "LineError":
        """The error as it is sent."""
        epoch = error.epoch if isinstance(error, FenceRefusedError) else None
        return cls(type(error), str(error), error.outcome, epoch)

    def error(self) -> GeologError:
        """The error as it was."""
        if self.epoch is not None:
            return FenceRefusedError(self.words, epoch=self.epoch)
        error = self.kind(self.words)
        error.outcome = self.outcome  # type: ignore[assignment]  # It was an outcome before.
        return error


@attrs.frozen
class LineAnswer:
    """The answer to a request."""

    number: int
    found: WriterStanding | LinePlace | LineError


class Line:
    """Sends messages in order, from any task, and receives them in one."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._to_send, self._sending = trio.open_memory_channel[bytes](1000)

    def __repr__(self) -> str:
        return f"Line({self._stream.peer})"

    def send_nowait(self, message: object) -> None:
        """Send a message; `run` takes it from here. trio.WouldBlock if too many wait."""
        data = pickle.dumps(message)
        self._to_send.send_nowait(_LENGTH.pack(len(data)) + data)

    async def run(self) -> None:
        """Send what is to be sent, for ever. ConnectionFailedError."""
        async for data in self._sending:
            await self._stream.send([data])

    async def receive(self) -> object:
        """The next message. ConnectionFailedError."""
        [length] = _LENGTH.unpack(await self._receive(_LENGTH.size))
        message: object = pickle.loads(await self._receive(length))
        return message

    async def _receive(self, length: int) -> bytearray:
        data, filled = bytearray(length), 0
        while filled < length:
            count = await self._stream.receive_into(memoryview(data)[filled:])
            if count == 0:
                raise ConnectionFailedError("the other side has closed the connection")
            filled += count
        return data

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
