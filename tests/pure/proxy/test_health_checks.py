"""Load balancers ask either port whether it lives, in as few bytes as HTTP has."""

import random

import pytest
import trio

from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from regions.proxy.config import ProxyConfig
from regions.proxy.proxy import open_write_proxy
from sim.fakes.memory_metadata import open_memory_store

ANY_PORT = Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    "asked", [b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.0\n\n", b"OPTIONS / HTTP/1.0\r\n\r\n"]
)
async def test_a_short_health_check_is_answered_at_once(asked: bytes) -> None:
    """Over real sockets: the kernel wakes a proxy only once a request may be whole."""
    config = ProxyConfig(region="us-east", listen=ANY_PORT, http=ANY_PORT, proxy_id="proxy-1")
    answers = []
    async with (
        open_memory_store() as store,
        store.open_session() as metadata,
        open_write_proxy(
            config,
            metadata=metadata,
            transport=TcpTransport(),
            cluster="default",
            rng=random.Random(1),
            now_us=lambda: 1,
        ) as proxy,
    ):
        assert proxy.http_address is not None
        for address in (proxy.address, proxy.http_address):
            stream = await trio.open_tcp_stream(address.host, address.port)
            await stream.send_all(asked)
            with trio.fail_after(5):
                answers.append(bytes(await stream.receive_some(9)))
            await stream.aclose()

    assert answers == [b"HTTP/1.1 ", b"HTTP/1.1 "]
