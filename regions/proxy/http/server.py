"""The HTTP server of a proxy: takes connections, as many at a time as allowed."""

import logging
from contextlib import suppress
from typing import cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.typing import ASGIFramework
from starlette.types import ASGIApp

from geolog.transport.client_address import client_of
from geolog.transport.request_head import read_head, spread_s
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from regions.proxy.client_connections import ClientConnections
from regions.proxy.http.connection import IDLE_S, HttpConnection
from regions.proxy.http.turned_away import LastAnswer, turn_away
from regions.proxy.refused_connections import RefusedConnections

_log = logging.getLogger(__name__)


class HttpServer:
    """Serves an ASGI application. `run` takes connections until it is cancelled."""

    def __init__(
        self,
        listener: Listener,
        application: ASGIApp,
        nursery: trio.Nursery,
        *,
        connections_max: int,
        client_share: float = 1.0,
    ) -> None:
        self._listener = listener
        # starlette and hypercorn describe the same protocol in types of their own.
        self._application = ASGIWrapper(cast("ASGIFramework", application))
        self._probed = ASGIWrapper(cast("ASGIFramework", LastAnswer(application)))
        self._nursery = nursery
        self._refused = RefusedConnections()
        self._clients = ClientConnections(connections_max, client_share)
        self._connections_count = 0
        self._failures_count = 0

    def __repr__(self) -> str:
        return f"HttpServer({self.address}, {self._connections_count} connections)"

    @property
    def address(self) -> Address:
        """The address it listens on, with the real port."""
        return self._listener.address

    @property
    def connections_count(self) -> int:
        """Connections that are open now."""
        return self._connections_count

    @property
    def failures_count(self) -> int:
        """Connections that a bug has ended, outside of any request."""
        return self._failures_count

    async def run(self) -> None:
        """Take connections; never returns. Those over a limit are told to come back later."""
        while True:
            stream = await self._listener.accept()
            self._nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: ByteStream) -> None:
        self._connections_count += 1
        client = client_of(stream.peer)
        refusal = self._clients.take(client)
        try:
            if refusal is None:
                await self._serve_requests(stream, client)
            else:
                with self._refused.place(stream) as keep:
                    await turn_away(stream, client, refusal, self._probed, on_probe=keep)
        except* Exception as errors:  # noqa: BLE001 - one connection must not end the others.
            self._failures_count += 1
            _log.error("%s: the connection met a bug", stream.peer, exc_info=errors)
        finally:
            if refusal is None:
                self._clients.give_back(client)
            self._connections_count -= 1

    async def _serve_requests(self, stream: ByteStream, client: str) -> None:
        head = b""
        limit_s = spread_s(IDLE_S, stream.peer)
        with suppress(ConnectionFailedError), trio.move_on_after(limit_s):
            head = await read_head(stream)
        if head:
            await HttpConnection(stream, head, client, self._application).run()
        else:
            stream.close()
