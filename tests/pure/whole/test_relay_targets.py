"""Targets of a `regional` stream: their mirrors are made, grown and deleted with the stream."""

import attrs
import pytest
from trio.testing import MockClock

import geolog
from geolog.catalog.stream_catalog import StreamCatalog
from geolog.metadata.documents import seal_document
from geolog.metadata.seam import Delete, Put
from geolog.protocol.home_record import HomeRecord, HomeState
from geolog.protocol.stream_state import PartitionName, StreamName, StreamRecord
from sim.in_process import open_in_process_cluster
from tests.pure.proxy.proxies import open_proxy, open_session
from tests.pure.whole.clusters import ended_by

STREAM = "shop/carts"
REGIONS = {"us-east": 3, "eu-west": 3, "ap-northeast": 3, "small": 1}


async def create(log: geolog.Log, *targets: str, partitions: int = 1) -> None:
    await log.create_stream(
        STREAM, mode="regional", home="us-east", relay_to=targets, partitions=partitions
    )


async def record_of(log: geolog.Log) -> StreamRecord:
    catalog = StreamCatalog(log.access.metadata, log.access.paths)
    return await catalog.read_latest(StreamName.parse(STREAM))


async def logs_made(log: geolog.Log, record: StreamRecord) -> list[str]:
    """The logs of the stream that metadata has, by number and place."""
    stream = log.access.paths.stream(record.name)
    children = await log.access.metadata.children(stream)
    return sorted(
        one.removesuffix(f"-{record.life}") for one in children if not one.startswith("life-")
    )


async def change_home(
    log: geolog.Log,
    *,
    region: str = "us-east",
    home_epoch: int = 1,
    state: HomeState = HomeState.SETTLED,
) -> None:
    record = await record_of(log)
    path = log.access.paths.home(record.name, record.life)
    stored = await log.access.metadata.find(path)
    assert stored is not None
    home = HomeRecord(region=region, home_epoch=home_epoch, state=state)
    await log.access.metadata.put(path, seal_document(home), stored.version)


async def test_each_partition_gets_a_mirror_in_each_target(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log, "eu-west", "ap-northeast", partitions=2)
        described = await log.describe_stream(STREAM)
        made = await logs_made(log, await record_of(log))

    assert described.relay_to == ["ap-northeast", "eu-west"]
    assert made == [
        *("mirror-ap-northeast-0", "mirror-ap-northeast-1"),
        *("mirror-eu-west-0", "mirror-eu-west-1"),
        *("partition-0", "partition-1"),
    ]


async def test_targets_that_cannot_be_are_refused_with_the_reason(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match="'mars' is not a region"):
            await create(log, "eu-west", "mars")
        with pytest.raises(geolog.InvalidArgumentError, match="us-east is the home"):
            await create(log, "us-east")
        with pytest.raises(geolog.NotEnoughNodesError, match="small cannot hold a mirror"):
            await create(log, "small")
        with pytest.raises(geolog.InvalidArgumentError, match="'global' is not relayed: its"):
            await log.create_stream(STREAM, survive="1 node", relay_to=["eu-west"])
        assert await log.list_streams() == []

        await create(log, "eu-west")
        with pytest.raises(geolog.InvalidArgumentError, match="us-east is the home"):
            await log.update_stream(STREAM, relay_to=["us-east"])
        with pytest.raises(geolog.NotEnoughNodesError, match="small cannot hold a mirror"):
            await log.update_stream(STREAM, relay_to=["small"])
        assert (await log.describe_stream(STREAM)).relay_to == ["eu-west"]


async def test_mirrors_come_and_go_with_partitions_and_targets(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log, "eu-west")
        await log.update_stream(STREAM, partitions=2)
        grown = await logs_made(log, await record_of(log))
        await log.update_stream(STREAM, relay_to=["ap-northeast"])
        moved = await logs_made(log, await record_of(log))
        await log.update_stream(STREAM, relay_to=["ap-northeast", "eu-west"])
        back = await record_of(log)
        owners = [
            (await log.access.partitions.owners.read(one)).record for one in back.log_names()
        ]
        record = await record_of(log)
        await log.delete_stream(STREAM)
        left = await log.access.metadata.children(log.access.paths.namespace("shop"))

    at_home = ["partition-0", "partition-1"]
    assert grown == ["mirror-eu-west-0", "mirror-eu-west-1", *at_home]
    assert moved == ["mirror-ap-northeast-0", "mirror-ap-northeast-1", *at_home]
    assert len(owners) == 6
    assert not any(owner.is_deleted for owner in owners)
    assert len(record.log_names()) == 6
    assert left == []


