"""A session with a proxy appends to a stream: answers, refusals, redirects, exactly once."""

from contextlib import AsyncExitStack, suppress

import pytest
import trio
from trio.testing import MockClock

from geolog.transport.message_socket import SocketClosedError
from geolog.transport.seam import ConnectionFailedError
from geolog.wire.session.frames import JSON_FRAMES
from regions.proxy.proxy import WriteProxy
from regions.proxy.refused_connections import COUNT_MAX, TIME_S
from sim.in_process import InProcessCluster
from tests.pure.proxy.proxies import OpenSession, open_proxy
from tests.pure.whole.clusters import STREAM, open_world, values_of

APPEND = f"/v1/streams/{STREAM}/append"


async def test_what_a_session_appends_is_answered_in_order_and_can_be_read(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        hello = await client.receive()
        for number in range(50):
            await client.send(id=number, value=f"record {number}")
        answers = [await client.receive() for _ in range(50)]
        read = await values_of(world.log)

    assert (hello["type"], hello["region"], hello["epoch"]) == ("hello", "us-east", 1)
    assert [one["id"] for one in answers] == list(range(50))
    assert [one["sequence"] for one in answers] == list(range(50))
    assert read == [b"record %d" % number for number in range(50)]


async def test_a_bad_frame_is_answered_in_its_turn_and_the_session_goes_on(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.send(id=1, value="good")
        await client.send(id=2, vlue="bad")
        await client.send(id=3, value="good", expect_sequence=7)
        await client.socket.send("no JSON")
        await client.socket.send(b"bytes")
        await client.send(type="credit", records=1)
        await client.send(id=4, value="good")
        answers = [await client.receive() for _ in range(7)]

    assert [one.get("id") for one in answers] == [1, 2, 3, None, None, None, 4]
    codes = [one.get("code") for one in answers]
    assert codes == [None, 400, 409, 400, 400, 400, None]
    assert {one.get("outcome") for one in answers} == {None, "refused"}


async def test_a_list_of_records_is_answered_once_with_all_positions(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        answer = await client.ask(id="x", records=[{"value": "a"}, {"value": "b"}])

    assert isinstance(answer["records"], list)
    assert [one["sequence"] for one in answer["records"] if isinstance(one, dict)] == [0, 1]


async def test_a_client_of_another_proxy_is_sent_to_the_owner_with_its_own_query(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    target = f"{APPEND}?partition=0&writer=till-7"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, owner, APPEND) as client,
    ):
        await client.receive()
        async with open_session(world.cluster, other, target) as sent_away:
            moved = await sent_away.receive()
            with pytest.raises(SocketClosedError) as closed:
                await sent_away.receive()

    assert (moved["type"], moved["code"]) == ("error", 302)
    assert moved["location"] == f"ws://proxy-1:7000{target}"
    assert closed.value.close_code == 4302


async def test_a_client_may_ask_to_be_forwarded_to_the_owner(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, owner, APPEND) as client,
    ):
        await client.receive()
        async with open_session(
            world.cluster, other, f"{APPEND}?redirect=forward"
        ) as forwarded:
            hello = await forwarded.receive()
            first = await forwarded.ask(id=1, value="forwarded")
            second = await client.ask(id=2, value="not forwarded")

    assert (hello["owner"], hello["epoch"]) == (None, None)
    assert (first["sequence"], second["sequence"]) == (0, 1)


async def test_forwarding_holds_while_another_proxy_is_taking_the_partition(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as one,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, one, f"{APPEND}?redirect=forward") as client,
        open_session(world.cluster, other, f"{APPEND}?redirect=forward") as forwarded,
    ):
        types = [(await client.receive())["type"], (await forwarded.receive())["type"]]
        answers = [await client.ask(value="v"), await forwarded.ask(value="v")]

    assert types == ["hello", "hello"]
    assert [one["sequence"] for one in answers] == [0, 1]


