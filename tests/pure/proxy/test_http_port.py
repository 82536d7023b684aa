"""The HTTP port of a proxy: health, metrics, refusals, and what bounds a client."""

from contextlib import AsyncExitStack, suppress

import h11
import pytest
import trio
from starlette.requests import Request
from trio.testing import MockClock

from geolog.metadata.proxies import list_live_proxies
from geolog.transport.seam import ConnectionFailedError
from regions.proxy.http.connection import IDLE_S
from regions.proxy.http.health import Health
from regions.proxy.refused_connections import COUNT_MAX, TIME_S
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import STREAM, open_world

APPEND = f"/v1/streams/{STREAM}/append"


def samples_of(page: bytes) -> dict[str, float]:
    """The samples of a page of metrics, by name and labels."""
    lines = [one for one in page.decode().splitlines() if not one.startswith("#")]
    return {name: float(value) for name, _, value in (one.rpartition(" ") for one in lines)}


async def test_a_proxy_that_serves_is_live_and_ready(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        live = await client.ask("GET", "/livez")
        ready = await client.ask("GET", "/readyz")
        (record,) = await list_live_proxies(world.session, "default")

    assert (live.status, live.document["live"]) == (200, True)
    assert (ready.status, ready.document["ready"], ready.document["reasons"]) == (200, True, [])
    assert ready.document["proxy"] == "proxy-1"
    assert str(record.http) == "proxy-1:7080"


async def test_a_proxy_without_its_zookeeper_session_is_live_and_not_ready(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", on_session=lambda one: one.cut_off()
        ) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        live = await client.ask("GET", "/livez")
        ready = await client.ask("GET", "/readyz")

    assert live.status == 200
    assert ready.status == 503
    assert ready.document["reasons"] == ["the ZooKeeper session is suspended"]


async def test_metrics_count_sessions_partitions_and_requests(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as session,
        open_http(world.cluster, proxy) as client,
    ):
        await session.receive()
        await session.ask(value="one")
        await client.ask("GET", "/livez")
        page = await client.ask("GET", "/metrics")

    assert page.headers["content-type"].startswith("text/plain; version=")
    found = samples_of(page.body)
    assert found["geolog_proxy_sessions"] == 1
    assert found["geolog_proxy_http_connections"] == 1
    assert found["geolog_proxy_owned_partitions"] == 1
    assert found["geolog_proxy_takeovers_total"] == 1
    assert found["geolog_proxy_handed_over_total"] == 0
    assert found["geolog_proxy_early_takeovers_total"] == 0
    assert found["geolog_proxy_in_flight_bytes"] == 0
    assert found['geolog_proxy_http_requests_total{endpoint="livez",status="200"}'] == 1
    assert found['geolog_proxy_bugs_total{protocol="http"}'] == 0


async def test_metrics_count_appends_by_kind_and_outcome_with_their_latency(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as session,
        open_http(world.cluster, proxy) as client,
    ):
        await session.receive()
        await session.ask(value="one", seq=0)
        await session.ask(value="one", seq=0)
        await session.ask(value="one", expect_sequence=9)
        async with (
            world.cluster.open_client("us-east", host="two", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"sealed")
        found = samples_of((await client.ask("GET", "/metrics")).body)

    def appends(kind: str, outcome: str) -> float:
        return found[f'geolog_proxy_appends_total{{kind="{kind}",outcome="{outcome}"}}']

    assert [appends("frame", one) for one in ("stored", "duplicate", "refused")] == [1, 1, 1]
    assert [appends("batch", one) for one in ("stored", "duplicate", "refused")] == [1, 0, 0]
    latency = "geolog_proxy_append_latency_seconds"
    assert found[f'{latency}_count{{kind="frame"}}'] == 2
    assert found[f'{latency}_bucket{{kind="frame",le="+Inf"}}'] == 2
    assert found[f'{latency}_bucket{{kind="frame",le="0.0005"}}'] < 2
    assert 0 < found[f'{latency}_sum{{kind="frame"}}'] < 1


async def test_metrics_count_the_clients_that_were_sent_to_another_proxy(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_http(world.cluster, owner) as client,
        open_http(world.cluster, other) as sent_away,
    ):
        await client.ask("POST", APPEND, b'{"value":"one"}')
        await sent_away.ask("POST", APPEND, b'{"value":"two"}')
        async with open_session(world.cluster, other, APPEND) as session:
            await session.receive()
        found = samples_of((await sent_away.ask("GET", "/metrics")).body)

    assert found["geolog_proxy_redirects_total"] == 2


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1", 404),
        ("GET", "/v1/../livez", 404),
        ("POST", "/livez", 405),
        ("DELETE", "/metrics", 405),
    ],
)
async def test_an_unknown_path_or_method_is_refused_as_json(
    autojump_clock: MockClock, method: str, target: str, status: int
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask(method, target, b"a body nobody wants")
        again = await client.ask("GET", "/livez")

    assert (answer.status, answer.document["code"]) == (status, status)
    assert answer.document["outcome"] == "refused"
    assert again.status == 200


async def test_the_unread_rest_of_a_body_is_dropped_before_the_connection_ends(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        async with open_http(world.cluster, proxy) as client:
            large = await client.ask("PUT", "/livez", [b"x" * (1 << 16)] * 64)
        async with open_http(world.cluster, proxy) as client:
            await client.start("PUT", "/livez", headers=[("content-length", "1000000")])
            await client.send(h11.Data(data=b"and no more than this"))
            started_s = trio.current_time()
            small = await client.receive()
            waited_s = trio.current_time() - started_s
            ended = await client.next_event()

    assert (large.status, small.status) == (405, 405)
    assert waited_s < 5.0
    assert isinstance(ended, h11.ConnectionClosed)


async def test_a_connection_without_a_request_is_closed(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await client.stream.send([b"GET /livez HTTP/1.1\r\nhost:"])
        started_s = trio.current_time()
        ended = await client.next_event()
        waited_s = trio.current_time() - started_s

    assert isinstance(ended, h11.ConnectionClosed)
    assert IDLE_S <= waited_s <= 1.5 * IDLE_S


async def test_a_connection_beyond_the_limit_is_told_when_to_come_back(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", http_connections_max=1) as proxy,
        open_http(world.cluster, proxy) as first,
    ):
        await first.ask("GET", "/livez")
        async with open_http(world.cluster, proxy) as second:
            refused = await second.ask("POST", "/livez", b"x" * 100_000)
            ended = await second.next_event()
        first.stream.close()
        async with open_http(world.cluster, proxy) as third:
            answered = await third.ask("GET", "/livez")

    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert (refused.document["code"], refused.document["retriable"]) == (429, True)
    assert isinstance(ended, h11.ConnectionClosed)
    assert answered.status == 200


async def test_one_client_cannot_keep_all_others_out(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", http_connections_max=3, client_share=0.5
        ) as proxy,
        open_http(world.cluster, proxy, host="greedy") as first,
        open_http(world.cluster, proxy, host="greedy") as second,
        open_http(world.cluster, proxy, host="greedy") as third,
        open_http(world.cluster, proxy, host="modest") as other,
    ):
        statuses = [
            (await client.ask("GET", "/openapi.json")).status
            for client in (first, second, third, other)
        ]

    assert statuses == [200, 200, 429, 200]


async def test_a_proxy_without_room_for_connections_still_tells_of_its_health(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", http_connections_max=1) as proxy,
        open_http(world.cluster, proxy) as first,
    ):
        await first.ask("GET", "/livez")
        answers = {}
        for path in ("/livez", "/readyz", "/metrics", "/v1/owner/shop/orders"):
            async with open_http(world.cluster, proxy) as prober:
                answers[path] = await prober.ask("GET", path)
                ended = await prober.next_event()
                assert isinstance(ended, h11.ConnectionClosed)
        async with open_http(world.cluster, proxy) as keeping:
            await keeping.stream.send([b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n" * 2])
            await keeping.receive_rest()

    statuses = {path: answer.status for path, answer in answers.items()}
    assert statuses == {
        "/livez": 200,
        "/readyz": 200,
        "/metrics": 200,
        "/v1/owner/shop/orders": 429,
    }
    assert answers["/livez"].headers["connection"] == "close"
    assert samples_of(answers["/metrics"].body)["geolog_proxy_http_connections"] == 2


async def test_silent_connections_over_the_limit_keep_no_prober_waiting(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", http_connections_max=1) as proxy,
        open_http(world.cluster, proxy) as first,
        AsyncExitStack() as stack,
    ):
        await first.ask("GET", "/livez")
        silent = [
            await stack.enter_async_context(open_http(world.cluster, proxy, host="silent"))
            for _ in range(3 * COUNT_MAX)
        ]
        started_s = trio.current_time()
        async with open_http(world.cluster, proxy) as prober:
            answer = await prober.ask("GET", "/livez")
        waited_s = trio.current_time() - started_s
        await silent[0].receive_rest()  # It was closed when others came.
        closed_s = trio.current_time() - started_s
        await silent[-1].receive_rest()
        last_s = trio.current_time() - started_s

    assert answer.status == 200
    assert waited_s < 0.1
    assert closed_s < 0.1
    assert last_s == pytest.approx(TIME_S, abs=0.1)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nfiller: " + b"x" * (64 << 10) + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["noise", "no host", "long head", "HTTP/2", "to HTTP/2", "bad chunk"],
)
async def test_what_is_not_http_ends_its_connection_and_no_other(
    autojump_clock: MockClock, request_bytes: bytes
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as other,
    ):
        async with open_http(world.cluster, proxy) as client:
            with suppress(ConnectionFailedError):  # It may end before all of it has come.
                await client.stream.send([request_bytes])
            with suppress(ConnectionFailedError):
                await client.receive_rest()
        answer = await other.ask("GET", "/livez")

    assert answer.status == 200


async def test_a_bug_in_one_request_is_told_and_counted_and_the_proxy_goes_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def buggy(_self: Health, _request: Request) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Health, "readyz", buggy)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", bugs_count=1) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        bug = await client.ask("GET", "/readyz")
        page = await client.ask("GET", "/metrics")

    assert (bug.status, bug.document["code"]) == (500, 500)
    assert "its log has the details" in str(bug.document["error"])
    assert samples_of(page.body)['geolog_proxy_bugs_total{protocol="http"}'] == 1