async def test_a_target_whose_deletion_was_interrupted_can_be_added_again(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log, "eu-west")
        mirror = (await record_of(log)).log_in("eu-west", 0)
        catalog = StreamCatalog(log.access.metadata, log.access.paths)
        await catalog.change(mirror.stream, lambda found: attrs.evolve(found, relay_to=()))
        await log.access.metadata.multi([Delete(log.access.paths.owner(mirror))])
        await log.update_stream(STREAM, relay_to=["eu-west"])
        owner = (await log.access.partitions.owners.read_latest(mirror)).record

    assert not owner.is_deleted


async def test_targets_may_change_while_another_process_adds_a_partition(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log, "eu-west")
        before = await record_of(log)
        await log.update_stream(STREAM, partitions=2)
        grown = await record_of(log)
        path = log.access.paths.stream(before.name)
        # The other process has made the logs, and has not counted them yet.
        version = (await log.access.metadata.get(path)).version
        await log.access.metadata.multi([Put(path, seal_document(before), version)])
        await log.update_stream(STREAM, relay_to=["eu-west"])
        made = await logs_made(log, before)

    assert len(made) == len(grown.log_names()) == 4


async def test_an_append_sent_to_a_target_goes_to_the_home(autojump_clock: MockClock) -> None:
    append = f"/v1/streams/{STREAM}/append"
    async with open_in_process_cluster(REGIONS) as cluster:
        async with cluster.open_client("us-east") as log:
            await create(log, "eu-west")
        async with (
            open_proxy(cluster, "near", "eu-west") as near,
            open_proxy(cluster, "home", "us-east") as home,
            open_session(cluster, near, append) as client,
        ):
            moved = await client.receive()
        async with cluster.open_client("eu-west") as log:
            with ended_by(geolog.InvalidArgumentError) as ended:
                async with log.open_writer(STREAM):
                    pass

    assert (moved["code"], moved["location"]) == (302, f"ws://{home.address}{append}")
    assert "can be owned in its home us-east alone" in str(ended.error)


async def test_the_name_of_a_mirror_says_its_region() -> None:
    at_home = PartitionName(StreamName.parse(STREAM), 3, "1")

    assert str(attrs.evolve(at_home, region="eu-west")) == "shop/carts#3@eu-west"


async def test_an_owner_whose_home_was_moved_away_lists_no_further_segment(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log, "eu-west")
        with ended_by(geolog.FencedError) as ended:
            async with log.open_writer(STREAM) as writer:
                await writer.append(b"v")
            await change_home(log, home_epoch=2, region="eu-west")
            async with log.open_writer(STREAM) as writer:
                await writer.append(b"w")
        segments = await log.list_segments(STREAM)

    assert "eu-west now, in home epoch 2" in str(ended.error)
    assert len(segments) == 1


async def test_while_the_home_moves_no_segment_begins(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log)
        await change_home(log, state=HomeState.MOVING)
        with ended_by(geolog.FencedError) as ended:
            async with log.open_writer(STREAM):
                pass

    assert "moving from us-east" in str(ended.error)


async def test_an_owner_goes_on_if_a_move_of_its_home_was_given_up(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await create(log)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"v")
            for state in (HomeState.MOVING, HomeState.SETTLED):
                await change_home(log, state=state)
        async with log.open_writer(STREAM) as writer:
            await writer.append(b"w")
            await change_home(log, state=HomeState.SETTLED)
            firsts = await log.truncate_stream(STREAM, before=geolog.AtSequence(1))
            grown = await log.update_stream(STREAM, partitions=2)
        segments = await log.list_segments(STREAM)

    assert firsts == {0: 1}
    assert grown.partitions == 2
    assert [one.last_sequence for one in segments if one.last_sequence is not None][-1] == 1