async def test_records_of_a_stream_of_several_partitions_are_forwarded_to_their_owners(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    target = "/v1/streams/shop/wide/append?writer=till-7"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
    ):
        await world.log.create_stream("shop/wide", survive="1 region", partitions=4)
        one_of_them = "/v1/streams/shop/wide/append?partition=2"
        async with open_session(world.cluster, other, one_of_them) as client:
            await client.receive()
            await client.ask(value="two")
        async with open_session(world.cluster, proxy, target) as client:
            hello = await client.receive()
            for number in range(40):
                await client.send(id=number, value="v", key=f"key {number}", seq=number)
            answers = [await client.receive() for _ in range(40)]
            again = await client.ask(id=40, value="v", key="key 7", seq=7)
        described = await world.log.describe_stream("shop/wide")

    assert (hello["owner"], hello["writer_epoch"]) == (None, 1)
    assert [one["id"] for one in answers] == list(range(40))
    assert {one["partition"] for one in answers} == {0, 1, 2, 3}
    assert again["duplicate"] is True
    assert again["sequence"] == answers[7]["sequence"]
    assert described.partition_list[2].owner == "proxy proxy-2 in eu-west"


async def test_a_stream_that_a_direct_writer_owns_is_refused_until_its_process_has_left(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
    ):
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"direct")
            async with open_session(world.cluster, proxy, APPEND) as client:
                refused = await client.receive()
        async with open_session(world.cluster, proxy, APPEND) as client:
            await client.receive()
            taken = await client.ask(value="by proxy")

    assert (refused["code"], refused["outcome"]) == (412, "refused")
    assert "client writes shop/orders#0 directly" in str(refused["error"])
    assert taken["sequence"] == 1


