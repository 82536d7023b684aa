"""The head of a connection's first request, read before anything else is made for it.

Thousands of connections may say nothing, or a byte a second. Each is a task and a few bytes
here: no parser, no protocol, and nothing for the garbage collector to walk through.
"""

from geolog.transport.seam import ByteStream

HEAD_BYTES_MAX = 16 << 10
"""A longer head is passed on without its end, to be refused."""

_RECEIVE_BYTES = 4 << 10
_RECEIVE_BYTES_MAX = 64 << 10
_ENDS = (b"\n\r\n", b"\n\n")
_METHOD_FIRST = 0x21
"""No request begins with a byte below it: TLS does, for one."""


async def read_head(stream: ByteStream) -> bytes:
    """All that has come once the head is whole, or cannot be one; nothing if there was an end.

    ConnectionFailedError. The caller bounds the time.
    """
    buffer, head = bytearray(_RECEIVE_BYTES), bytearray()
    while count := await stream.receive_into(buffer):
        come = buffer[:count]
        head += come
        if head[0] < _METHOD_FIRST or (b"\n" in come and _has_end(head)):
            return bytes(head)
        if len(head) > HEAD_BYTES_MAX:
            return bytes(head[: HEAD_BYTES_MAX + 1])
        if count == len(buffer):
            buffer = bytearray(_RECEIVE_BYTES_MAX)
    return b""


def _has_end(head: bytearray) -> bool:
    return any(head.find(end, 0, HEAD_BYTES_MAX) >= 0 for end in _ENDS)
