"""Requests that ask ZooKeeper: many at once are served, and a flood of one client is not."""

import pytest
import trio
from trio.testing import MockClock

from geolog.catalog.stream_catalog import StreamCatalog
from geolog.protocol.stream_state import StreamName, StreamRecord
from regions.proxy.protocol import client_pace
from regions.proxy.protocol.client_pace import CLIENTS_MAX, DEBT_MAX, PER_S, ClientPace
from tests.pure.proxy.batches_client import open_batches
from tests.pure.proxy.http_client import HttpClient, open_http
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import STREAM, open_world


def test_a_client_that_asks_too_much_waits_until_it_has_paid() -> None:
    pace = ClientPace()
    costs = [pace.refusal_of("a", DEBT_MAX / 10, 0.0) for _ in range(11)]

    assert costs[:10] == [None] * 10
    refusal = costs[10]
    assert refusal is not None
    assert refusal.retry_after_s == pytest.approx(DEBT_MAX / 10 / PER_S)
    assert pace.refusal_of("b", 1, 0.0) is None
    assert pace.refusal_of("a", DEBT_MAX / 10, refusal.retry_after_s) is None
    assert pace.refusal_of("a", 1, refusal.retry_after_s) is not None


def test_clients_that_have_paid_and_those_of_long_ago_are_forgotten() -> None:
    pace = ClientPace()
    for number in range(CLIENTS_MAX + 10):
        pace.refusal_of(f"client {number}", PER_S, 0.0)
    assert len(pace) == CLIENTS_MAX
    pace.refusal_of("one more", 1, 1.0)
    assert len(pace) == 1


async def flood(client: HttpClient) -> int:
    """Ask dear questions until they are refused; the last status."""
    status = 200
    for _ in range(100):
        status = (await client.ask("GET", f"/v1/owner/{STREAM}")).status
        if status != 200:
            break
    return status


async def test_a_client_far_over_its_pace_costs_no_look_at_zookeeper(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pace, "DEBT_MAX", 20.0)
    monkeypatch.setattr(client_pace, "PER_S", 0.01)
    looks: list[StreamName] = []
    find = StreamCatalog.find_nearby

    async def counted(catalog: StreamCatalog, name: StreamName) -> StreamRecord | None:
        looks.append(name)
        return await find(catalog, name)

    monkeypatch.setattr(StreamCatalog, "find_nearby", counted)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy, host="flood") as client,
    ):
        known = [(await client.ask("GET", f"/v1/streams/{STREAM}/read")).status]
        for number in range(400):
            await client.ask("GET", f"/v1/streams/shop/nothing-{number}/read")
        known.append((await client.ask("GET", f"/v1/streams/{STREAM}/read")).status)

    assert known == [200, 200]
    assert len(looks) <= 220


async def test_a_flood_of_dear_requests_is_refused_and_no_other_client_is(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pace, "DEBT_MAX", 100.0)
    monkeypatch.setattr(client_pace, "PER_S", 1.0)
    unknown, known = "/v1/streams/shop/nothing/read", f"/v1/streams/{STREAM}"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy, host="flood") as client,
        open_http(world.cluster, proxy, host="other") as other,
    ):
        owners = [await client.ask("GET", f"/v1/owner/{STREAM}") for _ in range(100)]
        asked = await other.ask("GET", f"/v1/owner/{STREAM}")
        # Others that append and read at the same address are served.
        appended = await client.ask("POST", f"{known}/append", b'{"value":"a"}')
        refusals = [await flood(client)]
        async with open_session(world.cluster, proxy, f"{known}/append", host="flood") as one:
            hello = await one.receive()
            ack = await one.ask(value="b")
        refusals.append(await flood(client))
        async with open_session(world.cluster, proxy, f"{known}/read", host="flood") as one:
            frames = await one.receive_all()
        refusals.append(await flood(client))
        async with open_batches(world.cluster, proxy, STREAM, host="flood"):
            pass
        await trio.sleep(20)
        names = [await client.ask("GET", unknown) for _ in range(100)]
        again = await other.ask("GET", unknown)

    statuses = [one.status for one in owners]
    assert statuses == sorted(statuses)
    assert 5 <= statuses.count(200) <= 50
    assert set(statuses) == {200, 429}
    assert int(owners[-1].headers["retry-after"]) >= 1
    assert {one.status for one in names} == {404, 429}
    assert [one.status for one in names].count(404) <= 20
    assert (asked.status, again.status) == (200, 404)
    assert (appended.status, hello["type"], ack["type"]) == (200, "hello", "ack")
    assert [one["type"] for one in frames] == ["hello", "record", "record", "end"]
    assert refusals == [429, 429, 429]
