"""A log that knows write proxies but no ZooKeeper appends and reads, and refuses the rest."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.client.proxied_log import ProxiedLog, open_proxied_log
from geolog.transport.seam import Address
from tests.pure.proxy.proxies import PORT, open_proxy
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import STREAM, World, ended_by, numbered, open_world


@asynccontextmanager
async def open_without_zookeeper(world: World, *proxies: str) -> AsyncIterator[ProxiedLog]:
    async with open_proxied_log(
        [Address(one, PORT) for one in proxies],
        transport=world.cluster.network.transport("application"),
        cluster="default",
        region="us-east",
        rng=random.Random(1),
        now_us=world.cluster.now_us,
    ) as log:
        yield log


async def test_records_are_appended_and_read_through_proxies_alone(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        async with log.open_writer(STREAM, writer_id="till-7") as writer:
            receipt = await writer.append(
                b"paid", key=b"42", headers={"from": b"till"}, transaction_id=7
            )
        async with log.open_reader(STREAM) as reader:
            (record,) = [one async for one in reader]
        async with world.log.open_reader(STREAM) as reader:
            (direct,) = [one async for one in reader]

    assert record.dlsn == receipt.dlsn == direct.dlsn
    for name in (
        *("stream", "partition", "epoch", "sequence", "transaction_id", "timestamp_us"),
        *("key", "value", "headers", "served_region"),
    ):
        assert getattr(record, name) == getattr(direct, name), name


async def test_more_records_than_the_credit_are_read_in_order(
    autojump_clock: MockClock,
) -> None:
    values = numbered(1_000)
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        async with log.open_writer(STREAM) as writer:
            for value in values:
                await writer.post(value)
        async with log.open_reader(STREAM) as reader:
            read = [one.value async for one in reader]
        async with log.open_reader(STREAM, start=geolog.AtSequence(990)) as reader:
            last = [one.value async for one in reader]

    assert read == values
    assert last == values[990:]


async def test_a_follower_goes_on_at_another_proxy_when_its_own_dies(
    autojump_clock: MockClock,
) -> None:
    values = numbered(40)
    async with open_world() as world, trio.open_nursery() as nursery:
        proxies = [
            await nursery.start(RunningProxy(world.cluster, name, "us-east").run)
            for name in ("proxy-1", "proxy-2")
        ]
        async with (
            open_without_zookeeper(world, "proxy-1", "proxy-2") as log,
            log.open_reader(STREAM, follow=True) as reader,
            log.open_writer(STREAM, writer_id="one") as writer,
        ):
            read = []
            for number, value in enumerate(values):
                if number == 20:
                    await proxies[0].kill()
                await writer.append(value)
                read.append((await anext(reader)).value)
        nursery.cancel_scope.cancel()

    assert read == values


async def test_a_gap_and_the_errors_of_a_read_come_through_a_proxy(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        async with log.open_writer(STREAM) as writer:
            for value in numbered(10):
                await writer.append(value)
        await world.log.truncate_stream(STREAM, before=geolog.AtSequence(4))
        async with log.open_reader(STREAM, start=geolog.AtSequence(0)) as reader:
            first, *rest = [item async for item in reader.items()]
        with ended_by(geolog.InvalidArgumentError) as ended:
            async with log.open_reader(STREAM, start=geolog.AtSequence(11)) as reader:
                await anext(reader)
        with pytest.raises(geolog.NoSuchStreamError):
            async with log.open_reader("shop/other"):
                pass

    assert isinstance(first, geolog.Gap)
    assert (first.from_sequence, first.to_sequence) == (0, 4)
    assert len(rest) == 6
    assert "the next sequence" in str(ended.error)


async def test_a_stream_of_several_partitions_is_written_and_read(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        open_proxy(world.cluster, "proxy-1", "us-east"),
        open_without_zookeeper(world, "proxy-1") as log,
    ):
        await world.log.create_stream("shop/clicks", partitions=3)
        async with log.open_writer("shop/clicks") as writer:
            for value in numbered(30):
                await writer.append(value, key=value)
        async with log.open_reader("shop/clicks") as reader:
            read = [one.value async for one in reader]
        with pytest.raises(geolog.InvalidArgumentError, match="name one of them"):
            async with log.open_reader("shop/clicks", start=geolog.AtSequence(0)):
                pass
        with pytest.raises(geolog.InvalidArgumentError, match="0 to 2"):
            async with log.open_reader("shop/clicks#3"):
                pass

    assert sorted(read) == sorted(numbered(30))


async def test_all_other_calls_say_that_they_need_zookeeper(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_without_zookeeper(world, "proxy-1") as log:
        for call in (log.list_streams, log.health, log.list_nodes):
            with pytest.raises(geolog.InvalidArgumentError, match="needs ZooKeeper"):
                await call()
        with pytest.raises(geolog.InvalidArgumentError, match="needs ZooKeeper"):
            await log.create_stream("shop/orders")


async def test_the_proxies_that_did_not_answer_are_named(autojump_clock: MockClock) -> None:
    async with open_world() as world, open_without_zookeeper(world, "gone-1", "gone-2") as log:
        with pytest.raises(geolog.UnavailableError, match=r"gone-[12]:7000, gone-[12]:7000"):
            async with log.open_writer(STREAM):
                pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"proxies": "here:1", "via": "direct"}, "needs ZooKeeper"),
        ({"proxies": "here"}, "'here' is not an address"),
        ({"proxies": ["here:1", ""]}, "'' is not an address"),
    ],
    ids=["direct", "no port", "empty"],
)
async def test_wrong_ways_to_connect_are_refused(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(geolog.InvalidArgumentError, match=message):
        async with geolog.connect(**arguments):  # type: ignore[arg-type]
            pass
