"""The WebSocket endpoint of a proxy: takes connections, and starts the session of each path.

A session that meets a bug ends alone: the client is told 500, the log has the traceback, and
`bugs_count` rises. The proxy serves all others. Tests check that the count is 0.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import assert_never

import trio

from geolog.transport.client_address import client_of
from geolog.transport.message_socket import (
    MessageSocket,
    MessageTransport,
    ServedSocket,
    SocketClosedError,
)
from geolog.transport.seam import ByteStream, Listener
from geolog.transport.unread_bytes import UnreadBytes
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES
from geolog.wire.session.codes import close_code
from geolog.wire.session.frames import FRAME_CODECS, JSON_FRAMES, FrameCodec
from geolog.wire.session.messages import ErrorAnswer
from geolog.wire.session.paths import (
    SESSION_PATH,
    AppendPath,
    ReadPath,
    SessionPath,
    parse_path,
)
from regions.proxy.append_session import AppendSession
from regions.proxy.append_targets import open_target
from regions.proxy.batch_session import BatchSession
from regions.proxy.client_connections import ClientConnections
from regions.proxy.farewells import BUG
from regions.proxy.held_partitions import MovedError
from regions.proxy.read_session import ReadSession
from regions.proxy.refused_connections import RefusedConnections
from regions.proxy.session_host import SessionHost, failure_of, location_of, send_answer
from topology.errors import GeologError, InvalidArgumentError, first_of

_log = logging.getLogger(__name__)

_SUBPROTOCOLS = (*FRAME_CODECS, SUBPROTOCOL_BATCHES)
_REFUSAL = f"no known subprotocol was offered; this endpoint has {', '.join(_SUBPROTOCOLS)}\n"


class Endpoint:
    """Serves sessions. `run` takes connections until it is cancelled."""

    def __init__(
        self,
        listener: Listener,
        messages: MessageTransport,
        host: SessionHost,
        nursery: trio.Nursery,
    ) -> None:
        self._listener = listener
        self._messages = messages
        self._host = host
        self._nursery = nursery
        self._refused = RefusedConnections()
        self._clients = ClientConnections(host.config.connections_max, host.config.client_share)
        self._unread = UnreadBytes(host.config.unread_bytes_max, host.config.client_share)
        self._sessions_count = 0
        self._bugs_count = 0
        self._idle = trio.Event()

    @property
    def sessions_count(self) -> int:
        """Connections that are open now."""
        return self._sessions_count

    @property
    def unread(self) -> UnreadBytes:
        """Messages of clients that no session has taken yet."""
        return self._unread

    @property
    def bugs_count(self) -> int:
        """Connections that an error other than geolog's own has ended."""
        return self._bugs_count

    @property
    def redirects_count(self) -> int:
        """Clients that this proxy has sent to another one."""
        return self._host.traffic.redirects_count

    async def wait_idle(self) -> None:
        """Wait until no connection is open."""
        while self._sessions_count:
            self._idle = trio.Event()
            await self._idle.wait()

    async def run(self) -> None:
        """Take connections; never returns. Those over the limit are told to come back later."""
        while True:
            stream = await self._listener.accept()
            self._nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: ByteStream) -> None:
        self._sessions_count += 1
        client = client_of(stream.peer)
        refusal = self._clients.take(client)
        try:
            with nullcontext() if refusal is None else self._refused.place(stream):
                await self._messages.serve(
                    stream,
                    _choose,
                    partial(self._handle, client, refusal),
                    refusal=_REFUSAL,
                    message_bytes_max=self._host.config.frame_bytes_max,
                    unread=self._unread,
                )
        except* Exception as errors:  # noqa: BLE001 - one client's bug must not end the others.
            self._note_bug(stream, errors)
        finally:
            stream.close()
            if refusal is None:
                self._clients.give_back(client)
            self._sessions_count -= 1
            self._idle.set()

    async def _handle(
        self, client: str, refusal: GeologError | None, socket: ServedSocket, target: str
    ) -> None:
        """Serve one session unless it is refused; tell the client what ended it, and close.

        Several tasks of a session may meet the end of its connection, or different errors.
        """
        farewell: ErrorAnswer | None = None
        try:
            if refusal is None:
                await self._run_session(client, socket, target)
            else:
                farewell = self._farewell(refusal, target)
        except* SocketClosedError:
            pass  # The client has left.
        except* GeologError as errors:
            farewell = self._farewell(first_of(errors), target)
        except* Exception as errors:  # noqa: BLE001 - noted, and told to the client.
            self._note_bug(target, errors)
            farewell = BUG
        if farewell is not None:
            with suppress(SocketClosedError):
                await send_answer(socket, _codec_of(socket).encode(farewell))
                await socket.close(close_code(farewell.code), farewell.error)

    def _farewell(self, error: GeologError, target: str) -> ErrorAnswer:
        location = None
        if isinstance(error, MovedError):
            location = location_of(error.address, target)
            self._host.traffic.redirects_count += 1
        return failure_of(error, None, location=location)

    def _note_bug(self, subject: object, errors: ExceptionGroup[Exception]) -> None:
        self._bugs_count += 1
        _log.error(
            "%s: the session met a bug (%d so far); it ends, the proxy goes on",
            subject,
            self._bugs_count,
            exc_info=errors,
        )

    async def _run_session(self, client: str, socket: ServedSocket, target: str) -> None:
        self._host.origins.check(socket.origin)
        path = parse_path(target)
        is_batches = socket.subprotocol == SUBPROTOCOL_BATCHES
        if is_batches != isinstance(path, SessionPath):
            raise InvalidArgumentError(
                f"{SESSION_PATH} needs subprotocol {SUBPROTOCOL_BATCHES}; no other path has it"
            )
        match path:
            case ReadPath():
                is_single = await self._host.is_single_partition(path.stream, client=client)
                await ReadSession(
                    socket, _codec_of(socket), self._host, path, is_single=is_single
                ).run()
            case AppendPath():
                await self._run_append(client, socket, path)
            case SessionPath():
                await BatchSession(socket, self._host, client=client).run()
            case _:
                assert_never(path)

    async def _run_append(self, client: str, socket: ServedSocket, path: AppendPath) -> None:
        async with open_target(self._host, path, client=client) as target:
            await AppendSession(
                socket, _codec_of(socket), self._host, target, path.writer, client=client
            ).run()


def _codec_of(socket: MessageSocket) -> FrameCodec:
    """The encoding of the session's messages; a session of batches is told errors as JSON."""
    return FRAME_CODECS.get(socket.subprotocol or "", JSON_FRAMES)


def _choose(offered: Sequence[str]) -> str | None:
    """The subprotocol to use; the default if none was offered."""
    if not offered:
        return JSON_FRAMES.subprotocol
    return next((one for one in offered if one in _SUBPROTOCOLS), None)
