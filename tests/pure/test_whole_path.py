"""The whole path in one process: it proves that the four seams hold a log."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.in_process import InProcessCluster, open_in_process_cluster

REGIONS = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}


async def append_all(log: geolog.Log, stream: str, values: list[bytes]) -> list[geolog.Receipt]:
    async with log.open_writer(stream) as writer:
        pending = [writer.append_nowait(value) for value in values]
        return [await one.wait() for one in pending]


async def read_all(log: geolog.Log, stream: str) -> list[geolog.Record]:
    async with log.open_reader(stream) as reader:
        return [record async for record in reader]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(start, start + count)]


async def test_records_of_a_lost_region_are_read_in_another(
    autojump_clock: MockClock,
) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client("us-east") as log:
            await log.create_stream("shop/orders", survive="1 region")
            receipts = await append_all(log, "shop/orders", numbered(500))
        await cluster.kill_region("us-east")

        async with cluster.open_client("ap-northeast") as log:
            records = await read_all(log, "shop/orders")

    assert [record.value for record in records] == numbered(500)
    assert [record.sequence for record in records] == list(range(500))
    assert [record.dlsn for record in records] == [receipt.dlsn for receipt in receipts]
    assert {record.served_region for record in records} == {"ap-northeast"}


async def test_a_writer_goes_on_when_a_region_dies_under_it(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await log.create_stream("shop/orders", survive="1 region")
        async with log.open_writer("shop/orders") as writer:
            for value in numbered(10):
                await writer.append(value)
            await cluster.kill_region("us-east")
            for value in numbered(10, start=10):
                await writer.append(value)

        assert [record.value for record in await read_all(log, "shop/orders")] == numbered(20)


async def test_a_second_writer_fences_the_first_and_goes_on_where_it_ended(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as first_log,
        cluster.open_client("eu-west") as second_log,
    ):
        await first_log.create_stream("shop/orders", survive="1 region")
        outcome = await _append_after_takeover(cluster, first_log, second_log)

        values = [record.value for record in await read_all(second_log, "shop/orders")]

    assert isinstance(outcome, geolog.FencedError | geolog.OutcomeUnknownError)
    assert values == [b"of the first", b"of the second"]


async def _append_after_takeover(
    cluster: InProcessCluster, first_log: geolog.Log, second_log: geolog.Log
) -> Exception | None:
    try:
        async with first_log.open_writer("shop/orders") as first:
            await first.append(b"of the first")
            async with second_log.open_writer("shop/orders") as second:
                await second.append(b"of the second")
            await first.append(b"too late")
    except geolog.GeologError as error:
        return error
    return None


async def test_a_restarted_region_takes_part_again(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await log.create_stream("shop/orders", survive="1 region")
        await append_all(log, "shop/orders", numbered(10))
        await cluster.kill_region("us-east")
        await trio.sleep(10)
        assert not (await log.health()).is_healthy
        await append_all(log, "shop/orders", numbered(10, start=10))
        await cluster.restart_region("us-east")
        await cluster.kill_region("ap-northeast")

        await append_all(log, "shop/orders", numbered(10, start=20))

        assert [record.value for record in await read_all(log, "shop/orders")] == numbered(30)


async def test_a_writer_leaves_a_ledger_that_would_not_survive_another_region(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 3, "eu-west": 3, "ap-northeast": 3}) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await log.create_stream("shop/orders", survive="1 region")
        await cluster.kill_region("us-east")
        await trio.sleep(10)
        async with log.open_writer("shop/orders") as writer:
            await writer.append(b"during")
            during = (await log.list_segments("shop/orders"))[-1].adherence
            await cluster.restart_region("us-east")
            await trio.sleep(30)
            after = (await log.list_segments("shop/orders"))[-1].adherence
            await writer.append(b"after")

        assert (during, after) == ("soft", "strict")
        assert [record.value for record in await read_all(log, "shop/orders")] == [
            b"during",
            b"after",
        ]


async def test_health_tells_of_a_dead_region_before_its_sessions_expire(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("eu-west") as log,
    ):
        await log.create_stream("shop/orders", survive="1 region")
        before = await log.health()
        await cluster.kill_region("us-east")
        after = await log.health()

    assert (before.is_healthy, before.regions_spare) == (True, 1)
    assert (after.is_healthy, after.regions_spare) == (False, 0)


async def test_outside_of_its_block_everything_is_closed(autojump_clock: MockClock) -> None:
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client("us-east") as log:
            await log.create_stream("shop/orders", survive="1 region")
            async with log.open_writer("shop/orders", writer_id="till-7") as writer:
                await writer.append(b"one", seq=0)
                await writer.append(b"two", seq=1)
            async with log.open_reader("shop/orders") as reader:
                assert (await anext(reader)).value == b"one"

            with pytest.raises(geolog.ClosedError, match="reader of shop/orders#0 is closed"):
                await anext(reader)
            with pytest.raises(geolog.ClosedError, match="writer is closed") as again:
                await writer.append(b"two", seq=1)
            with pytest.raises(geolog.ClosedError) as new:
                await writer.append(b"three")
            with pytest.raises(geolog.ClosedError):
                await writer.flush()
        with pytest.raises(geolog.ClosedError, match="log is closed"):
            await log.describe_stream("shop/orders")

    assert (again.value.outcome, new.value.outcome) == ("unknown", "refused")
