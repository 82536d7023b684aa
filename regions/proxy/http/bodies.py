"""The body of a request: read whole, within bounds of size, time and memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import trio
from starlette.requests import Request

from regions.proxy.config import ProxyConfig
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


class Bodies:
    """The bodies that a proxy holds. Beyond `http_bodies_bytes_max` it takes no others.

    Waiting for room instead could last for ever: each waits with a part of its body in memory.
    """

    def __init__(self, config: ProxyConfig) -> None:
        self._config = config
        self._held_bytes = 0

    def __repr__(self) -> str:
        return f"Bodies({self._held_bytes} of {self._config.http_bodies_bytes_max} bytes)"

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies in memory now."""
        return self._held_bytes

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read the whole body; it counts while the block lasts.

        TooLargeError, OverCapacityError, BodyTimeoutError; no more of it is read then.
        """
        self._check_form(request)
        body = bytearray()
        try:
            with trio.move_on_after(self._config.http_body_time_s) as scope:
                await self._read_into(body, request)
            if scope.cancelled_caught:
                raise BodyTimeoutError(
                    f"the body has {len(body)} bytes after {self._config.http_body_time_s:g} s,"
                    " and no end"
                )
            yield bytes(body)
        finally:
            self._held_bytes -= len(body)

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

    async def _read_into(self, body: bytearray, request: Request) -> None:
        while True:
            message = await request.receive()
            piece = message.get("body", b"")
            self._check_size(len(body) + len(piece))
            if self._held_bytes + len(piece) > self._config.http_bodies_bytes_max:
                raise OverCapacityError(
                    f"this proxy holds {self._held_bytes} bytes of requests already"
                )
            self._held_bytes += len(piece)
            body += piece
            if not message.get("more_body", False):
                return
