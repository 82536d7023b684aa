"""Writers that append through proxies: any number at once, across takeovers and drains."""

from contextlib import AsyncExitStack

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.writing.writer import Writer
from geolog.partition.hand_over import END_S
from tests.pure.garbage import only_collected
from tests.pure.proxy.proxies import open_proxy
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import (
    STREAM,
    ended_by,
    move_home,
    numbered,
    open_world,
    values_of,
)
from tests.pure.whole.test_own_placement import LastRacks


async def test_two_writers_append_to_one_stream_at_the_same_time(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="one", via="proxy") as one,
        world.cluster.open_client("eu-west", host="two", via="proxy") as two,
        one.open_writer(STREAM) as first,
        two.open_writer(STREAM) as second,
    ):
        receipts = []
        for number in range(10):
            receipts.append(await first.append(b"first %d" % number))
            receipts.append(await second.append(b"second %d" % number))
        read = await values_of(world.log)

    assert [one.sequence for one in receipts] == list(range(20))
    assert read[::2] == [b"first %d" % number for number in range(10)]


async def test_many_records_in_flight_come_in_order(autojump_clock: MockClock) -> None:
    values = numbered(2_000)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
        log.open_writer(STREAM) as writer,
    ):
        for value in values:
            await writer.post(value)
        await writer.flush()
        read = await values_of(world.log)

    assert read == values


async def test_a_writer_stays_within_the_credit_of_its_channel(
    autojump_clock: MockClock,
) -> None:
    """A channel that is sent more than its credit is closed, and its records are in doubt."""
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east", credit_bytes=1_000) as proxy,
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
        log.open_writer(STREAM, batch_bytes=400) as writer,
    ):
        pendings = [writer.append_nowait(value) for value in numbered(500)]
        receipts = [await one.wait() for one in pendings]
        opened = proxy.held.owners[0].epoch

    assert [one.sequence for one in receipts] == list(range(500))
    assert {one.epoch for one in receipts} == {opened}


async def test_a_writer_goes_directly_while_no_proxy_is_up_unless_told_otherwise(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="one", via=None) as log,
        world.cluster.open_client("us-east", host="two", via="proxy") as insisting,
    ):
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"direct")
        with pytest.raises(geolog.UnavailableError, match="geolog serve proxy"):
            async with insisting.open_writer(STREAM):
                pass


async def test_a_drained_proxys_clients_go_on_without_an_unknown_outcome(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"0")
            second = await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
            nursery.start_soon(first.drain)
            receipts = [await writer.append(b"%d" % number) for number in range(1, 200)]
            read = await values_of(world.log)
        await second.drain()

    assert [one.sequence for one in receipts] == list(range(1, 200))
    assert read == [b"%d" % number for number in range(200)]


async def test_no_nameless_record_is_unknown_whenever_it_meets_a_drain(
    autojump_clock: MockClock,
) -> None:
    """Records come at moments spread over the drain, some between its single steps."""
    unknown: list[str] = []

    async def write(writer: Writer, number: int) -> None:
        await trio.sleep(0.001 * number)
        try:
            await writer.append(b"%d" % number)
        except geolog.OutcomeUnknownError as error:
            unknown.append(str(error))

    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        second = await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            async with AsyncExitStack() as stack:
                writers = [
                    await stack.enter_async_context(log.open_writer(STREAM)) for _ in range(8)
                ]
                nursery.start_soon(first.drain)
                async with trio.open_nursery() as writing:
                    for number in range(400):
                        writing.start_soon(write, writers[number % len(writers)], number)
            read = await values_of(world.log)
        await second.drain()

    assert unknown == []
    assert sorted(map(int, read)) == list(range(400))


async def test_a_drain_is_over_as_soon_as_its_clients_have_moved(
    autojump_clock: MockClock,
) -> None:
    """The clients close their sockets, which the proxy waits for, and stay with the other."""
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"0")
            second = await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
            begun_s = trio.current_time()
            await first.drain()
            drain_s = trio.current_time() - begun_s
            receipt = await writer.append(b"1")
            begun_s = trio.current_time()
        await second.drain()
        idle_drain_s = trio.current_time() - begun_s

    assert drain_s < 0.5
    assert receipt.sequence == 1
    assert idle_drain_s < 0.5


