"""A client of `geolog.v1.batches` that sends what it likes, right or wrong."""

import struct
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import lz4.block
from crc32c import crc32c

from geolog.protocol.stream_state import StreamName
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.batch import MAGIC, SealedBatch
from geolog.wire.batch_terms import NO_TERMS, BatchTerms
from geolog.wire.columns import binary_buffers, int64_buffers, validity_buffers
from geolog.wire.session.batches import (
    SUBPROTOCOL_BATCHES,
    BatchesFromClient,
    BatchesFromProxy,
    decode_from_proxy,
    encode_batches,
    messages_of,
)
from geolog.wire.session.channel_messages import (
    ChannelOpened,
    DescribeRequest,
    OpenChannel,
    SendBatch,
    StreamTold,
)
from geolog.wire.session.paths import SESSION_PATH
from regions.proxy.proxy import WriteProxy
from sim.in_process import InProcessCluster
from tests.pure.proxy.proxies import open_session

CHANNEL = 1
_HEADER = struct.Struct("<BBHIIIII")


@attrs.define
class BatchesClient:
    """One session with one channel."""

    socket: MessageSocket
    batches_count: int = 0
    received: deque[bytes] = attrs.field(factory=deque)
    """Messages that came together with an earlier one."""

    async def send(self, message: BatchesFromClient) -> None:
        """Send one message."""
        await self.socket.send(encode_batches(message))

    async def send_batch(self, sealed: SealedBatch, terms: BatchTerms = NO_TERMS) -> None:
        """Send a batch with the next number."""
        await self.send(SendBatch(CHANNEL, self.batches_count, terms, sealed))
        self.batches_count += 1

    async def receive(self) -> BatchesFromProxy:
        """The next message of the proxy."""
        if not self.received:
            frame = await self.socket.receive()
            assert isinstance(frame, bytes), frame
            self.received += messages_of(frame)
        return decode_from_proxy(self.received.popleft())

    async def ask(self, message: BatchesFromClient) -> BatchesFromProxy:
        """Send one message, and return the next that comes."""
        await self.send(message)
        return await self.receive()

    async def told_at_end(self) -> tuple[str, int | None]:
        """The last text of the proxy, and the code with which it closes."""
        text = ""
        while True:
            try:
                frame = await self.socket.receive()
            except SocketClosedError as closed:
                return text, closed.close_code
            text = frame if isinstance(frame, str) else ""


@asynccontextmanager
async def open_batches(
    cluster: InProcessCluster,
    proxy: WriteProxy,
    stream: StreamName | str,
    *,
    host: str = "application",
) -> AsyncIterator[BatchesClient]:
    """Open a session, and a channel to the stream's first partition."""
    async with open_session(
        cluster, proxy, SESSION_PATH, subprotocols=(SUBPROTOCOL_BATCHES,), host=host
    ) as session:
        client = BatchesClient(session.socket)
        told = await client.ask(DescribeRequest(1, str(stream)))
        assert isinstance(told, StreamTold)
        opened = await client.ask(OpenChannel(CHANNEL, str(stream), told.life, 0))
        assert isinstance(opened, ChannelOpened)
        yield client


def sealed_as(body: bytes, *, count: int, **header: int) -> SealedBatch:
    """A batch with this body and a header that says what it likes, and checksums that match.

    header: `version`, `codec`, `columns`, `stored`, `raw`, `body_crc`, `header_crc` and
    `reserved`.
    """
    fields = _HEADER.pack(
        header.get("version", 1),
        header.get("codec", 0),
        header.get("columns", 0),
        count,
        header.get("stored", len(body)),
        header.get("raw", len(body)),
        header.get("body_crc", crc32c(body)),
        header.get("reserved", 0),
    )
    crc = header.get("header_crc", crc32c(fields))
    data = b"".join((MAGIC, crc.to_bytes(4, "little"), fields, body))
    return SealedBatch(data, count, crc, header.get("body_crc", crc32c(body)))


def body_of(*values: bytes, keys: list[bytes] | None = None) -> bytes:
    """The body of a batch of these records, however long, not compressed."""
    buffers = [*int64_buffers([1] * len(values)), *binary_buffers(values, _lengths(values))]
    if keys is not None:
        buffers += [*validity_buffers(keys), *binary_buffers(keys, _lengths(keys))]
    return b"".join(buffers)


def _lengths(items: Sequence[bytes]) -> list[int]:
    return list(map(len, items))


def compressed(body: bytes) -> bytes:
    """The body as one LZ4 block."""
    block: bytes = lz4.block.compress(body, store_size=False)
    return block
