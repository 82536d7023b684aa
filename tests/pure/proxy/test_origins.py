"""Web pages of other sites may not use a proxy, unless its operator allows them."""

import json
from typing import cast

import h11
import pytest
import trio
import trio_websocket
from trio.testing import MockClock

from geolog.transport.seam import Address
from geolog.transport.trio_stream import TrioStream
from regions.proxy.origins import Origins
from regions.proxy.proxy import WriteProxy
from sim.in_process import InProcessCluster
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import Frame, open_proxy
from tests.pure.whole.clusters import open_world, values_of
from topology.errors import InvalidConfigError, NotPermittedError

APPEND = "/v1/streams/shop/orders/append"
SHOP = "https://shop.example"
FOREIGN = "https://evil.example"


async def first_frame(cluster: InProcessCluster, proxy: WriteProxy, origin: str) -> Frame:
    """Open a session as a browser does; what the page hears first."""
    stream = await cluster.network.transport("browser").connect(proxy.address)
    async with trio.open_nursery() as nursery:
        connection = await trio_websocket.wrap_client_stream(
            nursery,
            cast("trio.SocketStream", TrioStream(stream)),
            str(proxy.address),
            APPEND,
            extra_headers=[(b"Origin", origin.encode())],
        )
        frame: Frame = json.loads(await connection.get_message())
        await connection.aclose()
        nursery.cancel_scope.cancel(reason="the page is closed")
    return frame


async def test_a_session_of_a_foreign_page_is_told_why_it_ends(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", allow_origin=SHOP) as proxy,
    ):
        own = f"http://{proxy.http_address}"
        frames = [
            await first_frame(world.cluster, proxy, origin)
            for origin in (own, SHOP, FOREIGN, "null")
        ]

    assert [one["type"] for one in frames] == ["hello", "hello", "error", "error"]
    assert [one.get("code") for one in frames[2:]] == [403, 403]
    assert "--allow-origin" in str(frames[2]["error"])


async def test_a_request_of_a_foreign_page_appends_nothing(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", allow_origin=SHOP) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answers = [
            await client.ask("POST", APPEND, b'{"value":"v"}', headers=[("origin", origin)])
            for origin in (FOREIGN, SHOP)
        ]
        read = await values_of(world.log)

    assert [one.status for one in answers] == [403, 200]
    assert answers[0].document["outcome"] == "refused"
    assert answers[1].headers["access-control-allow-origin"] == SHOP
    assert read == [b"v"]


@pytest.mark.parametrize(
    ("allowed", "origin"),
    [
        ("", None),
        ("", "http://here:7080"),
        ("*", FOREIGN),
        (f"{SHOP}, http://localhost:1", "http://localhost:1"),
    ],
)
def test_a_proxy_serves_its_own_pages_and_those_allowed(
    allowed: str, origin: str | None
) -> None:
    Origins.of(allowed, [Address("here", 7080)]).check(origin)


@pytest.mark.parametrize(
    "origin", ["http://here:7081", "http://here:7080.evil.example", "null", FOREIGN]
)
def test_a_proxy_refuses_all_other_pages(origin: str) -> None:
    with pytest.raises(NotPermittedError, match="web page of"):
        Origins.of(SHOP, [Address("here", 7080)]).check(origin)


@pytest.mark.parametrize(
    "wrong", ["shop.example", "https://shop.example/path", "ftp://x", "http://"]
)
def test_what_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidConfigError, match="without a path"):
        Origins.of(wrong, [])


BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.mark.parametrize(
    ("host", "agent", "status"),
    [
        ("evil.example:41306", BROWSER, 403),
        ("evil.example", BROWSER, 403),
        ("evil.example.", "x", 403),
        ("evil.example:41306", None, 403),
        ("proxy.internal.evil.example", None, 403),
        ("127.0.0.1:41306", BROWSER, 200),
        ("[::1]:41306", BROWSER, 200),
        ("LOCALHOST:41306", BROWSER, 200),
        ("shop.example", BROWSER, 200),
        ("shop.example:8443", BROWSER, 200),
        ("proxy.internal:41306", "curl/8.7.1", 200),
        ("proxy.shop.svc.cluster.local", None, 200),
        ("proxy-1:41306", BROWSER, 200),
        ("proxy.shop.svc", None, 200),
    ],
)
async def test_a_site_whose_name_leads_here_reads_nothing(
    autojump_clock: MockClock, host: str, agent: str | None, status: int
) -> None:
    target = "/v1/streams/shop/orders/read"
    headers = [("host", host), *([("user-agent", agent)] if agent else [])]
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", allow_origin=SHOP) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await client.send(
            h11.Request(method="GET", target=target, headers=headers), h11.EndOfMessage()
        )
        answer = await client.receive()

    assert answer.status == status


async def test_a_prober_may_use_any_name(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        statuses = []
        for target in ("/livez", "/readyz", "/metrics", "/v1/owner/shop/orders"):
            headers = [("host", "proxies.shop.example"), ("user-agent", BROWSER)]
            await client.send(
                h11.Request(method="GET", target=target, headers=headers), h11.EndOfMessage()
            )
            statuses.append((await client.receive()).status)

    assert statuses == [200, 200, 200, 403]


async def test_a_browser_may_use_a_proxys_own_name(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        headers = [("host", str(proxy.http_address)), ("user-agent", BROWSER)]
        await client.send(
            h11.Request(method="GET", target="/", headers=headers), h11.EndOfMessage()
        )
        answer = await client.receive()

    assert answer.status == 200