async def test_no_nameless_record_is_unknown_whenever_the_last_proxy_ends(
    autojump_clock: MockClock,
) -> None:
    """Nobody takes its partitions, so it refuses for certain until another proxy is there."""
    unknown: list[str] = []

    async def write(writer: Writer, number: int) -> None:
        await trio.sleep(0.02 * number)
        try:
            await writer.append(b"%d" % number)
        except geolog.OutcomeUnknownError as error:
            unknown.append(str(error))

    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        world.cluster.store.round_trip_s = lambda: 0.02
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            async with log.open_writer(STREAM) as writer, trio.open_nursery() as writing:
                await writer.append(bytes(300 << 10))  # Enough for a last snapshot.
                for number in range(200):
                    writing.start_soon(write, writer, number)
                begun_s = trio.current_time()
                await first.drain()
                drain_s = trio.current_time() - begun_s
                second = RunningProxy(world.cluster, "proxy-2", "eu-west")
                await nursery.start(second.run)
            read = (await values_of(world.log))[1:]
        await second.drain()

    assert drain_s < 3.0
    assert unknown == []
    assert sorted(map(int, read)) == list(range(200))


async def test_a_drain_hands_over_though_the_nodes_do_not_answer_for_a_while(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        network = world.cluster.network
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        second = await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"before")
            for node_id in world.cluster.nodes:
                network.cut("proxy-1", node_id)
            pending = writer.append_nowait(b"slow")
            nursery.start_soon(first.drain)
            await trio.sleep(END_S + 0.5)
            for node_id in world.cluster.nodes:
                network.mend("proxy-1", node_id)
            receipt = await pending.wait()
            await writer.append(b"after")
            read = await values_of(world.log)
            (partition,) = (await log.describe_stream(STREAM)).partition_list
        await second.drain()

    assert receipt.sequence == 1
    assert read == [b"before", b"slow", b"after"]
    assert partition.owner == "proxy proxy-2 in eu-west"


async def test_a_draining_proxy_hands_its_partitions_to_the_others(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        second = await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            await log.create_stream("shop/wide", survive="1 region", partitions=4)
            async with log.open_writer("shop/wide") as writer:
                for number in range(8):
                    await writer.append(b"%d" % number, key=b"same")
                    await writer.append(b"%d" % number)
            world.cluster.store.round_trip_s = lambda: 0.05
            await first.drain()
            partitions = (await log.describe_stream("shop/wide")).partition_list
            async with log.open_writer("shop/wide") as writer:
                receipt = await writer.append(b"8", key=b"same")
        await second.drain()

    assert {one.owner for one in partitions} == {"proxy proxy-2 in eu-west"}
    assert all(one.owner_is_alive for one in partitions)
    assert receipt.sequence >= 8


async def test_a_named_writer_loses_nothing_and_repeats_nothing_when_the_owner_is_killed(
    autojump_clock: MockClock,
) -> None:
    values = numbered(300)
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM, writer_id="till-7") as writer,
        ):
            for value in values[:100]:
                await writer.post(value)
            await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
            await first.kill()
            for value in values[100:]:
                await writer.post(value)
            await writer.flush()
            read = await values_of(world.log)
        nursery.cancel_scope.cancel(reason="the test is over")

    assert read == values


async def test_a_flush_tells_that_posted_records_may_be_lost(autojump_clock: MockClock) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"known")
            await writer.post(b"in flight")
            await trio.testing.wait_all_tasks_blocked()
            await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
            await first.kill()
            with pytest.raises(geolog.OutcomeUnknownError):
                await writer.flush()
            await writer.append(b"later")
            await writer.flush()
        nursery.cancel_scope.cancel(reason="the test is over")


async def test_a_nameless_writer_is_told_what_is_unknown_when_the_owner_is_killed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with (
            world.cluster.open_client("us-east", host="one", via="proxy") as log,
            log.open_writer(STREAM) as writer,
        ):
            await writer.append(b"known")
            pending = [writer.append_nowait(b"in flight %d" % number) for number in range(5)]
            await trio.testing.wait_all_tasks_blocked()
            await nursery.start(RunningProxy(world.cluster, "proxy-2", "eu-west").run)
            await first.kill()
            outcomes = []
            for one in pending:
                try:
                    await one.wait()
                    outcomes.append("appended")
                except geolog.GeologError as error:
                    outcomes.append(error.outcome)
            await writer.append(b"later")
            read = await values_of(world.log)
        nursery.cancel_scope.cancel(reason="the test is over")

    assert set(outcomes) <= {"appended", "unknown"}
    assert read[0] == b"known"
    assert read[-1] == b"later"
    assert len(read) - 2 >= outcomes.count("appended")


async def test_a_stream_of_several_partitions_is_written_through_several_proxies(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_proxy(world.cluster, "proxy-2", "eu-west"),
        world.cluster.open_client("us-east", host="one", via="proxy") as one,
        world.cluster.open_client("eu-west", host="two", via="proxy") as two,
    ):
        await world.log.create_stream("shop/wide", survive="1 region", partitions=4)
        async with two.open_writer("shop/wide#3") as writer:
            await writer.append(b"three")
        async with one.open_writer("shop/wide", writer_id="till-7") as writer:
            receipts = [
                await writer.append(b"v", key=b"key %d" % number) for number in range(40)
            ]
        described = await world.log.describe_stream("shop/wide")

    assert {receipt.partition for receipt in receipts} == {0, 1, 2, 3}
    owners = {partition.owner for partition in described.partition_list}
    assert owners == {"proxy proxy-1 in us-east", "proxy proxy-2 in eu-west"}


