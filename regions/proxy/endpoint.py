"""The WebSocket endpoint of a proxy: takes connections, and starts the session of each path."""

import logging
from collections.abc import Sequence

import trio

from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import ByteStream, Listener
from geolog.transport.websocket import WebSocket, serve_websocket
from geolog.wire.session.codes import close_code
from geolog.wire.session.json_frames import SUBPROTOCOL, encode
from geolog.wire.session.paths import AppendPath, ReadPath, parse_path
from regions.proxy.append_session import AppendSession
from regions.proxy.held_partitions import MovedError
from regions.proxy.read_session import ReadSession
from regions.proxy.session_host import SessionHost, failure_of, location_of
from topology.errors import GeologError, InvalidArgumentError

_log = logging.getLogger(__name__)

_REFUSAL = f"no known subprotocol was offered; this endpoint has {SUBPROTOCOL}\n"


class Endpoint:
    """Serves sessions. `run` takes connections until it is cancelled."""

    def __init__(self, listener: Listener, host: SessionHost, nursery: trio.Nursery) -> None:
        self._listener = listener
        self._host = host
        self._nursery = nursery
        self._room = trio.CapacityLimiter(host.config.connections_max)
        self._sessions_count = 0
        self._idle = trio.Event()

    @property
    def sessions_count(self) -> int:
        """Connections that are open now."""
        return self._sessions_count

    async def wait_idle(self) -> None:
        """Wait until no connection is open."""
        while self._sessions_count:
            self._idle = trio.Event()
            await self._idle.wait()

    async def run(self) -> None:
        """Take connections, as many at a time as allowed; never returns."""
        while True:
            token = object()
            await self._room.acquire_on_behalf_of(token)
            stream = await self._listener.accept()
            self._nursery.start_soon(self._serve, stream, token)

    async def _serve(self, stream: ByteStream, token: object) -> None:
        self._sessions_count += 1
        try:
            await serve_websocket(
                stream,
                _choose,
                self._handle,
                refusal=_REFUSAL,
                message_bytes_max=self._host.config.frame_bytes_max,
            )
        except SocketClosedError:
            pass  # The client has left.
        finally:
            stream.close()
            self._room.release_on_behalf_of(token)
            self._sessions_count -= 1
            self._idle.set()

    async def _handle(self, socket: WebSocket, target: str) -> None:
        """Serve one session; tell the client of the error that ends it, and close."""
        try:
            await self._run_session(socket, target)
        except SocketClosedError:
            raise
        except GeologError as error:
            location = None
            if isinstance(error, MovedError):
                location = location_of(error.address, target)
            failure = failure_of(error, None, location=location)
            await socket.send(encode(failure))
            await socket.close(close_code(failure.code), failure.error)

    async def _run_session(self, socket: MessageSocket, target: str) -> None:
        path = parse_path(target)
        if isinstance(path, ReadPath):
            await ReadSession(socket, self._host, path).run()
        else:
            await self._run_append(socket, path)

    async def _run_append(self, socket: MessageSocket, path: AppendPath) -> None:
        stream = await self._host.opener.upkeep.catalog.read(path.stream)
        if path.partition is None and stream.partitions > 1:
            raise InvalidArgumentError(
                f"{stream.name} has {stream.partitions} partitions: name one with ?partition=P"
            )
        async with self._host.held.use(stream, path.partition or 0) as owner:
            session = AppendSession(
                socket,
                self._host,
                stream,
                owner,
                is_whole=path.partition is None,
                writer_id=path.writer,
            )
            await session.run()


def _choose(offered: Sequence[str]) -> str | None:
    """The subprotocol to use; the default if none was offered."""
    return SUBPROTOCOL if not offered or SUBPROTOCOL in offered else None
