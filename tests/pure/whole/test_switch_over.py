"""The home of a stream moves by plan, in one process: nothing is lost, and nothing is twice.

Owners, proxies, relays, mirrors and nodes are the real ones; network, disks and metadata are in
memory.
"""

import trio
from trio.testing import MockClock

import geolog
from geolog import Record
from sim.in_process import open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy
from tests.pure.relay.test_relay_groups import open_groups
from tests.pure.whole.mirroring import HOME, REGIONS, STREAM, TARGET, create


async def read_all(log: geolog.Log, count: int) -> list[Record]:
    """The first `count` records, by a reader that waits for them."""
    found: list[Record] = []
    with trio.fail_after(60):
        async with log.open_reader(STREAM, follow=True) as reader:
            async for record in reader:
                found.append(record)
                if len(found) == count:
                    break
    return found


async def test_a_home_moves_and_comes_back_with_every_record_once(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        open_groups(cluster),
        open_proxy(cluster, "east", HOME),
        open_proxy(cluster, "west", TARGET),
        cluster.open_client(HOME, host="writer", via="proxy") as east,
        cluster.open_client(TARGET) as west,
    ):
        await create(east)
        async with east.open_writer(STREAM, writer_id="w") as writer:
            for number in range(5):
                await writer.append(b"%d" % number, seq=number)
            moved = await west.switch_over(STREAM, to=TARGET)
            for number in range(4, 10):
                await writer.append(b"%d" % number, seq=number)
            back = await west.switch_over(STREAM, to=HOME)
            for number in range(9, 15):
                await writer.append(b"%d" % number, seq=number)
        found = {region.region: await read_all(region, 15) for region in (east, west)}

    assert (moved.home, moved.home_epoch) == (TARGET, 2)
    assert (back.home, back.home_epoch) == (HOME, 3)
    for records in found.values():
        assert [one.value for one in records] == [b"%d" % number for number in range(15)]
        assert [one.sequence for one in records] == list(range(15))
        assert [one.epoch for one in records] == [1] * 5 + [2] * 5 + [3] * 5
        segments = [one.dlsn.segment for one in records]
        assert segments == sorted(segments)
