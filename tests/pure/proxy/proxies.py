"""Proxies over the memory network, and clients that speak plain WebSocket."""

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import attrs
import msgpack

from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.websocket import open_websocket
from geolog.wire.session.frames import JSON_FRAMES, MSGPACK_FRAMES
from regions.proxy.config import ProxyConfig
from regions.proxy.proxy import WriteProxy, open_write_proxy
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster

PORT = 7000
HTTP_PORT = 7080


Frame = dict[str, object]


@attrs.define
class SessionClient:
    """One session, in frames of its subprotocol, as any WebSocket client would speak it."""

    socket: MessageSocket
    subprotocol: str
    closed: SocketClosedError | None = None
    """How the proxy closed the session, once `receive_all` has met that."""

    async def send(self, **frame: object) -> None:
        """Send one frame."""
        is_binary = self.subprotocol == MSGPACK_FRAMES.subprotocol
        await self.socket.send(msgpack.packb(frame) if is_binary else json.dumps(frame))

    async def receive(self) -> Frame:
        """The next frame."""
        frame = await self.socket.receive()
        is_binary = isinstance(frame, bytes)
        assert is_binary == (self.subprotocol == MSGPACK_FRAMES.subprotocol)
        found = msgpack.unpackb(frame) if is_binary else json.loads(frame)
        assert isinstance(found, dict)
        return found

    async def receive_all(self) -> list[Frame]:
        """All frames until the proxy closes the session."""
        frames: list[Frame] = []
        while self.closed is None:
            try:
                frames.append(await self.receive())
            except SocketClosedError as closed:
                self.closed = closed
        return frames

    async def ask(self, **frame: object) -> Frame:
        """Send one frame, and return the next that comes."""
        await self.send(**frame)
        return await self.receive()


@asynccontextmanager
async def open_proxy(
    cluster: InProcessCluster,
    proxy_id: str,
    region: str,
    *,
    on_session: Callable[[MemoryMetadata], None] | None = None,
    rng: random.Random | None = None,
    bugs_count: int = 0,
    **settings: object,
) -> AsyncIterator[WriteProxy]:
    """Run a proxy on a host of its own. `bugs_count`: as many bugs are expected, no more."""
    config = ProxyConfig(
        region=region,
        listen=Address(proxy_id, PORT),
        proxy_id=proxy_id,
        **{"http": Address(proxy_id, HTTP_PORT)} | settings,  # type: ignore[arg-type]
    )
    async with (
        cluster.store.open_session() as metadata,
        open_write_proxy(
            config,
            metadata=metadata,
            transport=cluster.network.transport(proxy_id),
            cluster="default",
            rng=rng or random.Random(proxy_id),
            now_us=cluster.now_us,
        ) as proxy,
    ):
        if on_session is not None:
            on_session(metadata)
        yield proxy
    found_count = proxy.endpoint.bugs_count + (proxy.http.bugs_count if proxy.http else 0)
    assert found_count == bugs_count, "the log has the tracebacks"


@asynccontextmanager
async def open_session(
    cluster: InProcessCluster,
    proxy: WriteProxy,
    target: str,
    *,
    subprotocols: tuple[str, ...] = (),
    host: str = "application",
) -> AsyncIterator[SessionClient]:
    """Open a session at a path of the proxy; its first frame is still to come."""
    async with open_websocket(
        cluster.network.transport(host),
        proxy.address,
        target,
        subprotocols=subprotocols,
        message_bytes_max=1 << 24,
    ) as socket:
        yield SessionClient(socket, socket.subprotocol or JSON_FRAMES.subprotocol)


class OpenSession(Protocol):
    """`open_session`, perhaps with a subprotocol chosen already."""

    def __call__(
        self,
        cluster: InProcessCluster,
        proxy: WriteProxy,
        target: str,
        *,
        subprotocols: tuple[str, ...] = ...,
        host: str = ...,
    ) -> AbstractAsyncContextManager[SessionClient]:
        """Open a session."""
        ...
