"""Appends over HTTP: answers by line, refusals of whole requests, redirects, exactly once."""

import json
from contextlib import AsyncExitStack

import h11
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from geolog.transport.served_websocket import GRACE_S
from geolog.wire.session import frames
from geolog.wire.session.json_records import Json, parse_object
from regions.proxy.http import appends
from regions.proxy.http.appends import KeptBytes, LineFrames, parsed_lines
from tests.pure.proxy.http_client import open_http
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import STREAM, open_world, values_of

APPEND = f"/v1/streams/{STREAM}/append"


def lines_of(*documents: dict[str, object]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in documents)


async def test_each_line_is_appended_and_answered_in_order(autojump_clock: MockClock) -> None:
    records = [{"id": number, "value": f"record {number}"} for number in range(50)]
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", APPEND, lines_of(*records))
        one = await client.ask("POST", APPEND, b'{"value":"without a line end"}')
        read = await values_of(world.log)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    assert [line["type"] for line in answer.lines] == ["ack"] * 50
    assert [line["id"] for line in answer.lines] == list(range(50))
    assert [line["sequence"] for line in answer.lines] == list(range(50))
    assert (one.status, one.document["sequence"]) == (200, 50)
    assert read == [*(b"record %d" % number for number in range(50)), b"without a line end"]


async def test_a_line_that_the_log_refuses_sets_the_status_and_the_others_are_appended(
    autojump_clock: MockClock,
) -> None:
    body = lines_of(
        {"id": "a", "value": "one"},
        {"id": "b", "value": "two", "expect_sequence": 7},
        {"id": "c", "value": "three"},
    )
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", APPEND, body)
        read = await values_of(world.log)

    assert answer.status == 409
    assert [(line["id"], line.get("code")) for line in answer.lines] == [
        ("a", None),
        ("b", 409),
        ("c", None),
    ]
    assert read == [b"one", b"three"]


GOOD = b'{"value":"good"}\n'


@pytest.mark.parametrize(
    ("target", "body", "status", "words"),
    [
        (APPEND, GOOD + b"no JSON\n", 400, "line 2: the frame is not valid JSON"),
        (APPEND, GOOD + b'{"vlaue":"x"}\n', 400, "line 2"),
        (
            APPEND,
            GOOD + b'\n\n{"type":"credit","records":1}\n',
            400,
            "line 4 is a credit or a commit",
        ),
        (APPEND, GOOD + b'{"value":"\xff"}\n', 400, "line 2 is not UTF-8"),
        (APPEND, b"[" * 9_000, 400, "nested too deeply"),
        (APPEND, b"[" * 100_000, 400, "more lists or objects"),
        (APPEND, b"", 400, "the body has no line"),
        (APPEND, b"\n \n", 400, "the body has no line"),
        (APPEND, GOOD * 10_001, 413, "more than 10000 records"),
        (f"{APPEND}?writter=x", GOOD, 400, "did you mean 'writer'"),
        (f"{APPEND}?partition=-1", GOOD, 400, "partition='-1'"),
        (f"{APPEND}?partition=9", GOOD, 400, "partition"),
        (f"{APPEND}?redirect=maybe", GOOD, 400, "neither follow nor forward"),
        ("/v1/streams/shop/order/append", GOOD, 404, "shop/orders"),
        ("/v1/streams/shop/%00/append", GOOD, 400, ""),
        ("/v1/streams/shop/..%2Forders/append", GOOD, 404, "no such path"),
        (f"/v1/streams/shop/{'x' * 10_000}/append", GOOD, 400, ""),
    ],
)
async def test_a_request_that_cannot_be_meant_appends_nothing(
    autojump_clock: MockClock, target: str, body: bytes, status: int, words: str
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", target, body)
        read = await values_of(world.log)
        again = await client.ask("GET", "/livez")

    assert (answer.status, answer.document["code"]) == (status, status)
    assert words in str(answer.document["error"])
    assert answer.document["outcome"] == "refused"
    assert read == []
    assert again.status == 200


async def test_a_method_or_encoding_that_appends_have_not_is_refused(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        got = await client.ask("GET", APPEND)
        packed = await client.ask(
            "POST", APPEND, b"\x1f\x8b", headers=[("content-encoding", "gzip")]
        )

    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert (packed.status, "gzip" in str(packed.document["error"])) == (400, True)


async def test_a_body_above_the_limit_is_refused_and_not_held(
    autojump_clock: MockClock,
) -> None:
    mebibyte = b'{"value":"' + b"x" * ((1 << 20) - 13) + b'"}\n'
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", frame_bytes_max=2 << 20) as proxy,
    ):
        async with open_http(world.cluster, proxy) as client:
            await client.start("POST", APPEND, headers=[("content-length", str(1 << 40))])
            announced = await client.receive()
        async with open_http(world.cluster, proxy) as client:
            chunked = await client.ask("POST", APPEND, [mebibyte] * 3)
        async with open_http(world.cluster, proxy) as client:
            allowed = await client.ask("POST", APPEND, [mebibyte] * 2)

    assert (announced.status, chunked.status, allowed.status) == (413, 413, 200)


async def test_bodies_beyond_the_memory_for_them_are_refused_with_a_time_to_come_back(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster,
            "proxy-1",
            "us-east",
            http_bodies_bytes_max=100_000,
            client_share=1.0,
        ) as proxy,
        open_http(world.cluster, proxy) as slow,
        open_http(world.cluster, proxy) as client,
    ):
        await slow.start("POST", APPEND, headers=[("transfer-encoding", "chunked")])
        await slow.send(h11.Data(data=b" " * 90_000))
        await trio.testing.wait_all_tasks_blocked()
        full = await client.ask("POST", APPEND, GOOD * 1_000)
        slowly = await slow.receive()

    assert (slowly.status, slowly.document["retriable"]) == (429, True)
    assert int(slowly.headers["retry-after"]) >= 1
    assert full.status == 200


