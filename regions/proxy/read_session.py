"""A session that reads a stream: records and gaps out, as far as the client's credit goes."""

import trio

from geolog.background import open_background
from geolog.client.reading.record import Record
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.session.codes import CLOSE_NORMAL, CLOSE_RESTART, close_code
from geolog.wire.session.frames import FrameCodec
from geolog.wire.session.messages import AppendRequest, Goaway, ReadEnd, SessionHello
from geolog.wire.session.paths import ReadPath
from regions.proxy.read_range import frame_of, open_range
from regions.proxy.session_host import SessionHost, failure_of
from topology.errors import GeologError, InvalidArgumentError


class ReadSession:
    """One session over one socket. `run` serves it."""

    def __init__(
        self, socket: MessageSocket, codec: FrameCodec, host: SessionHost, path: ReadPath
    ) -> None:
        self._socket = socket
        self._codec = codec
        self._host = host
        self._path = path
        self._credit = path.credit
        self._has_credit = trio.Event()

    def __repr__(self) -> str:
        return f"ReadSession({self._path.stream}, credit {self._credit})"

    async def run(self) -> None:
        """Send the range; then say that it ended, and close."""
        await self._socket.send(
            self._codec.encode(
                SessionHello(
                    session=self._host.new_session_id(),
                    region=self._host.config.region,
                    owner=None,
                    epoch=None,
                    writer_epoch=None,
                    writer_seq=None,
                    max_frame_bytes=self._host.config.frame_bytes_max,
                    credit_bytes=self._host.config.credit_bytes,
                )
            )
        )
        async with open_background() as nursery:
            nursery.start_soon(self._take_frames, nursery.cancel_scope)
            nursery.start_soon(self._watch_drain, nursery.cancel_scope)
            await self._send_range()
            await self._socket.send(self._codec.encode(ReadEnd()))
            await self._socket.close(CLOSE_NORMAL)

    async def _send_range(self) -> None:
        async with open_range(self._host, self._path) as found:
            async for item in found:
                if isinstance(item, Record):
                    await self._spend_credit()
                await self._socket.send(frame_of(item, self._codec))

    async def _spend_credit(self) -> None:
        if self._credit is None:
            return
        while not self._credit:
            self._has_credit = trio.Event()
            await self._has_credit.wait()
        self._credit -= 1

    async def _take_frames(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                self._take(await self._socket.receive())
        except SocketClosedError:
            scope.cancel(reason="the client has left")
        except GeologError as error:
            failure = failure_of(error, None)
            await self._socket.send(self._codec.encode(failure))
            await self._socket.close(close_code(failure.code), failure.error)
            scope.cancel(reason="the client sent what is no message")

    def _take(self, frame: str | bytes) -> None:
        message = self._codec.decode(frame)
        if isinstance(message, AppendRequest):
            raise InvalidArgumentError("appends need an append path; this session reads")
        self._credit = (self._credit or 0) + message.records
        self._has_credit.set()

    async def _watch_drain(self, scope: trio.CancelScope) -> None:
        await self._host.draining.wait()
        await self._socket.send(self._codec.encode(Goaway()))
        await self._socket.close(CLOSE_RESTART, "the proxy is going away")
        scope.cancel(reason="the proxy is going away")
