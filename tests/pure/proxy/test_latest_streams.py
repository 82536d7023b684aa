"""Streams as they are now: one read answers all who asked before it began, and nobody else."""

import pytest
import trio
from trio.testing import MockClock

from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from regions.proxy.latest_streams import LatestStreams
from topology.errors import NoSuchStreamError
from topology.quorum import QuorumConfig

NAME = StreamName("shop", "orders")


class Catalog:
    """A catalog whose reads take a second; the count of partitions rises with each change."""

    def __init__(self) -> None:
        self.partitions = 1
        self.reads_count = 0

    async def read(self, name: StreamName) -> StreamRecord:
        self.reads_count += 1
        partitions = self.partitions
        await trio.sleep(1)
        if name != NAME:
            raise NoSuchStreamError(f"{name} does not exist")
        return StreamRecord(
            name=name,
            life="1",
            mode=StreamMode.GLOBAL,
            quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2),
            partitions=partitions,
            segment_bytes=1 << 20,
            retention_s=None,
            created_us=0,
        )


async def test_many_who_ask_at_a_time_cost_one_read(autojump_clock: MockClock) -> None:
    catalog, found = Catalog(), list[int]()
    streams = LatestStreams(catalog.read)

    async def ask(after_s: float) -> None:
        await trio.sleep(after_s)
        found.append((await streams.read(NAME)).partitions)

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask, 0)
        await trio.sleep(0.4)
        catalog.partitions = 2
        for _ in range(50):
            nursery.start_soon(ask, 0.1)

    assert catalog.reads_count == 2
    assert sorted(found) == 50 * [1] + 50 * [2]
    assert repr(streams) == "LatestStreams(0 asked for)"


async def test_a_question_after_a_change_sees_it(autojump_clock: MockClock) -> None:
    catalog, found = Catalog(), list[tuple[int, int]]()
    streams = LatestStreams(catalog.read)

    async def ask() -> None:
        changed = catalog.partitions
        found.append((changed, (await streams.read(NAME)).partitions))

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(ask)
            await trio.sleep(0.3)
            catalog.partitions += 1

    assert len(found) == 30
    assert all(read >= changed for changed, read in found)


async def test_a_read_that_fails_or_is_given_up_spoils_no_other(
    autojump_clock: MockClock,
) -> None:
    catalog = Catalog()
    streams = LatestStreams(catalog.read)
    found: list[StreamRecord] = []

    async def ask() -> None:
        found.append(await streams.read(NAME))

    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            nursery.start_soon(ask)
            await streams.read(NAME)
    with pytest.raises(NoSuchStreamError):
        await streams.read(StreamName("shop", "nothing"))

    assert [one.name for one in found] == [NAME]
    assert repr(streams) == "LatestStreams(0 asked for)"


async def test_many_who_ask_for_a_stream_that_is_missing_are_told_at_once(
    autojump_clock: MockClock,
) -> None:
    catalog, errors = Catalog(), list[NoSuchStreamError]()
    streams = LatestStreams(catalog.read)

    async def ask(after_s: float) -> None:
        await trio.sleep(after_s)
        with pytest.raises(NoSuchStreamError) as told:
            await streams.read(StreamName("shop", "nothing"))
        errors.append(told.value)

    with trio.fail_after(2.5):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, 0.5 * (number % 2))

    assert catalog.reads_count == 2
    assert {str(one) for one in errors} == {"shop/nothing does not exist"}
    assert len({id(one) for one in errors}) == 20
