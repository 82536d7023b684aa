"""A server that is wrong: it passes bytes on to a proxy, and changes some on the way back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import trio


@asynccontextmanager
async def open_lying_relay(url: str, truth: bytes, lie: bytes) -> AsyncIterator[str]:
    """Serve while the block lasts; the relay's URL. In answers, `lie` is in place of `truth`.

    Both have one length, so that frames and bodies keep theirs.
    """
    assert len(truth) == len(lie)
    to = urlsplit(url)

    async def relay(client: trio.SocketStream) -> None:
        assert to.hostname is not None
        assert to.port is not None
        async with (
            client,
            await trio.open_tcp_stream(to.hostname, to.port) as proxy,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(pass_requests, client, proxy)
            # The client may have heard enough.
            with suppress(trio.BrokenResourceError):
                async for piece in proxy:
                    await client.send_all(piece.replace(truth, lie))
            nursery.cancel_scope.cancel(reason="one side has closed")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, relay, [listener])
        port = listener.socket.getsockname()[1]
        yield f"{to.scheme}://127.0.0.1:{port}"
        nursery.cancel_scope.cancel(reason="the test is over")


async def pass_requests(client: trio.SocketStream, proxy: trio.SocketStream) -> None:
    """Pass on what the client sends, as it is."""
    with suppress(trio.BrokenResourceError):
        async for piece in client:
            await proxy.send_all(piece)
        await proxy.send_eof()