async def test_a_direct_writer_takes_the_partition_and_the_client_is_told(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        await client.ask(value="by proxy")
        async with world.log.open_writer(STREAM) as writer:
            await writer.append(b"direct")
            unknown = await client.ask(id=1, value="too late")
            told = await client.receive()
            with pytest.raises(SocketClosedError) as closed:
                await client.receive()
        read = await values_of(world.log)

    assert (unknown["id"], unknown["code"], unknown["outcome"]) == (1, 504, "unknown")
    assert (told.get("id"), told["code"]) == (None, 412)
    assert "client writes shop/orders#0 directly" in str(told["error"])
    assert closed.value.close_code == 4412
    assert read == [b"by proxy", b"direct"]


async def test_a_numbered_record_is_stored_once_whichever_session_sends_it(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with open_world() as world:
        async with (
            open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
            open_session(world.cluster, proxy, f"{APPEND}?writer=till-7") as client,
        ):
            first_hello = await client.receive()
            first = await client.ask(value="paid", seq=0)
        async with (
            open_proxy(world.cluster, "proxy-2", "eu-west") as proxy,
            open_session(world.cluster, proxy, APPEND) as client,
        ):
            await client.receive()
            again = await client.ask(value="paid", seq=0, writer="till-7")
            other = await client.ask(value="more", seq=0, writer="till-7")
        read = await values_of(world.log)

    assert (first_hello["writer_epoch"], first_hello["writer_seq"]) == (1, -1)
    assert (again["sequence"], again["duplicate"]) == (first["sequence"], True)
    assert other["code"] == 409
    assert read == [b"paid"]


async def test_a_writers_older_session_is_told_that_a_newer_one_began(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    target = f"{APPEND}?writer=till-7"
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, target) as older,
    ):
        await older.receive()
        async with open_session(world.cluster, proxy, target) as newer:
            hello = await newer.receive()
            told = await older.ask(value="old", seq=0)
            answer = await newer.ask(value="new", seq=0)

    assert hello["writer_epoch"] == 2
    assert told["code"] == 412
    assert (answer["sequence"], answer["duplicate"]) == (0, False)


async def test_a_draining_proxy_answers_what_it_took_and_sends_its_clients_away(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    to_end, ended = trio.Event(), trio.Event()

    async def serve(
        cluster: InProcessCluster, task_status: trio.TaskStatus[WriteProxy]
    ) -> None:
        async with open_proxy(cluster, "proxy-1", "us-east") as proxy:
            task_status.started(proxy)
            await to_end.wait()
        ended.set()

    async with open_world() as world, trio.open_nursery() as nursery:
        proxy: WriteProxy = await nursery.start(serve, world.cluster)
        async with open_session(world.cluster, proxy, APPEND) as client:
            await client.receive()
            for number in range(20):
                await client.send(id=number, value=f"{number}")
            frames = [await client.receive()]
            to_end.set()
            frames += await client.receive_all()
            closed = client.closed
        await ended.wait()
        read = await values_of(world.log)
        (partition,) = (await world.log.describe_stream(STREAM)).partition_list

    types = [one["type"] for one in frames]
    assert types.count("goaway") == 1
    assert types.count("ack") == len(read) == len(types) - 1
    assert closed is not None
    assert closed.close_code == 1012
    assert not partition.owner_is_alive


async def test_an_idle_partition_is_given_up_and_taken_again_when_asked_for(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", idle_release_s=60.0) as proxy,
    ):
        async with open_session(world.cluster, proxy, APPEND) as client:
            await client.receive()
            await client.ask(value="one")
        held_then = len(proxy.held)
        await proxy.held.wait_changed()
        held_later = len(proxy.held)
        async with open_session(world.cluster, proxy, APPEND) as client:
            hello = await client.receive()
            answer = await client.ask(value="two")

    assert (held_then, held_later) == (1, 0)
    assert (hello["epoch"], answer["sequence"]) == (2, 1)


async def test_a_client_that_reads_no_answers_is_held_back(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", credit_bytes=1000) as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        for number in range(100):
            await client.send(id=number, value="x" * 200)
        answers = [await client.receive() for _ in range(100)]

    assert [one["sequence"] for one in answers] == list(range(100))


async def test_sessions_share_a_bound_of_bytes_and_give_back_what_they_took(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", in_flight_bytes_max=1000) as proxy,
        open_session(world.cluster, proxy, APPEND) as left_early,
    ):
        await left_early.receive()
        async with (
            open_session(world.cluster, proxy, APPEND) as one,
            world.cluster.open_client("us-east", host="two", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await one.receive()
            for number in range(50):
                await one.send(id=number, value="x" * 200)
                await left_early.send(id=number, value="y" * 200)
                await writer.post(b"z" * 200)
            answers = [await one.receive() for _ in range(50)]
            await writer.flush()
            await left_early.socket.close(1000)
        with trio.fail_after(60):
            while proxy.in_flight.bytes:
                await proxy.in_flight.wait_changed()

    assert [one["id"] for one in answers] == list(range(50))


async def test_the_first_subprotocol_that_the_proxy_knows_is_used(
    autojump_clock: MockClock,
    open_session: OpenSession,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(
            world.cluster, proxy, APPEND, subprotocols=("mqtt", JSON_FRAMES.subprotocol)
        ) as client,
    ):
        assert (await client.receive())["type"] == "hello"


async def test_an_append_at_level_received_is_answered_before_the_record_is_on_disk(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as client,
    ):
        await client.receive()
        for node in world.cluster.nodes.values():
            for disk in node.disks:
                disk.faults.sync_s = 1.0
        began_s = trio.current_time()
        early = await client.ask(id=1, value="one", ack="received")
        received_s = trio.current_time() - began_s
        late = await client.ask(id=2, value="two", ack="durable")
        durable_s = trio.current_time() - began_s
        read = await values_of(world.log)

    assert (early["provisional"], early["sequence"]) == (True, 0)
    assert ("provisional" in late, late["sequence"]) == (False, 1)
    assert received_s < 0.9 <= durable_s
    assert read == [b"one", b"two"]


async def test_level_received_may_begin_behind_appends_that_are_in_flight(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as proxy,
        open_session(world.cluster, proxy, APPEND) as patient,
        open_session(world.cluster, proxy, APPEND) as hasty,
    ):
        await patient.receive()
        await hasty.receive()
        for node in world.cluster.nodes.values():
            for disk in node.disks:
                disk.faults.sync_s = 1.0
        await patient.send(value="one")
        await trio.sleep(0.2)
        behind = await hasty.ask(value="two", ack="received")
        durable = await patient.receive()
        early = await hasty.ask(value="three", ack="received")

    assert (durable["sequence"], behind["sequence"], early["sequence"]) == (0, 1, 2)
    assert "provisional" not in durable
    assert early["provisional"] is True


async def test_a_forwarded_append_is_answered_when_durable_whatever_level_it_asks_for(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east") as owner,
        open_proxy(world.cluster, "proxy-2", "eu-west") as other,
        open_session(world.cluster, owner, APPEND) as client,
    ):
        await client.receive()
        async with open_session(
            world.cluster, other, f"{APPEND}?redirect=forward"
        ) as forwarded:
            await forwarded.receive()
            answer = await forwarded.ask(value="v", ack="received")

    assert (answer["sequence"], "provisional" in answer) == (0, False)


async def test_a_client_that_takes_no_answers_does_not_stop_others_for_ever(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", in_flight_bytes_max=50_000) as proxy,
        open_session(world.cluster, proxy, APPEND) as stuck,
        open_session(world.cluster, proxy, APPEND) as other,
    ):
        await stuck.receive()
        await other.receive()
        with trio.move_on_after(10):
            while True:
                await stuck.send(id="i" * 1000, value="v")
        with trio.fail_after(60):
            answers = [await other.ask(id=number, value="v") for number in range(3)]

    assert [one["id"] for one in answers] == [0, 1, 2]


async def test_a_client_has_only_its_share_of_the_connections(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", connections_max=3, client_share=0.5
        ) as proxy,
        open_session(world.cluster, proxy, APPEND, host="greedy") as first,
        open_session(world.cluster, proxy, APPEND, host="greedy") as second,
        open_session(world.cluster, proxy, APPEND, host="greedy") as third,
        open_session(world.cluster, proxy, APPEND, host="modest") as other,
    ):
        told = [await one.receive() for one in (first, second, third, other)]
        closed = await third.receive_all()

    assert [one["type"] for one in told] == ["hello", "hello", "error", "hello"]
    assert (told[2]["code"], closed) == (429, [])
    assert "greedy has 2 connections" in str(told[2]["error"])


async def test_silent_connections_over_the_limit_keep_no_client_waiting(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(
            world.cluster, "proxy-1", "us-east", connections_max=4, client_share=0.5
        ) as proxy,
        AsyncExitStack() as stack,
    ):
        silent = world.cluster.network.transport("silent")
        streams = [await silent.connect(proxy.address) for _ in range(3 * COUNT_MAX)]
        started_s = trio.current_time()
        client = await stack.enter_async_context(
            open_session(world.cluster, proxy, APPEND, host="modest")
        )
        told = await client.receive()
        waited_s = trio.current_time() - started_s
        with suppress(ConnectionFailedError):
            while await streams[-1].receive_into(bytearray(1 << 16)):
                pass
        last_s = trio.current_time() - started_s
        for stream in streams:
            stream.close()

    assert told["type"] == "hello"
    assert waited_s < 0.5
    assert last_s == pytest.approx(TIME_S, abs=0.5)


async def test_a_full_proxy_says_when_to_come_back(
    autojump_clock: MockClock, open_session: OpenSession
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", connections_max=1) as proxy,
        open_session(world.cluster, proxy, APPEND) as first,
    ):
        await first.receive()
        async with open_session(world.cluster, proxy, APPEND) as second:
            (told,) = await second.receive_all()
        answer = await first.ask(value="v")

    assert (told["code"], told["retry_after_s"], told["retriable"]) == (429, 1.0, True)
    assert second.closed is not None
    assert second.closed.close_code == 4429
    assert answer["sequence"] == 0
