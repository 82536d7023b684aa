"""Reads over HTTP: `GET /v1/streams/NAMESPACE/NAME/read`, a record or gap per line.

Theory of operation. One task reads and fills a buffer, the other sends what the buffer has: one
line when lines come singly, many when they come fast. A client that reads slowly holds the
reader back once `_BUFFER_BYTES` wait. The last line says why there are no more: `end`; `goaway`
if the proxy drains; an `error`. An answer without such a line was cut off.
"""

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from geolog.background import open_background
from geolog.wire.session.frames import JSON_FRAMES
from geolog.wire.session.messages import ErrorAnswer, Goaway, ReadEnd
from geolog.wire.session.paths import ReadPath, parse_path
from regions.proxy.http.answers import NDJSON, client_in, target_of
from regions.proxy.read_range import ReadRange, frame_of, open_range
from regions.proxy.session_host import SessionHost, failure_of
from topology.errors import GeologError, InvalidArgumentError

_BUFFER_BYTES = 256 << 10


class LineBuffer:
    """Whole lines between one task that writes them and one that sends them."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._is_over = False
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"LineBuffer({len(self._bytes)} bytes)"

    async def write(self, frame: str | bytes) -> None:
        """Add a line once there is room."""
        while len(self._bytes) >= _BUFFER_BYTES:
            await self._changed.wait()
        self._add(frame)

    def end(self, frame: str | bytes) -> None:
        """Add the last line; later ones are dropped."""
        if not self._is_over:
            self._add(frame)
            self._is_over = True

    def _add(self, frame: str | bytes) -> None:
        if not self._is_over:
            assert isinstance(frame, str), "JSON is text"
            self._bytes += frame.encode() + b"\n"
            self._tell_change()

    def _tell_change(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def take(self) -> bytes:
        """All lines that are there, once there are some; none at the end."""
        while not self._bytes and not self._is_over:
            await self._changed.wait()
        taken = bytes(self._bytes)
        self._bytes.clear()
        self._tell_change()
        return taken


class RangeAnswer(Response):
    """An answer that is made while it is sent."""

    media_type = NDJSON

    def __init__(self, host: SessionHost, path: ReadPath) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._host = host
        self._path = path

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Read, and send the lines. Errors of opening come out before anything is sent."""
        async with open_range(self._host, self._path) as found:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            if scope["method"] != "HEAD":
                await self._send_range(found, send)
        await send({"type": "http.response.body", "body": b""})

    async def _send_range(self, found: ReadRange, send: Send) -> None:
        lines = LineBuffer()
        async with open_background() as nursery:
            nursery.start_soon(self._write_range, found, lines)
            nursery.start_soon(self._watch_drain, lines)
            while piece := await lines.take():
                await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _write_range(self, found: ReadRange, lines: LineBuffer) -> None:
        last: ReadEnd | ErrorAnswer = ReadEnd()
        try:
            async for item in found:
                await lines.write(frame_of(item, JSON_FRAMES))
        except GeologError as error:
            last = failure_of(error, None)
        lines.end(JSON_FRAMES.encode(last))

    async def _watch_drain(self, lines: LineBuffer) -> None:
        await self._host.draining.wait()
        lines.end(JSON_FRAMES.encode(Goaway()))


class HttpReads:
    """The endpoint."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host

    async def read(self, request: Request) -> Response:
        """Answer with the records that the query asks for."""
        path = parse_path(target_of(request))
        assert isinstance(path, ReadPath), "the router sends reads here"
        if path.credit is not None:
            raise InvalidArgumentError(
                "credit is for WebSocket sessions: over HTTP, read the answer more slowly"
            )
        if path.cursor is not None or path.is_shared or path.is_taking:
            raise InvalidArgumentError(
                "cursors are for WebSocket sessions, which commit: over HTTP, give from=…"
            )
        client = client_in(request)
        # Its error names the nearest.
        await self._host.is_single_partition(path.stream, client=client)
        return RangeAnswer(self._host, path)