async def test_bodies_of_one_client_that_do_not_end_turn_no_others_away(
    autojump_clock: MockClock,
) -> None:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world())
        proxy = await stack.enter_async_context(
            open_proxy(world.cluster, "proxy-1", "us-east", http_bodies_bytes_max=1_000_000)
        )
        for _ in range(20):
            slow = await stack.enter_async_context(
                open_http(world.cluster, proxy, host="attacker")
            )
            await slow.start("POST", APPEND, headers=[("transfer-encoding", "chunked")])
            await slow.send(h11.Data(data=b" " * 100_000))
        await trio.testing.wait_all_tasks_blocked()
        client = await stack.enter_async_context(open_http(world.cluster, proxy, host="other"))
        answer = await client.ask("POST", APPEND, GOOD * 5_000)

    assert answer.status == 200


async def test_answers_that_a_client_does_not_take_are_bounded_and_kept_for_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "ANSWERS_BYTES_MAX", 200_000)
    body = lines_of({"records": [{"value": ""}] * 1000})
    async with open_world() as world, open_proxy(world.cluster, "proxy-1", "us-east") as proxy:
        world.cluster.network.pipe_bytes_max = 16 << 10
        async with AsyncExitStack() as stack:
            stuck = [
                await stack.enter_async_context(open_http(world.cluster, proxy, host="stuck"))
                for _ in range(5)
            ]
            other = await stack.enter_async_context(open_http(world.cluster, proxy))
            length = ("content-length", str(len(body)))
            for client in stuck:
                await client.start("POST", APPEND, headers=[length])
                await client.send(h11.Data(data=body), h11.EndOfMessage())
                await trio.sleep(5)
            of_other = await other.ask("POST", APPEND, body)
            answers = [await client.receive() for client in stuck]
            again = await stuck[0].ask("POST", APPEND, body)

    assert [one.status for one in answers] == [200, 200, 429, 429, 429]
    assert "answers that it has not taken" in answers[-1].document["error"]  # type: ignore[operator]
    assert (of_other.status, again.status) == (200, 200)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        # One that is no append, so that nothing else is done.
        (b'{"value":"x"}\n' * 9_000 + b"{}\n", 400),
        (b" " * 300 + b"\n" + (b" " * 300 + b"\n") * 15_000, 400),
    ],
    ids=["records", "blank lines"],
)
async def test_others_have_turns_while_a_long_body_is_looked_at(
    autojump_clock: MockClock, body: bytes, status: int
) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
        trio.open_nursery() as nursery,
    ):
        await client.ask("POST", APPEND, GOOD)
        nursery.start_soon(count_turns)
        began = turns
        answer = await client.ask("POST", APPEND, b"{}\n")
        short = turns - began
        began = turns
        answer = await client.ask("POST", APPEND, body)
        long = turns - began
        nursery.cancel_scope.cancel()

    assert answer.status == status
    assert long - short >= 50


