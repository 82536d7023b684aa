"""Streams are read by pattern through a proxy, over WebSockets and HTTP."""

from collections.abc import Mapping

import pytest
from trio.testing import MockClock

import geolog
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import OpenSession, open_proxy
from tests.pure.proxy.test_proxied_log import open_without_zookeeper
from tests.pure.whole.clusters import World, open_world

READ = "/v1/streams/shop/*/read"


async def append(world: World, name: str, *values: bytes) -> None:
    async with world.log.open_writer(name) as writer:
        for value in values:
            await writer.append(value)


def place(record: Mapping[str, object]) -> tuple[object, object]:
    return record["stream"], record["sequence"]


async def test_records_of_all_matching_streams_say_their_stream(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world, "shop/orders", b"a", b"b")
        await world.log.create_stream("shop/carts", survive="1 region")
        await append(world, "shop/carts", b"c")
        async with open_session(world.cluster, proxy, f"{READ}?credit=1") as client:
            await client.receive()
            first = await client.receive()
            await client.send(type="credit", records=5)
            *rest, end = await client.receive_all()

    places = [("shop/carts", 0), ("shop/orders", 0), ("shop/orders", 1)]
    assert sorted(map(place, [first, *rest])) == places
    assert end == {"type": "end"}


async def test_a_stream_that_is_created_later_is_sent_from_its_first_record(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"{READ}?follow=1&from=latest") as client,
    ):
        await client.receive()
        await world.log.create_stream("shop/carts", survive="1 region")
        await append(world, "shop/carts", b"c", b"d")
        found = [await client.receive(), await client.receive()]

    assert list(map(place, found)) == [("shop/carts", 0), ("shop/carts", 1)]


async def test_a_pattern_that_matches_nothing_or_is_appended_to_is_refused(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        told = []
        for path in (
            "/v1/streams/shop/odrers*/read",
            "/v1/streams/shop/*/append",
            f"{READ}?partition=0",
            f"{READ}?cursor=billing",
        ):
            async with open_session(world.cluster, proxy, path) as client:
                told.append((await client.receive_all())[-1])

    assert [one["code"] for one in told] == [404, 400, 400, 400]
    for one, why in zip(
        told,
        ("did you mean 'shop/orders'", "name of one", "leave it out", "positions"),
        strict=True,
    ):
        assert why in str(one["error"])


async def test_http_reads_a_pattern_as_lines(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await append(world, "shop/orders", b"a")
        await world.log.create_stream("shop/carts", survive="1 region")
        await append(world, "shop/carts", b"b")
        whole = await client.ask("GET", READ)
        none = await client.ask("GET", "/v1/streams/mill/*/read")

    *records, end = whole.lines
    assert sorted(map(place, records)) == [("shop/carts", 0), ("shop/orders", 0)]
    assert end == {"type": "end"}
    assert none.status == 404


async def test_without_zookeeper_a_pattern_is_refused_with_what_works(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match=r"/v1/streams/shop/\*/read"):
            async with log.open_reader("shop/*"):
                pass
