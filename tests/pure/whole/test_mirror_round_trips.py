"""Sequential metadata round trips until a mirror can go on, which dominate a takeover afar."""

from trio.testing import MockClock

import geolog
from geolog.protocol.stream_state import PartitionName, StreamRecord
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import ended_by, numbered
from tests.pure.whole.distant_metadata import DistantClient, open_distant_client
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    Durable,
    StoredEntry,
    create,
    entries_of,
    home_of,
    mirror_of,
    record_of,
    relayed,
)
from tests.pure.whole.test_opening_round_trips import near_and_far


@near_and_far
async def test_taking_over_a_mirror_whose_owner_died(
    autojump_clock: MockClock, *, is_read_nearby: bool
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as home,
        open_distant_client(cluster, is_read_nearby=is_read_nearby, region=TARGET) as far,
    ):
        await create(home)
        async with home.open_writer(STREAM) as writer:
            for value in numbered(6):
                await writer.append(value)
        record, name = await record_of(home), await mirror_of(home)
        entries = await entries_of(home, await home_of(home))
        async with cluster.open_client(TARGET, host="died") as died:
            opening = died.partition_opener.open_mirror(record, name, Durable())
            with ended_by(geolog.FencedError):
                async with opening as mirror:
                    *some, late = relayed(entries, behind=None)[:5]
                    for entry in some:
                        mirror.push(entry)
                    await mirror.wait_durable()
                    await _take_over(far, record, name, entries, is_read_nearby=is_read_nearby)
                    mirror.push(late)


async def _take_over(
    far: DistantClient,
    record: StreamRecord,
    name: PartitionName,
    entries: list[StoredEntry],
    *,
    is_read_nearby: bool,
) -> None:
    count = far.count()
    async with far.log.partition_opener.open_mirror(record, name, Durable()) as mirror:
        # The owner's record and claim, the ledger's epoch and end, the row's end. Once claimed,
        # it looks whether somebody has begun it again, and not dropped all of its rows.
        assert count.trips == (5 if is_read_nearby else 15)
        for entry in relayed(entries, behind=mirror.watermark):
            mirror.push(entry)
        await mirror.wait_durable()
        # Another ledger is made, and listed.
        assert count.trips == (7 if is_read_nearby else 20)