@pytest.mark.parametrize("line", [b"\n", b" \n", b"\r", b"\r\n"])
async def test_a_body_of_blank_lines_is_refused_at_once(
    autojump_clock: MockClock, line: bytes
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", APPEND, line * 20_001)

    assert answer.status == 413


async def test_lines_that_are_parsed_once_have_a_bound_for_all_requests() -> None:
    room = KeptBytes()
    kept = [LineFrames(room) for _ in range(5)]
    for one in kept:
        body = b"".join(b'{"id":%d,"value":""}\n' % number for number in range(9_999))
        await parsed_lines(body, one)
    full_bytes, count = room.bytes, sum(len(one) for one in kept)
    for one in kept:
        one.close()

    assert full_bytes <= 16 << 20
    assert 1_000 < count < 20_000
    assert room.bytes == 0


async def test_the_lines_of_a_body_are_parsed_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def parse(frame: str, what: str) -> Json:
        parsed.append(frame)
        return parse_object(frame, what)

    monkeypatch.setattr(frames, "parse_object", parse)
    lines = [json.dumps({"id": number, "value": f"v{number}"}) for number in range(20)]
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        answer = await client.ask("POST", APPEND, "\n".join([*lines, lines[0]]).encode())
        read = await values_of(world.log)

    assert answer.status == 200
    assert [one["id"] for one in answer.lines] == [*range(20), 0]
    assert read == [*(f"v{number}".encode() for number in range(20)), b"v0"]
    assert sorted(set(parsed)) == sorted(lines)
    assert len(parsed) <= 22  # The one that comes twice is parsed once more.


async def test_a_body_that_does_not_arrive_in_time_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", http_body_time_s=60.0) as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await client.start("POST", APPEND, headers=[("content-length", "1000")])
        await client.send(h11.Data(data=GOOD))
        started_s = trio.current_time()
        answer = await client.receive()
        waited_s = trio.current_time() - started_s
        read = await values_of(world.log)

    assert (answer.status, answer.document["retriable"]) == (408, True)
    assert GRACE_S <= waited_s < GRACE_S + 5
    assert read == []


async def test_a_client_of_another_proxy_is_redirected_to_the_owners_http_port(
    autojump_clock: MockClock,
) -> None:
    target = f"{APPEND}?partition=0&writer=till-7"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, owner, APPEND) as session,
        open_http(world.cluster, other) as client,
    ):
        await session.receive()
        moved = await client.ask("POST", target, GOOD)
        forwarded = await client.ask("POST", f"{APPEND}?redirect=forward", GOOD)

    assert (moved.status, moved.document["code"]) == (307, 302)
    assert moved.headers["location"] == f"http://proxy-1:7080{target}"
    assert moved.document["location"] == moved.headers["location"]
    assert (forwarded.status, forwarded.document["sequence"]) == (200, 0)


async def test_a_request_for_an_owner_without_http_is_forwarded(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", http=None) as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, owner, APPEND) as session,
        open_http(world.cluster, other) as client,
    ):
        await session.receive()
        answer = await client.ask("POST", APPEND, GOOD)

    assert (answer.status, answer.document["sequence"]) == (200, 0)


async def test_a_numbered_line_is_stored_once_whichever_proxy_and_protocol_takes_it(
    autojump_clock: MockClock,
) -> None:
    paid: dict[str, object] = {"writer": "till-7", "seq": 0, "value": "paid"}
    async with open_world() as world:
        async with (
            open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
            open_session(world.cluster, proxy, APPEND) as session,
        ):
            await session.receive()
            first = await session.ask(**paid)
        async with (
            open_proxy(world.cluster, "proxy-2", "eu-west") as proxy,
            open_http(world.cluster, proxy) as client,
        ):
            again = await client.ask("POST", APPEND, lines_of(paid))
            by_path = await client.ask(
                "POST", f"{APPEND}?writer=till-7", lines_of({"seq": 0, "value": "paid"})
            )
            other = await client.ask("POST", APPEND, lines_of(paid | {"value": "more"}))
        read = await values_of(world.log)

    assert (again.status, again.document["duplicate"]) == (200, True)
    assert again.document["sequence"] == first["sequence"]
    assert (by_path.status, by_path.document["duplicate"]) == (200, True)
    assert other.status == 409
    assert read == [b"paid"]