async def test_a_repeat_through_another_proxy_has_its_first_place(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
    ):
        async with log.open_writer(STREAM, writer_id="till-7") as writer:
            first = await writer.append(b"paid", seq=4)
        async with log.open_writer(STREAM, writer_id="till-7") as writer:
            again = await writer.append(b"paid", seq=4)
            with pytest.raises(geolog.ConflictError, match="different bytes"):
                await writer.append(b"unpaid", seq=4)
        read = await values_of(world.log)

    assert (again.sequence, again.duplicate) == (first.sequence, True)
    assert read == [b"paid"]


async def test_a_direct_writer_ends_the_proxied_ones_and_says_who_it_is(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
    ):
        with ended_by(geolog.FencedError) as ended:
            async with log.open_writer(STREAM, writer_id="till-7") as writer:
                await writer.append(b"by proxy")
                async with world.log.open_writer(STREAM) as direct:
                    await direct.append(b"direct")
                    await writer.append(b"too late")
        read = await values_of(world.log)

    assert "client writes shop/orders#0 directly" in str(ended.error)
    assert read == [b"by proxy", b"direct"]


async def test_a_writer_ends_when_its_stream_has_moved_to_another_home(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            with ended_by(geolog.FencedError) as ended:
                async with log.open_writer(STREAM, writer_id="till-7") as writer:
                    await writer.append(b"in the first home")
                    await move_home(world, 7)
                    await nursery.start(RunningProxy(world.cluster, "proxy-2", "us-east").run)
                    await first.drain()
                    await writer.append(b"in the second home")
            async with log.open_writer(STREAM, writer_id="till-7") as writer:
                receipt = await writer.append(b"in the second home")
        nursery.cancel_scope.cancel()

    assert "was failed over, in home epoch 7" in str(ended.error)
    assert (receipt.sequence, receipt.position.home_epoch) == (1, 7)


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.05])
async def test_a_named_writer_opens_while_its_proxy_drains(
    autojump_clock: MockClock, delay_s: float
) -> None:
    async with open_world() as world, trio.open_nursery() as nursery:
        first = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            async with log.open_writer(STREAM, writer_id="till-7") as writer:
                await writer.append(b"before")
            await nursery.start(RunningProxy(world.cluster, "proxy-2", "us-east").run)
            nursery.start_soon(first.drain)
            await trio.sleep(delay_s)
            async with log.open_writer(STREAM, writer_id="till-7") as writer:
                receipt = await writer.append(b"after")
        nursery.cancel_scope.cancel(reason="the test is over")

    assert receipt.sequence == 1


async def test_a_writer_that_is_given_up_while_it_opens_leaves_no_channel_behind(
    autojump_clock: MockClock,
) -> None:
    """A channel that nobody wants would keep the client's socket open while a proxy drains."""
    async with open_world() as world, trio.open_nursery() as nursery:
        network = world.cluster.network
        proxy = await nursery.start(RunningProxy(world.cluster, "proxy-1", "us-east").run)
        for node_id in world.cluster.nodes:
            network.cut("proxy-1", node_id)  # The partition's owner cannot open.
        async with world.cluster.open_client("us-east", host="one", via="proxy") as log:
            with trio.move_on_after(1.0) as scope:
                async with log.open_writer(STREAM):
                    pytest.fail("the partition has an owner")
            for node_id in world.cluster.nodes:
                network.mend("proxy-1", node_id)
            await trio.sleep(20.0)
            begun_s = trio.current_time()
            await proxy.drain()
            drain_s = trio.current_time() - begun_s

    assert scope.cancelled_caught
    assert drain_s < 0.5


async def test_a_proxy_that_does_not_know_the_placement_policy_says_so(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="own", placement=[LastRacks()]) as own,
        world.cluster.open_client("us-east", host="writer", via="proxy") as log,
    ):
        await own.create_stream("shop/own", policy="last_racks", ensemble_size=2)
        with ended_by(geolog.UnavailableError) as ended:
            async with log.open_writer("shop/own") as writer:
                await writer.append(b"a record")

    assert "does not know placement policy 'last_racks'" in str(ended.error)
    assert ended.error is not None
    assert ended.error.outcome == "refused"


async def test_a_writer_through_a_proxy_leaves_nothing_for_the_garbage_collector(
    autojump_clock: MockClock,
) -> None:
    async def append() -> None:
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"a")

    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
    ):
        await append()
        with only_collected() as found:
            await append()
            await trio.sleep(1)

    assert found == []
