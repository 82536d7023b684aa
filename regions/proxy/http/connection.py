"""One HTTP connection: hypercorn's HTTP/1.1 protocol over a connection of the transport seam.

Theory of operation. hypercorn parses requests and starts the application for each, in a task of
this connection. Its own loop around that accepts any number of connections, waits without limit
for a client that does not read, and lets a client change to HTTP/2, which it then never times
out. So the loop is here. A client has `IDLE_S` from the end of one request to the end of the
next one's head, and `STALL_S` to take a piece of its answer. The application bounds the time
of a body. Silence while an answer is made is allowed: a read may follow a stream for hours.

When the client has closed its side, whatever still runs for it is cancelled.
"""

import logging
import math

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import (
    H2CProtocolRequiredError,
    H2ProtocolAssumedError,
    H11Protocol,
)
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from geolog.transport.request_head import HEAD_BYTES_MAX
from geolog.transport.seam import ByteStream, ConnectionFailedError

_log = logging.getLogger(__name__)

IDLE_S = 30.0
"""How long a connection may wait for the whole head of a request."""

STALL_S = 300.0
"""How long a client may take nothing of its answer: a person may be paging through it."""

_RECEIVE_BYTES = 64 << 10
_QUEUED_PIECES_MAX = 4
"""Pieces of a body, as received, that wait for the application."""


class HttpConnection:
    """Serves the requests of one connection. `run` ends with it."""

    def __init__(
        self, stream: ByteStream, head: bytes, client: str, application: ASGIWrapper
    ) -> None:
        """Serve the client whose first request's head has come."""
        self._stream = stream
        self._head = head
        self._client = client
        self._application = application
        self._config = _config()
        self._scope = trio.CancelScope()
        self._head_scope = trio.CancelScope()
        self._head_due_s = math.inf
        self._sending = trio.Lock()

    def __repr__(self) -> str:
        return f"HttpConnection({self._stream.peer})"

    async def run(self) -> None:
        """Serve until either side closes the connection."""
        try:
            with self._scope:
                async with TaskGroup() as tasks:
                    await self._receive_all(self._protocol(tasks))
                    self._scope.cancel(reason="the client has left")
        except* h11.LocalProtocolError:
            # An application that is cancelled while it sends the head of its answer is followed
            # by hypercorn with an answer of its own, which h11 refuses.
            if not self._scope.cancel_called:
                raise
        finally:
            self._stream.close()

    def _protocol(self, tasks: TaskGroup) -> H11Protocol:
        return H11Protocol(
            self._application,
            self._config,
            WorkerContext(None),
            tasks,
            ConnectionState({}),
            ssl=False,
            client=(self._client, 0),
            server=None,
            send=self._perform,
        )

    async def _receive_all(self, protocol: H11Protocol) -> None:
        buffer = bytearray(_RECEIVE_BYTES)
        self._set_head_due(trio.current_time() + IDLE_S)
        try:
            head, self._head = self._head, b""
            await protocol.handle(RawData(head))
            while True:
                with trio.CancelScope(deadline=self._head_due_s) as self._head_scope:
                    count = await self._stream.receive_into(buffer)
                if self._head_scope.cancelled_caught or not count:
                    return
                await protocol.handle(RawData(bytes(memoryview(buffer)[:count])))
        except (H2CProtocolRequiredError, H2ProtocolAssumedError):
            _log.info("%s: refused HTTP/2", self)
        except ConnectionFailedError:
            pass

    async def _perform(self, event: Event) -> None:
        """Do what the protocol asks."""
        match event:
            case RawData():
                await self._send(event.data)
            case Updated():
                idle = trio.current_time() + IDLE_S
                self._set_head_due(idle if event.idle else math.inf)
            case Closed():
                self._scope.cancel(reason="the last answer is sent")
            case _:
                raise AssertionError(f"not an event of a connection: {event!r}")

    def _set_head_due(self, due_s: float) -> None:
        self._head_due_s = self._head_scope.deadline = due_s

    async def _send(self, data: bytes) -> None:
        if not data:
            return
        async with self._sending:
            try:
                with trio.fail_after(STALL_S):
                    await self._stream.send([data])
            except (ConnectionFailedError, trio.TooSlowError) as error:
                self._scope.cancel(reason=f"the client does not take its answer: {error!r}")
                await trio.lowlevel.checkpoint()


def _config() -> Config:
    config = Config()
    config.errorlog = _log
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    config.max_app_queue_size = _QUEUED_PIECES_MAX
    config.include_server_header = False
    return config
