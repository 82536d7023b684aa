"""The body of a request: read whole, within bounds of size, time and memory.

A body that has begun may never go on. So no client gets more than its share of the memory for
bodies, and when that is used up, the longest body of the client that holds most gives way: see
`geolog.transport.unread_bytes`, which counts them.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import attrs
import trio
from starlette.requests import Request

from geolog.transport.served_websocket import patience_s
from geolog.transport.unread_bytes import UnreadBytes, UnreadOfOne
from regions.proxy.config import ProxyConfig
from regions.proxy.http.answers import client_in
from topology.errors import (
    GeologError,
    InvalidArgumentError,
    OverCapacityError,
    TooLargeError,
)


class BodyTimeoutError(GeologError):
    """The request's body did not arrive in time: send it again, or in smaller requests."""

    code: ClassVar[int] = 408
    retriable: ClassVar[bool] = True


@attrs.define(eq=False)
class _Body:
    """One body that arrives."""

    held: UnreadOfOne = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    data: bytearray = attrs.field(factory=bytearray)
    refusal: OverCapacityError | None = None
    """Why it had to give way, if it had."""

    def give_way(self, why: str) -> None:
        self.refusal = OverCapacityError(why)
        self.data = bytearray()
        self.held.give_back_parts()
        self.scope.cancel(reason="there is no room for the body")


class Bodies:
    """The bodies that a proxy holds, up to `http_bodies_bytes_max`.

    Waiting for room instead could last for ever: each waits with a part of its body in memory.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._held = UnreadBytes(config.http_bodies_bytes_max, config.client_share)

    def __repr__(self) -> str:
        return f"Bodies({self.held_bytes} of {self._config.http_bodies_bytes_max} bytes)"

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies in memory now."""
        return self._held.bytes

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read the whole body; it counts while the block lasts.

        TooLargeError, OverCapacityError, BodyTimeoutError; no more of it is read then.
        """
        self._check_form(request)
        client = client_in(request)
        body = _Body()
        body.held = self._held.open(client, body.give_way, _ignore_room)
        try:
            await self._read_in_time(body, request)
            if body.refusal is not None:
                raise body.refusal
            data = bytes(body.data)
            body.data = bytearray()
            body.held.give_back_parts()  # It gives way no more.
            body.held.take(len(data))
            yield data
        finally:
            body.held.close()

    async def _read_in_time(self, body: _Body, request: Request) -> None:
        began_s = trio.current_time()
        whole_s = self._config.http_body_time_s
        body.scope.deadline = began_s + patience_s(0, whole_s)
        with body.scope:
            while await self._read_piece(body, request):
                body.scope.deadline = began_s + patience_s(len(body.data), whole_s)
            body.scope.deadline = math.inf
        if body.scope.cancelled_caught and body.refusal is None:
            raise BodyTimeoutError(
                f"the body has {len(body.data)} bytes after"
                f" {trio.current_time() - began_s:.0f} s, and no end"
            )

    def _check_form(self, request: Request) -> None:
        """Refuse what the head of the request tells already."""
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise InvalidArgumentError(
                f"content-encoding {encoding!r:.60} is unknown: send the lines as they are"
            )
        # The protocol below has checked that this is a number.
        self._check_size(int(request.headers.get("content-length", "0")))

    def _check_size(self, size_bytes: int) -> None:
        limit_bytes = self._config.frame_bytes_max
        if size_bytes > limit_bytes:
            raise TooLargeError(
                f"the body has more than {limit_bytes} bytes: send the records in several"
                " requests"
            )

    async def _read_piece(self, body: _Body, request: Request) -> bool:
        """Read some more; whether that was not the end."""
        message = await request.receive()
        piece = message.get("body", b"")
        self._check_size(len(body.data) + len(piece))
        if piece and body.refusal is None:
            body.data += piece
            body.held.take_part(len(piece))
        return bool(message.get("more_body", False)) and body.refusal is None


def _ignore_room() -> None:
    """No body waits for room."""
