"""A session that reads a stream: records and gaps out, as far as the client's credit goes.

With a cursor, the client commits what it is done with, and may ask to be told once a commit is
stored. After the end of the range the session waits a while for the last commits. A client that
leaves has its commits stored, and the cursor given up, before the session is closed.
"""

from contextlib import suppress
from typing import assert_never

import trio

from geolog.background import open_background
from geolog.catalog.cursors import CursorLostError
from geolog.client.reading.record import Record
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.wire.session.codes import CLOSE_NORMAL, CLOSE_RESTART, close_code
from geolog.wire.session.frames import FrameCodec
from geolog.wire.session.messages import (
    AppendId,
    AppendRequest,
    Credit,
    CursorCommit,
    CursorCommitted,
    CursorLeave,
    Goaway,
    ReadEnd,
    SessionHello,
)
from geolog.wire.session.paths import ReadPath
from regions.proxy.read_range import ReadRange, frame_of, open_range
from regions.proxy.session_host import (
    READ_TAKEN_S,
    SessionHost,
    failure_of,
    send_answer,
)
from topology.errors import GeologError, InvalidArgumentError

_UNTOLD_MAX = 100
"""Commits that wait for their answers; the session takes no more frames then."""

_COMMITS_S = 10.0
"""How long, after the end, the session waits for each further commit of the client."""


class ReadSession:
    """One session over one socket. `run` serves it."""

    def __init__(
        self,
        socket: MessageSocket,
        codec: FrameCodec,
        host: SessionHost,
        path: ReadPath,
        *,
        is_single: bool,
    ) -> None:
        self._socket = socket
        self._codec = codec
        self._host = host
        self._path = path
        self._credit = path.credit
        self._has_credit = trio.Event()
        self._only = 0 if is_single else path.partition
        """The partition of a commit that names none."""
        self._range: ReadRange | None = None
        self._sent: dict[int, int] = {}
        """The highest sequence that was sent, by partition."""
        self._committed: dict[int, int] = {}
        """The highest sequence that the client is done with."""
        self._has_commit = trio.Event()
        self._untold_count = 0
        """Commits whose answer is due."""
        self._has_told = trio.Event()
        self._reading = trio.CancelScope()

    def __repr__(self) -> str:
        return f"ReadSession({self._path.stream}, credit {self._credit})"

    async def run(self) -> None:
        """Send the range; then say that it ended, and close."""
        await self._send(
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
            nursery.start_soon(self._take_frames, nursery)
            nursery.start_soon(self._watch_drain, nursery.cancel_scope)
            with self._reading:
                await self._send_range()
            await self._wait_told()  # Closing the range has stored the last commits.
            await self._socket.close(CLOSE_NORMAL)

    async def _send(self, frame: str | bytes) -> None:
        await send_answer(self._socket, frame, taken_s=READ_TAKEN_S)

    async def _send_range(self) -> None:
        async with open_range(self._host, self._path) as found:
            self._range = found
            async for item in found:
                if isinstance(item, Record):
                    await self._spend_credit()
                    last = max(item.sequence, self._sent.get(item.partition, -1))
                else:  # Behind one that diverged, sequences begin again further back.
                    last = item.sequence_next - 1
                if self._path.cursor is not None:
                    self._sent[item.partition] = last
                await self._send(frame_of(item, self._codec))
            await self._send(self._codec.encode(ReadEnd()))
            await self._wait_commits()

    async def _wait_commits(self) -> None:
        """Wait until the client has committed what was sent, or does not."""
        while any(self._committed.get(one, -1) < last for one, last in self._sent.items()):
            self._has_commit = trio.Event()
            with trio.move_on_after(_COMMITS_S) as scope:
                await self._has_commit.wait()
            if scope.cancelled_caught:
                return

    async def _wait_told(self) -> None:
        """Wait until each commit with an id has its answer, or will have none."""
        with trio.move_on_after(_COMMITS_S):
            while self._untold_count:
                await self._has_told.wait()

    async def _spend_credit(self) -> None:
        if self._credit is None:
            return
        while not self._credit:
            self._has_credit = trio.Event()
            await self._has_credit.wait()
        self._credit -= 1

    async def _take_frames(self, nursery: trio.Nursery) -> None:
        scope = nursery.cancel_scope
        try:
            while True:
                while self._untold_count >= _UNTOLD_MAX:
                    await self._has_told.wait()
                self._take(await self._socket.receive(), nursery)
        except SocketClosedError:
            scope.cancel(reason="the client has left")
        except GeologError as error:
            failure = failure_of(error, None)
            await self._send(self._codec.encode(failure))
            await self._socket.close(close_code(failure.code), failure.error)
            scope.cancel(reason="the client sent what is no message")

    def _take(self, frame: str | bytes, nursery: trio.Nursery) -> None:
        message = self._codec.decode(frame)
        match message:
            case AppendRequest():
                raise InvalidArgumentError("appends need an append path; this session reads")
            case Credit(records):
                self._credit = (self._credit or 0) + records
                self._has_credit.set()
            case CursorCommit():
                self._commit(message, nursery)
            case CursorLeave():
                self._reading.cancel(reason="the client leaves")
            case _:
                assert_never(message)

    def _commit(self, message: CursorCommit, nursery: trio.Nursery) -> None:
        if self._path.cursor is None:
            raise InvalidArgumentError("a commit needs a cursor: add cursor=NAME to the path")
        partition = self._only if message.partition is None else message.partition
        if partition is None:
            raise InvalidArgumentError(
                f"{self._path.stream} has several partitions: the commit needs"
                ' "partition" as well'
            )
        if self._range is None or message.sequence > self._sent.get(partition, -1):
            raise InvalidArgumentError(
                f"sequence {message.sequence} of {self._path.stream}#{partition} was not sent:"
                " commit the sequence of a record that was"
            )
        hold = self._range.commit_through(partition, message.sequence)
        before = self._committed.get(partition, -1)
        self._committed[partition] = max(before, message.sequence)
        self._has_commit.set()
        if message.id is not None:
            self._untold_count += 1
            nursery.start_soon(self._tell_stored, message.id, partition, hold)

    async def _tell_stored(self, id_: AppendId, partition: int, hold: int | None) -> None:
        assert self._range is not None
        try:
            if hold is None:
                raise CursorLostError(
                    f"{self._path.stream}#{partition} is another reader's now, or its position"
                    " was set"
                )
            await self._range.wait_stored(partition, hold)
            await self._send(self._codec.encode(CursorCommitted(id_)))
        except GeologError as error:
            with suppress(SocketClosedError):
                await self._send(self._codec.encode(failure_of(error, id_)))
        finally:
            self._untold_count -= 1
            has_told, self._has_told = self._has_told, trio.Event()
            has_told.set()

    async def _watch_drain(self, scope: trio.CancelScope) -> None:
        await self._host.draining.wait()
        await self._send(self._codec.encode(Goaway()))
        await self._socket.close(CLOSE_RESTART, "the proxy is going away")
        scope.cancel(reason="the proxy is going away")
