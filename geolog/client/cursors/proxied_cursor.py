"""Reads by a cursor through write proxies: one session at a time, which has the cursor.

Theory of operation. The proxy's process holds the lease, and this client tells it what the
application is done with, a few times a second. When the session ends before the read does, the
read goes on at another proxy, where the cursor stands: what was not committed comes again. The
lease of a dead proxy lasts as long as its session with metadata, so a cursor that is held is
waited for then. Each session is a hold: what was taken in an earlier one is not committed.

Rules: PROTOCOL K5.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from geolog.background import open_background
from geolog.catalog.cursors import CursorHeldError, CursorLostError
from geolog.client.cursors.cursor_reader import CursorReader
from geolog.client.proxies.remote_partition import BACK_OFF_FIRST_S
from geolog.client.proxies.routes import ProxyRoutes
from geolog.client.reading.bounds import Bound
from geolog.client.reading.proxied_reader import (
    AHEAD_RECORDS,
    ProxiedRead,
    Received,
    error_told,
)
from geolog.client.reading.record import Gap, RecordBatch
from geolog.protocol.ids import Position
from geolog.transport.message_socket import MessageSocket, MessageTransport, SocketClosedError
from geolog.transport.seam import Address
from geolog.wire.session.documents import Document
from geolog.wire.session.frames import commit_frame, leave_frame, read_document
from geolog.wire.session.paths import ReadPath
from topology.errors import ConflictError, FencedError, GeologError, InvalidArgumentError

_COMMITS_PAUSE_S = 0.2
"""Pause between two rounds of commits; the proxy stores one a second."""

_LEAVE_S = 6.0
"""How long to wait until the proxy has given the cursor up."""


@attrs.define(eq=False)
class _Asked:
    """A commit whose answer is waited for."""

    has_answer: trio.Event = attrs.field(factory=trio.Event)
    error: GeologError | None = None


class _Session:
    """The session that the tasks of one reader share, and what is done in it."""

    def __init__(self) -> None:
        self.number = 0
        self.socket: MessageSocket | None = None
        self.failure: GeologError | None = None
        self.is_leaving = False
        self.is_over = trio.Event()
        self.holds: deque[int] = deque()
        """The sessions of the runs that the application has not taken yet."""
        self._done: dict[int, int] = {}
        """The last sequence that is done and not told yet, by partition."""
        self._told: dict[int, int] = {}
        self._has_done = trio.Event()
        self._asked: dict[int, _Asked] = {}
        self._asked_count = 0

    def begin(self, socket: MessageSocket) -> None:
        """A session begins: a new hold of all partitions."""
        self.number += 1
        self.socket = socket
        self._done.clear()
        self._told.clear()

    def end(self) -> None:
        """The session is over."""
        self.socket = None
        for asked in self._asked.values():
            asked.has_answer.set()

    def on_done(self, partition: int, hold: int, position: Position) -> None:
        """The application is done with everything before this position."""
        sequence = position.sequence - 1
        if hold == self.number and sequence >= 0 and self._told.get(partition) != sequence:
            self._done[partition] = sequence
            self._has_done.set()

    async def wait_stored(self, holds: Mapping[int, int]) -> None:
        """Wait until all that is done in these holds is stored.

        CursorLostError if some of it will never be; then all the rest is stored.
        """
        await self.tell_done()
        errors = []
        for partition, hold in sorted(holds.items()):
            try:
                await self._wait_stored(partition, hold)
            except CursorLostError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _wait_stored(self, partition: int, hold: int) -> None:
        self._check(hold)
        if partition not in self._told or self.socket is None:
            return
        self._asked_count += 1
        number = self._asked_count
        asked = self._asked[number] = _Asked()
        try:
            with suppress(SocketClosedError):
                await self.socket.send(commit_frame(self._told[partition], partition, number))
                await asked.has_answer.wait()
        finally:
            del self._asked[number]
        if asked.error is not None:
            raise asked.error
        self._check(hold)

    def _check(self, hold: int) -> None:
        if self.failure is not None:
            raise self.failure
        if hold != self.number or self.socket is None:
            raise CursorLostError(
                "the session with the write proxy ended before the commit was stored; what was"
                " not committed is read again"
            )

    def on_answer(self, message: Document) -> None:
        """A commit is stored, or was refused."""
        number = message.get("id")
        asked = self._asked.get(number) if isinstance(number, int) else None
        if asked is not None:
            if message.get("type") == "error":
                asked.error = _error_of(message)
            asked.has_answer.set()

    async def tell_done(self) -> None:
        """Tell the proxy what is done."""
        while self._done and self.socket is not None:
            partition, sequence = self._done.popitem()
            self._told[partition] = sequence
            with suppress(SocketClosedError):
                await self.socket.send(commit_frame(sequence, partition))

    async def run(self) -> None:
        """Tell it a few times a second."""
        while True:
            await self._has_done.wait()
            self._has_done = trio.Event()
            await self.tell_done()
            await trio.sleep(_COMMITS_PAUSE_S)

    async def leave(self) -> None:
        """Tell the proxy what is done, and wait until it has stored it and left the cursor."""
        self.is_leaving = True
        if self.socket is None:
            return
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _LEAVE_S):
            await self.tell_done()
            if self.socket is not None:
                with suppress(SocketClosedError):
                    await self.socket.send(leave_frame())
                    await self.is_over.wait()


class _Arrivals:
    """Records and gaps as they arrived, each with its session: a `HeldRuns`."""

    def __init__(
        self, received: trio.MemoryReceiveChannel[Received], session: _Session
    ) -> None:
        self._received = received
        self._session = session
        self._hold = 0

    async def next_run(self) -> RecordBatch | Gap:
        """The next record or gap of this session. StopAsyncIteration at the end."""
        while True:
            try:
                received = await self._received.receive()
            except trio.EndOfChannel:
                raise StopAsyncIteration from None
            if isinstance(received, GeologError):
                raise received
            self._hold = self._session.holds.popleft()
            if self._hold == self._session.number:  # Others come again in this session.
                return received

    def hold_of(self, partition: int) -> int:  # noqa: ARG002 - A session has all of them.
        """The session in which the last run came."""
        return self._hold

    @property
    def partitions(self) -> list[int]:
        """Not told by proxies."""
        raise InvalidArgumentError(
            "a reader does not learn its partitions through write proxies: connect with"
            " zookeeper='HOST:PORT'"
        )

    def close(self) -> None:
        """Drop what was received."""
        self._received.close()


@attrs.define(eq=False, kw_only=True)
class _ProxiedCursorRead(ProxiedRead):
    """The read by a cursor: all partitions that the proxy's reader has, in one session."""

    session: _Session

    async def run(self) -> None:
        """Read to the end, at one proxy after the other, until the application leaves."""
        try:
            await super().run()
        finally:
            self.session.is_over.set()

    async def _read_at_some(self, failed: list[Address]) -> bool:
        try:
            return await super()._read_at_some(failed) or self.session.is_leaving
        except GeologError as error:
            if self.session.is_leaving:
                return True
            self.session.failure = error
            raise

    def _check_resumable(self, error: GeologError, *, lasted_s: float) -> None:
        if isinstance(error, CursorHeldError):
            if not self.has_received:
                raise error
            lasted_s = 0.0  # The lease of our last session may still be there.
        super()._check_resumable(error, lasted_s=lasted_s)

    async def _take_all(self, socket: MessageSocket) -> bool:
        self.session.begin(socket)
        try:
            return await super()._take_all(socket)
        finally:
            self.session.end()

    async def _take(self, run: RecordBatch | Gap) -> None:
        self.session.holds.append(self.session.number)
        with suppress(trio.BrokenResourceError):  # The application leaves.
            await self.send.send(run)
        if not self.has_received:
            self.path = attrs.evolve(self.path, is_taking=False)
        self.has_received = True
        self.back_off_s = BACK_OFF_FIRST_S
        self.deadline_s = None

    async def _end(self, socket: MessageSocket) -> None:
        """The application sees the end; the session lasts until it has left."""
        self.send.close()
        with suppress(SocketClosedError):
            while True:
                message = read_document(await socket.receive())
                if message.get("type") == "error" and "id" not in message:
                    self.session.failure = _error_of(message)
                    return
                self._take_answer(message)

    def _error_of(self, message: Document) -> GeologError:
        return _error_of(message)

    def _take_answer(self, message: Document) -> None:
        self.session.on_answer(message)


