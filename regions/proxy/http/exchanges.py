"""Every request to the HTTP port: counted, bounded, and answered even after a bug.

Theory of operation. hypercorn reads a request's body ahead of the application, four pieces at
most, and then waits until some are taken. An answer may be complete before that, e.g. 413 to a
body that is too large. The rest of the body is then read and dropped, for `_LINGER_S` at most:
a connection that is closed with bytes unread is reset, and its client may never see the answer.

An error that is not geolog's own is a bug: the client is told 500 by the application, the log
has the traceback, `bugs_count` rises, and the proxy goes on.
"""

import logging

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geolog.background import open_background

_log = logging.getLogger(__name__)

_LINGER_S = 2.0


class Exchanges:
    """The outermost application: requests under way, and what became of them."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._under_way_count = 0
        self._idle = trio.Event()
        self.bugs_count = 0
        """Requests that an error other than geolog's own has ended."""
        self.answers_count: dict[tuple[str, int], int] = {}
        """Answers by endpoint and status."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # Refuses the handshake with 403.
            return
        self._under_way_count += 1
        exchange = _Exchange(scope, receive, send)
        try:
            await self._application(scope, exchange.receive, exchange.send)
        except* Exception as errors:  # noqa: BLE001 - one request's bug must not end the others.
            self.bugs_count += 1
            _log.error(
                "%s %s met a bug (%d so far); the proxy goes on",
                scope["method"],
                scope["path"],
                self.bugs_count,
                exc_info=errors,
            )
        finally:
            key = _endpoint_of(scope), exchange.status or 0
            self.answers_count[key] = self.answers_count.get(key, 0) + 1
            self._under_way_count -= 1
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no request is under way."""
        while self._under_way_count:
            self._idle = trio.Event()
            await self._idle.wait()


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_body_over = not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
        )
        self.status: int | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_body_over = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if is_last and not self._is_body_over:
            await self._end_with_unread_body(message)
            return
        await self._send(message)

    async def _end_with_unread_body(self, message: Message) -> None:
        await self._send({**message, "more_body": True})
        async with open_background() as nursery:
            over = trio.Event()
            nursery.start_soon(self._drop_body, over)
            with trio.move_on_after(_LINGER_S):
                await over.wait()
            # Still reading: hypercorn cannot end the request while pieces of it wait.
            await self._send({"type": "http.response.body", "more_body": False})

    async def _drop_body(self, over: trio.Event) -> None:
        while not self._is_body_over:
            await self.receive()
        over.set()


def _endpoint_of(scope: Scope) -> str:
    """The name of the function that served the request."""
    name: str = getattr(scope.get("endpoint"), "__name__", "none")
    return name
