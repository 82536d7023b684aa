"""The head of a connection's first request, read before anything else is made for it.

Thousands of connections may say nothing, or a byte a second. Each is a task and a few bytes
here: no parser, no protocol, and nothing for the garbage collector to walk through. One that
sends byte after byte is looked at a few times a second.
"""

import math
from zlib import crc32

import trio

from geolog.transport.seam import ByteStream

FIRST_BYTES = 16
"""No request is shorter: `GET / HTTP/1.0`, which health checks send to any port, and an empty
line."""

HEAD_BYTES_MAX = 16 << 10
"""A longer head is passed on without its end, to be refused."""

_RECEIVE_BYTES = 4 << 10
_RECEIVE_BYTES_MAX = 64 << 10
_ENDS = (b"\n\r\n", b"\n\n")
_CRUMBS_PAUSE_S = 0.05
"""Time to wait for more, if bytes come one by one without a pause of their own."""
_METHOD_FIRST = 0x21
"""No request begins with a byte below it: TLS does, for one."""


def spread_s(limit_s: float, peer: str) -> float:
    """Time that a connection may take to say something: up to half as much again.

    Thousands that came at once, and say nothing, would else be closed, and come again, at once.
    """
    return limit_s * (1 + crc32(peer.encode()) / 2**33)


async def read_head(stream: ByteStream) -> bytes:
    """All that has come once the head is whole, or cannot be one; nothing if there was an end.

    ConnectionFailedError. The caller bounds the time.
    """
    buffer, head = bytearray(_RECEIVE_BYTES), bytearray()
    came_s = -math.inf
    while count := await stream.receive_into(buffer):
        come = buffer[:count]
        head += come
        if head[0] < _METHOD_FIRST or (b"\n" in come and _has_end(head)):
            return bytes(head)
        if len(head) > HEAD_BYTES_MAX:
            return bytes(head[: HEAD_BYTES_MAX + 1])
        if count == len(buffer):
            buffer = bytearray(_RECEIVE_BYTES_MAX)
            continue
        last_s, came_s = came_s, trio.current_time()
        if came_s < last_s + _CRUMBS_PAUSE_S:
            await trio.sleep(_CRUMBS_PAUSE_S)
    return b""


def _has_end(head: bytearray) -> bool:
    return any(head.find(end, 0, HEAD_BYTES_MAX) >= 0 for end in _ENDS)
