"""The answer to an HTTP connection over the limit: 429, whatever its request is.

The request is read, and its body dropped, for a short time: a connection that is closed with
bytes unread is reset, and its client may never see the answer.
"""

import trio

from geolog.transport.seam import ByteStream, ConnectionFailedError
from regions.proxy.http.answers import error_answer
from regions.proxy.session_host import failure_of
from topology.errors import OverCapacityError

_TIME_S = 2.0
_HEAD_BYTES_MAX = 16 << 10
_HEAD_END = b"\r\n\r\n"


async def turn_away(stream: ByteStream, why: OverCapacityError) -> None:
    """Answer the first request of a connection, and close it."""
    try:
        with trio.move_on_after(_TIME_S):
            head = b""
            buffer = bytearray(_HEAD_BYTES_MAX)
            while _HEAD_END not in head and len(head) < _HEAD_BYTES_MAX:
                count = await stream.receive_into(buffer)
                if not count:
                    return
                head += buffer[:count]
            await stream.send([_answer_to(why)])
            while await stream.receive_into(buffer):
                pass
    except ConnectionFailedError:
        pass  # It left by itself.
    finally:
        stream.close()


def _answer_to(why: OverCapacityError) -> bytes:
    answer = error_answer(failure_of(why, None))
    head = [b"HTTP/1.1 429 ", b"connection: close"]
    head += [b"%s: %s" % field for field in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