async def test_a_stream_of_several_partitions_is_appended_by_key(
    autojump_clock: MockClock,
) -> None:
    records: list[dict[str, object]] = [
        {"value": "v", "key": f"key {number}"} for number in range(40)
    ]
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        await world.log.create_stream("shop/wide", survive="1 region", partitions=4)
        answer = await client.ask("POST", "/v1/streams/shop/wide/append", lines_of(*records))

    assert answer.status == 200
    assert {line["partition"] for line in answer.lines} == {0, 1, 2, 3}


async def test_a_stream_that_a_direct_writer_owns_is_refused(autojump_clock: MockClock) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
        world.log.open_writer(STREAM) as writer,
    ):
        await writer.append(b"direct")
        answer = await client.ask("POST", APPEND, GOOD)

    assert (answer.status, answer.document["code"]) == (412, 412)
    assert answer.document["outcome"] == "refused"


async def test_a_begun_line_behind_refused_ones_is_unknown_once_the_request_ends(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", partition_in_flight_bytes_max=5000
        ) as proxy,
        open_session(world.cluster, proxy, APPEND) as other,
        open_http(world.cluster, proxy) as client,
    ):
        await other.receive()
        await other.ask(value="before")
        for node_id in world.cluster.nodes:
            world.cluster.network.cut("proxy-1", node_id)
        await other.send(value="x" * 3000)
        await trio.testing.wait_all_tasks_blocked()
        long = "y" * 3000  # There is no room for it. Too many writers are refused at last.
        lines: list[dict[str, object]] = [
            {"writer": f"till-{one}", "seq": 0, "value": long} for one in range(65)
        ]
        lines.insert(64, {"value": "short"})

        answer = await client.ask("POST", APPEND, lines_of(*lines))

    assert [line["code"] for line in answer.lines[:64]] == [429] * 64
    assert [line["outcome"] for line in answer.lines] == [
        *["refused"] * 64,
        "unknown",
        "refused",
    ]


async def test_a_proxy_that_drains_answers_what_it_took_and_takes_no_more(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        running = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            open_http(world.cluster, running.proxy) as client,
            open_http(world.cluster, running.proxy) as other,
            open_http(world.cluster, running.proxy) as slow,
        ):
            await slow.start("POST", APPEND, headers=[("content-length", str(len(GOOD)))])
            await client.start("POST", APPEND, headers=[("content-length", str(len(GOOD)))])
            await client.send(h11.Data(data=GOOD), h11.EndOfMessage())
            nursery.start_soon(running.drain)
            answered = await client.receive()
            not_ready = await other.ask("GET", "/readyz")
            refused = await other.ask("POST", APPEND, GOOD)
        read = await values_of(world.log)

    assert answered.status in (200, 503)
    assert read == [b"good"] * (answered.status == 200)
    assert (not_ready.status, not_ready.document["reasons"]) == (503, ["the proxy drains"])
    assert (refused.status, refused.document["outcome"]) == (503, "refused")


async def test_owners_are_told_with_the_places_that_take_appends(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_http(world.cluster, proxy) as client,
    ):
        before = await client.ask("GET", f"/v1/owner/{STREAM}")
        await client.ask("POST", APPEND, GOOD)
        after = await client.ask("GET", f"/v1/owner/{STREAM}?partition=0")
        missing = await client.ask("GET", "/v1/owner/shop/order")
        bad = await client.ask("GET", f"/v1/owner/{STREAM}?partitoin=0")

    nobody = {"owner": None, "epoch": 0, "alive": False, "location": None, "http": None}
    assert before.document["partitions"] == [{"partition": 0} | nobody]
    owner = {
        "owner": "proxy proxy-1 in us-east",
        "epoch": 1,
        "alive": True,
        "location": "ws://proxy-1:7000",
        "http": "http://proxy-1:7080",
    }
    assert after.document["partitions"] == [{"partition": 0} | owner]
    assert missing.status == 404
    assert "did you mean 'partition'" in str(bad.document["error"])
