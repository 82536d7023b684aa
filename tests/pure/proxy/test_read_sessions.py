"""A session with a proxy reads a stream: the range, credits, and what ends it."""

import pytest
import trio
from trio.testing import MockClock

from geolog.wire.session.frames import MSGPACK_FRAMES
from tests.pure.proxy.proxies import Frame, OpenSession, open_proxy
from tests.pure.whole.clusters import STREAM, World, open_world

READ = f"/v1/streams/{STREAM}/read"
VALUES = [b"text", b"\xff\xfe"]


async def append(world: World) -> None:
    async with world.log.open_writer(STREAM) as writer:
        for value in VALUES:
            await writer.append(value, key=b"k", headers={"h": b"1"})


def told_value(frame: Frame) -> tuple[str, object]:
    """The name under which a frame has its record's value, and the value."""
    ((name, value),) = [one for one in frame.items() if one[0].startswith("value")]
    return name, value


async def test_a_range_is_sent_and_ended(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        async with open_session(world.cluster, proxy, READ) as client:
            hello, *records, end = await client.receive_all()

    is_binary = client.subprotocol == MSGPACK_FRAMES.subprotocol
    assert (hello["type"], end) == ("hello", {"type": "end"})
    assert [one["sequence"] for one in records] == [0, 1]
    assert [told_value(one) for one in records] == (
        [("value", b"text"), ("value", b"\xff\xfe")]
        if is_binary
        else [("value", "text"), ("value_base64", "//4=")]
    )
    assert {str(one["key"]) for one in records} == {"b'k'" if is_binary else "k"}
    assert records[0]["headers"] == {"h": b"1" if is_binary else "1"}
    assert client.closed is not None
    assert client.closed.close_code == 1000


async def test_records_come_as_far_as_the_credit_goes(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        async with open_session(world.cluster, proxy, f"{READ}?credit=1") as client:
            await client.receive()
            first = await client.receive()
            second = await client.ask(type="credit", records=1)
            end = await client.receive()

    assert (first["sequence"], second["sequence"], end["type"]) == (0, 1, "end")


async def test_a_reader_that_appends_is_told_and_sent_away(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"{READ}?follow=1") as client,
    ):
        await client.receive()
        await client.send(value="not here")
        (told,) = await client.receive_all()

    assert (told["code"], told["error"]) == (
        400,
        "appends need an append path; this session reads",
    )
    assert client.closed is not None
    assert client.closed.close_code == 4400


async def test_a_reader_commits_and_the_next_one_resumes_there(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    path = f"{READ}?cursor=bills"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        async with open_session(world.cluster, proxy, f"{path}&follow=1") as client:
            sent = [(await client.receive())["type"] for _ in range(3)]
            await client.send(type="commit", sequence=0)
        async with open_session(world.cluster, proxy, path) as client:
            _, record, end = [await client.receive() for _ in range(3)]
            await client.send(type="commit", sequence=1, partition=0)
            rest = await client.receive_all()
        told = await world.log.describe_cursor(STREAM, "bills")

    assert sent == ["hello", "record", "record"]
    assert (record["sequence"], end["type"], rest) == (1, "end", [])
    assert (told.partition_list[0].sequence, told.readers) == (2, [])


async def test_commits_that_wait_for_their_answers_are_few_at_a_time(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, f"{READ}?cursor=bills&follow=1") as client,
    ):
        await append(world)
        for _ in range(3):
            await client.receive()
        before_count = trio.lowlevel.current_statistics().tasks_living
        world.cluster.store.round_trip_s = lambda: 1.0
        for number in range(300):
            await client.send(type="commit", sequence=0, id=number)
        await trio.sleep(0.1)
        more_count = trio.lowlevel.current_statistics().tasks_living - before_count
        answers = [await client.receive() for _ in range(300)]

    assert 0 < more_count < 150
    assert sorted(int(str(one["id"])) for one in answers) == list(range(300))


async def test_records_without_a_commit_come_again(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        for _ in range(2):
            async with open_session(world.cluster, proxy, f"{READ}?cursor=bills") as client:
                _, *records, end = await client.receive_all()
            assert [one["sequence"] for one in records] == [0, 1]
            assert end["type"] == "end"


async def test_a_cursor_that_another_session_has_is_refused_unless_taken(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    path = f"{READ}?cursor=bills&follow=1"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, path) as first,
    ):
        await append(world)
        await first.receive()
        await first.receive()
        async with open_session(world.cluster, proxy, path) as second:
            _, refused = await second.receive_all()
        async with open_session(world.cluster, proxy, f"{path}&take=1") as third:
            await third.receive()
            again = await third.receive()
            lost = (await first.receive_all())[-1]

    assert (refused["code"], refused["retriable"], again["sequence"]) == (409, True, 0)
    assert "is held by" in str(refused["error"])
    assert lost["code"] == 412


@pytest.mark.parametrize("leaves", [False, True], ids=["at the end", "leaving"])
async def test_the_last_commit_is_answered_before_the_session_closes(
    autojump_clock: MockClock, open_session: OpenSession, *, leaves: bool
) -> None:
    path = f"{READ}?cursor=bills&follow={int(leaves)}"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        async with open_session(world.cluster, proxy, path) as client:
            for _ in range(3 if leaves else 4):  # A hello and two records; an end.
                await client.receive()
            await client.send(type="commit", sequence=1, id="last")
            if leaves:
                await client.send(type="leave")
            answers = await client.receive_all()

    assert {"type": "committed", "id": "last"} in answers


@pytest.mark.parametrize(
    ("query", "commit", "words"),
    [
        ("", {"sequence": 0}, "add cursor=NAME"),
        ("?cursor=bills", {"sequence": 7}, "sequence 7 of shop/orders#0 was not sent"),
        ("?cursor=bills", {"sequence": 0, "partition": 3}, "shop/orders#3 was not sent"),
        ("?cursor=no name", {"sequence": 0}, "is not a cursor name"),
    ],
)
async def test_a_commit_that_makes_no_sense_is_told(
    autojump_clock: MockClock,
    open_session: OpenSession,
    query: str,
    commit: Frame,
    words: str,
) -> None:
    query = query.replace(" ", "%20")
    path = f"{READ}{query}{'&' if query else '?'}follow=1"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        await append(world)
        async with open_session(world.cluster, proxy, path) as client:
            await client.receive()
            await client.send(type="commit", **commit)
            *_, told = await client.receive_all()

    assert told["code"] == 400
    assert words in str(told["error"])
