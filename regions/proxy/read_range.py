"""The part of a stream that a path names, for readers over WebSockets and HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from geolog.client.reading.bounds import parse_bound
from geolog.client.reading.reader import Reader
from geolog.client.reading.record import Gap, Record
from geolog.client.reading.record_documents import gap_document, record_document_in
from geolog.wire.session.frames import FrameCodec
from geolog.wire.session.paths import ReadPath
from regions.proxy.session_host import SessionHost


class ReadRange:
    """Iterates over records and gaps, up to the path's end or count."""

    def __init__(self, reader: Reader, count: int | None) -> None:
        self._reader = reader
        self._items = reader.items()
        self._left = count

    def __aiter__(self) -> "ReadRange":
        return self

    def commit_through(self, partition: int, sequence: int) -> int | None:
        """Commit a partition's records up to this one, which was returned before.

        The hold that they belong to; None if another reader has the partition by now.
        """
        return self._reader.commit_through(partition, sequence)

    async def wait_stored(self, partition: int, hold: int) -> None:
        """Wait until what was committed in this hold is stored. CursorLostError."""
        await self._reader.wait_stored(partition, hold)

    async def __anext__(self) -> Record | Gap:
        if self._left == 0:
            raise StopAsyncIteration
        item = await anext(self._items)
        if self._left is not None and isinstance(item, Record):
            self._left -= 1
        return item


@asynccontextmanager
async def open_range(host: SessionHost, path: ReadPath) -> AsyncIterator[ReadRange]:
    """Open a reader for the length of the block."""
    name = str(path.stream) if path.partition is None else f"{path.stream}#{path.partition}"
    start = parse_bound(path.start, now_us=host.now_us)
    stop = None if path.stop is None else parse_bound(path.stop, now_us=host.now_us)
    async with host.log.open_reader(
        name,
        start=start,
        stop=stop,
        follow=path.is_following,
        cursor=path.cursor,
        shared=path.is_shared,
        take=path.is_taking,
        auto_commit=path.cursor is None,
    ) as reader:
        yield ReadRange(reader, path.count)


def frame_of(item: Record | Gap, codec: FrameCodec) -> str | bytes:
    """The frame that carries a record or gap."""
    if isinstance(item, Gap):
        return codec.encode_read("gap", gap_document(item))
    return codec.encode_read("record", record_document_in(codec, item))
