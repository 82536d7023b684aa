"""A client that speaks plain HTTP/1.1 over the memory network."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

import attrs
import h11

from geolog.transport.seam import ByteStream, ConnectionFailedError
from geolog.wire.session.json_records import Json
from regions.proxy.proxy import WriteProxy
from sim.in_process import InProcessCluster

Headers = dict[str, str]


@attrs.frozen
class Answer:
    """One whole answer."""

    status: int
    headers: Headers
    body: bytes

    @property
    def document(self) -> Json:
        """The body, as one JSON object."""
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def lines(self) -> list[Json]:
        """The body, as one JSON object per line; the last line is whole, too."""
        assert self.body.endswith(b"\n")
        return [json.loads(line) for line in self.body.splitlines()]


@attrs.define
class HttpClient:
    """One connection."""

    stream: ByteStream
    connection: h11.Connection = attrs.field(factory=lambda: h11.Connection(h11.CLIENT))

    async def send(self, *events: h11.Event) -> None:
        """Send parts of a request."""
        for event in events:
            data = self.connection.send(event)
            if data:
                await self.stream.send([data])

    async def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next part of an answer."""
        while (event := self.connection.next_event()) is h11.NEED_DATA:
            buffer = bytearray(1 << 16)
            count = await self.stream.receive_into(buffer)
            self.connection.receive_data(bytes(buffer[:count]))
        return event

    async def start(
        self, method: str, target: str, *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Send the head of a request."""
        all_headers = [("host", "proxy"), *headers]
        await self.send(h11.Request(method=method, target=target, headers=all_headers))

    async def receive_head(self) -> h11.Response:
        """Receive the head of the answer."""
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event

    async def receive(self) -> Answer:
        """Receive one answer, and get ready for the next request."""
        head = await self.receive_head()
        body = bytearray()
        while not isinstance(event := await self.next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), event
            body += event.data
        if self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE:
            self.connection.start_next_cycle()
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Answer(head.status_code, headers, bytes(body))

    async def receive_rest(self) -> None:
        """Receive until the proxy ends the connection, in whatever way."""
        with suppress(ConnectionFailedError):
            while await self.stream.receive_into(bytearray(1 << 16)):
                pass

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes | Sequence[bytes] = b"",
        *,
        headers: Iterable[tuple[str, str]] = (),
    ) -> Answer:
        """Send one request, and return its answer. A list as body is sent in chunks."""
        if isinstance(body, bytes):
            length = [("content-length", str(len(body)))] if body else []
            await self.start(method, target, headers=[*headers, *length])
            pieces = [body] if body else []
        else:
            await self.start(
                method, target, headers=[*headers, ("transfer-encoding", "chunked")]
            )
            pieces = list(body)
        await self.send(*(h11.Data(data=piece) for piece in pieces), h11.EndOfMessage())
        return await self.receive()


@asynccontextmanager
async def open_http(
    cluster: InProcessCluster, proxy: WriteProxy, *, host: str = "application"
) -> AsyncIterator[HttpClient]:
    """Connect to the proxy's HTTP port, from this host."""
    assert proxy.http_address is not None
    stream = await cluster.network.transport(host).connect(proxy.http_address)
    try:
        yield HttpClient(stream)
    finally:
        stream.close()
