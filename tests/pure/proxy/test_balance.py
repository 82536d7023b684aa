"""A proxy that joins gets partitions of the others, and no writer notices more than a pause."""

import trio
from trio.testing import MockClock

import geolog
from geolog.background import open_background
from tests.pure.proxy.running_proxies import RunningProxy
from tests.pure.whole.clusters import open_world

PARTITIONS_COUNT = 6
QUICK = {"balance_pause_s": 2.0}
BALANCED_S = 10.0


async def append_steadily(
    log: geolog.Log, number: int, *, to_end: trio.Event
) -> list[geolog.Receipt]:
    """Append without an id: an outcome that is unknown would end this."""
    receipts: list[geolog.Receipt] = []
    async with log.open_writer(f"shop/wide#{number}") as writer:
        while not to_end.is_set():
            receipts.append(await writer.append(b"%d" % len(receipts)))
            await trio.sleep(0.5)
    return receipts


async def read_all(log: geolog.Log, number: int) -> list[bytes]:
    async with log.open_reader(f"shop/wide#{number}") as reader:
        return [record.value async for record in reader]


async def test_partitions_move_to_a_proxy_that_joins_without_an_unknown_outcome(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_world() as world,
        world.cluster.open_client("us-east", host="one", via="proxy") as log,
        open_background() as nursery,
    ):
        await log.create_stream("shop/wide", survive="1 region", partitions=PARTITIONS_COUNT)
        first = await nursery.start(RunningProxy(world.cluster, "one", "us-east", **QUICK).run)
        to_end = trio.Event()
        receipts: dict[int, list[geolog.Receipt]] = {}

        async def append(number: int) -> None:
            receipts[number] = await append_steadily(log, number, to_end=to_end)

        async with trio.open_nursery() as writers:
            for number in range(PARTITIONS_COUNT):
                writers.start_soon(append, number)
            await trio.sleep(2.0)
            owned_alone = len(first.proxy.held)
            joined = [
                await nursery.start(RunningProxy(world.cluster, name, "us-east", **QUICK).run)
                for name in ("two", "three")
            ]
            far = RunningProxy(world.cluster, "far", "eu-west", **QUICK)
            elsewhere = await nursery.start(far.run)
            await trio.sleep(BALANCED_S)
            all_ = [first, *joined, elsewhere]
            balanced = [one.proxy.held.statistics() for one in all_]
            await trio.sleep(BALANCED_S)
            later = [one.proxy.held.statistics() for one in all_]
            to_end.set()
        read = {number: await read_all(world.log, number) for number in range(PARTITIONS_COUNT)}
        nursery.cancel_scope.cancel(reason="the test is over")

    owned = [one.owned_count for one in balanced]
    assert owned_alone == PARTITIONS_COUNT
    assert (owned[0], sum(owned[:3]), owned[3]) == (3, PARTITIONS_COUNT, 0)
    assert max(owned) == 3
    assert [one.handed_over_count for one in balanced] == [3, 0, 0, 0]
    assert later == balanced
    for number, got in receipts.items():
        assert [one.sequence for one in got] == list(range(len(got)))
        assert read[number] == [b"%d" % each for each in range(len(got))]