def _error_of(message: Document) -> GeologError:
    """The error that a message tells; a conflict is about the cursor."""
    error = error_told(message)
    if isinstance(error, ConflictError):
        return CursorHeldError(str(error))
    return CursorLostError(str(error)) if isinstance(error, FencedError) else error


@asynccontextmanager
async def open_proxied_cursor(
    path: ReadPath,
    *,
    stop: Bound | None,
    home_epoch: int,
    is_automatic: bool,
    routes: ProxyRoutes,
    messages: MessageTransport,
    rng: random.Random,
) -> AsyncIterator[CursorReader]:
    """Read by the cursor that the path names, for the length of the block.

    A block that ends without an error commits what was taken. A reader is told with its first
    record that another one has the cursor (CursorHeldError).
    """
    what = str(path.stream) if path.partition is None else f"{path.stream}#{path.partition}"
    send, receive = trio.open_memory_channel[Received](AHEAD_RECORDS)
    session = _Session()
    async with open_background() as nursery:
        read = _ProxiedCursorRead(
            attrs.evolve(path, credit=AHEAD_RECORDS),
            stop,
            routes,
            messages,
            rng,
            send,
            session=session,
        )
        nursery.start_soon(read.run, name=f"read of {what} by a cursor through a proxy")
        nursery.start_soon(session.run, name=f"commits to a cursor of {what}")
        reader = CursorReader(
            f"{what} by cursor {path.cursor!r}",
            _Arrivals(receive, session),
            session,
            home_epoch=home_epoch,
            is_automatic=is_automatic,
        )
        is_failed = True
        try:
            yield reader
            is_failed = False
        finally:
            reader.finish(is_failed=is_failed)
            reader.close()
            await session.leave()
