"""The answer to an HTTP connection over the limit: 429, unless a supervisor or prober asks.

A proxy that has all the connections it takes is alive and busy. A supervisor would restart it
at any other answer than 200, and a load balancer send clients elsewhere, so `PROBED` paths are
answered as ever. The connection ends behind the answer.

Any other request is read, and its body dropped, for a short time: a connection that is closed
with bytes unread is reset, and its client may never see the answer.
"""

from collections.abc import Callable

from hypercorn.app_wrappers import ASGIWrapper
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from geolog.transport.request_head import read_head
from geolog.transport.seam import ByteStream, ConnectionFailedError
from regions.proxy.http.answers import error_answer
from regions.proxy.http.connection import HttpConnection
from regions.proxy.session_host import failure_of
from topology.errors import OverCapacityError

PROBED = ("/livez", "/readyz", "/metrics")
"""Answered over every limit: small, and made without waiting for others."""

_RECEIVE_BYTES = 16 << 10
_HEAD_END = b"\r\n\r\n"


async def turn_away(
    stream: ByteStream,
    client: str,
    why: OverCapacityError,
    probed: ASGIWrapper,
    *,
    on_probe: Callable[[], None],
) -> None:
    """Answer the first request of a connection, and close it. The caller bounds the time.

    probed: answers the requests for `PROBED` paths, each as the last of its connection.
    on_probe: called before that.
    """
    try:
        head = await read_head(stream)
        if not head:
            return
        if _is_probe(head):
            on_probe()
            await HttpConnection(stream, head, client, probed).run()
            return
        await stream.send([_answer_to(why)])
        buffer = bytearray(_RECEIVE_BYTES)
        while await stream.receive_into(buffer):
            pass
    except ConnectionFailedError:
        pass  # It left by itself.
    finally:
        stream.close()


class LastAnswer:
    """An application in front of another: the connection ends behind each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and say in its answer that no other will be heard."""

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        await self._app(scope, receive, send_last)


def _is_probe(head: bytes) -> bool:
    """Whether it asks for a probed path, without a body or a second request behind it."""
    method, _, rest = head.partition(b" ")
    target = rest.partition(b" ")[0].partition(b"?")[0]
    return method == b"GET" and target.decode("latin-1") in PROBED and head.endswith(_HEAD_END)


def _answer_to(why: OverCapacityError) -> bytes:
    answer = error_answer(failure_of(why, None))
    head = [b"HTTP/1.1 429 ", b"connection: close"]
    head += [b"%s: %s" % field for field in answer.raw_headers]
    return b"\r\n".join([*head, b"", bytes(answer.body)])
