"""Reads over HTTP: whole ranges, following, slow clients, the end of a proxy."""

import h11
import pytest
import trio
from trio.testing import MockClock

import geolog
from tests.pure.proxy.http_client import Answer, HttpClient, open_http
from tests.pure.proxy.proxies import open_proxy
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import STREAM, append_each, open_world

READ = f"/v1/streams/{STREAM}/read"


def values_in(answer: Answer) -> list[object]:
    return [line["value"] for line in answer.lines if line["type"] == "record"]


async def receive_lines(client: HttpClient, count: int) -> bytes:
    """Receive a part of an answer, with as many lines or more."""
    received = b""
    while received.count(b"\n") < count:
        event = await client.next_event()
        assert isinstance(event, h11.Data), event
        received += bytes(event.data)
    return received


async def test_a_range_is_a_record_per_line_and_then_its_end(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, (b"%d" % number for number in range(300)))
        whole = await client.ask("GET", READ)
        part = await client.ask("GET", f"{READ}?from=sequence:10&to=sequence:20&partition=0")
        counted = await client.ask("GET", f"{READ}?from=last:5&count=2")
        head = await client.ask("HEAD", READ)

    assert (whole.status, whole.headers["content-type"]) == (200, "application/x-ndjson")
    assert values_in(whole) == [str(number) for number in range(300)]
    assert whole.lines[-1] == {"type": "end"}
    assert values_in(part) == [str(number) for number in range(10, 20)]
    assert values_in(counted) == ["295", "296"]
    assert (head.status, head.body) == (200, b"")


async def test_what_was_trimmed_is_a_gap(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, (b"%d" % number for number in range(10)))
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(4))
        answer = await client.ask("GET", f"{READ}?from=sequence:0")

    gap = answer.lines[0]
    assert (gap["type"], gap["reason"], gap["from"], gap["to"]) == ("gap", "trimmed", 0, 4)
    assert values_in(answer) == [str(number) for number in range(4, 10)]


async def test_a_read_that_follows_gives_each_record_as_it_comes(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
        world.log.open_writer(STREAM) as writer,
    ):
        await client.start("GET", f"{READ}?follow=1")
        await client.send(h11.EndOfMessage())
        head = await client.receive_head()
        pieces = []
        for number in range(3):
            await trio.sleep(20.0)
            await writer.append(b"%d" % number)
            pieces.append(await receive_lines(client, 1))

    assert head.status_code == 200
    assert [piece.count(b"\n") for piece in pieces] == [1, 1, 1]


async def test_a_reader_that_leaves_ends_its_read(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        async with open_http(world.cluster, proxy) as client:
            await client.start("GET", f"{READ}?follow=1")
            await client.send(h11.EndOfMessage())
            await client.receive_head()
        assert proxy.http is not None
        await proxy.http.wait_idle()


async def test_a_read_ends_with_a_whole_line_when_the_proxy_drains(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        running = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, [b"one", b"two"])
        async with open_http(world.cluster, running.proxy) as client:
            await client.start("GET", f"{READ}?follow=1")
            await client.send(h11.EndOfMessage())
            await client.receive_head()
            received = await receive_lines(client, 2)
            await running.drain()
            event = await client.next_event()
            assert isinstance(event, h11.Data)
            received += bytes(event.data)
            ended = await client.next_event()

    assert received.splitlines()[-1] == b'{"type":"goaway"}'
    assert received.endswith(b"\n")
    assert isinstance(ended, h11.EndOfMessage)


async def test_a_client_that_reads_slowly_holds_its_read_back_and_gets_all(
    autojump_clock: MockClock,
) -> None:
    values = [b"x" * 100_000 + b"%d" % number for number in range(40)]
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        async with world.log.open_writer(STREAM) as writer:
            await append_each(writer, values)
        await client.start("GET", READ)
        await client.send(h11.EndOfMessage())
        await trio.sleep(60.0)
        answer = await client.receive()

    assert values_in(answer) == [value.decode() for value in values]


@pytest.mark.parametrize(
    ("method", "target", "status", "words"),
    [
        ("GET", f"{READ}?form=earliest", 400, "did you mean 'from'"),
        ("GET", f"{READ}?from=yesterday", 400, "yesterday"),
        ("GET", f"{READ}?count=-1", 400, "count='-1'"),
        ("GET", f"{READ}?count=1&count=2", 400, "given twice"),
        ("GET", f"{READ}?follow=yes", 400, "neither 0 nor 1"),
        ("GET", f"{READ}?credit=1", 400, "credit is for WebSocket sessions"),
        ("GET", f"{READ}?partition=7", 400, "partition"),
        ("GET", "/v1/streams/shop/order/read", 404, "shop/orders"),
        ("GET", "/v1/streams/shop/%E2%80%A6/read", 400, ""),
        ("POST", READ, 405, "not POST"),
    ],
)
async def test_a_read_that_cannot_be_meant_is_refused(
    autojump_clock: MockClock, method: str, target: str, status: int, words: str
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask(method, target)

    assert (answer.status, answer.document["code"]) == (status, status)
    assert words in str(answer.document["error"])
