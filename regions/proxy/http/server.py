"""The HTTP server of a proxy: takes connections, as many at a time as allowed."""

import logging
from typing import cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.typing import ASGIFramework
from starlette.types import ASGIApp

from geolog.transport.seam import Address, ByteStream, Listener
from regions.proxy.http.connection import HttpConnection

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
    ) -> None:
        self._listener = listener
        # starlette and hypercorn describe the same protocol in types of their own.
        self._application = ASGIWrapper(cast("ASGIFramework", application))
        self._nursery = nursery
        self._room = trio.CapacityLimiter(connections_max)
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
        """Take connections; never returns."""
        while True:
            token = object()
            await self._room.acquire_on_behalf_of(token)
            stream = await self._listener.accept()
            self._nursery.start_soon(self._serve, stream, token)

    async def _serve(self, stream: ByteStream, token: object) -> None:
        self._connections_count += 1
        try:
            await HttpConnection(stream, self._application).run()
        except* Exception as errors:  # noqa: BLE001 - one connection must not end the others.
            self._failures_count += 1
            _log.error("%s: the connection met a bug", stream.peer, exc_info=errors)
        finally:
            self._connections_count -= 1
            self._room.release_on_behalf_of(token)
