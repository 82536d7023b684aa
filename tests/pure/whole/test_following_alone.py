"""A reader follows a stream without reaching metadata."""

import trio
from trio.testing import MockClock

import geolog
from geolog.ledger.reading.ledger_tail import TailConfig
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import REGIONS, STREAM, append_each, numbered
from tests.pure.whole.distant_metadata import DistantClient, open_distant_client

AWAY_S = 120.0


async def next_values(reader: geolog.Reader, count: int) -> list[bytes]:
    with trio.fail_after(5):
        return [(await anext(reader)).value for _ in range(count)]


def questions(client: DistantClient) -> int:
    return len(client.metadata.asked)


async def test_it_gets_records_and_hardly_asks_metadata(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east", host="near") as log,
        open_distant_client(cluster, is_read_nearby=True) as far,
    ):
        await log.create_stream(STREAM, survive="1 region")
        async with log.open_writer(STREAM) as writer:
            await append_each(writer, numbered(3))
            async with far.log.open_reader(STREAM, follow=True) as reader:
                assert await next_values(reader, 3) == numbered(3)
                session = far.metadata.behind
                session.cut_off()
                before = questions(far)

                for start in range(3, 15):
                    await trio.sleep(AWAY_S / 12)
                    await append_each(writer, numbered(1, start))
                    assert await next_values(reader, 1) == numbered(1, start)
                assert questions(far) - before <= 10


async def test_it_asks_at_once_when_metadata_is_back(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east", host="near") as log,
        open_distant_client(cluster, is_read_nearby=True) as far,
    ):
        await log.create_stream(STREAM, survive="1 region")
        async with far.log.open_reader(STREAM, follow=True) as reader:
            session = far.metadata.behind
            async with log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(3))
                assert await next_values(reader, 3) == numbered(3)
                session.cut_off()
            async with log.open_writer(STREAM) as writer:  # In another segment.
                await append_each(writer, numbered(3, 3))
                await trio.sleep(AWAY_S)
                session.restore()
                back_s = trio.current_time()

                assert await next_values(reader, 3) == numbered(3, 3)
                assert trio.current_time() - back_s < 1.0


async def test_far_from_metadata_it_follows_into_the_next_segment(
    autojump_clock: MockClock,
) -> None:
    """A metadata read takes longer than its wait at a storage node."""
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east", host="near") as log,
        open_distant_client(cluster, is_read_nearby=True) as far,
    ):
        await log.create_stream(STREAM, survive="1 region")
        async with far.log.open_reader(STREAM, follow=True) as reader:
            async with log.open_writer(STREAM) as writer:
                await append_each(writer, numbered(3))
                assert await next_values(reader, 3) == numbered(3)
                far.metadata.read_s = 3 * TailConfig().tick_s
            async with log.open_writer(STREAM) as writer:  # In another segment.
                await append_each(writer, numbered(3, 3))
                with trio.fail_after(10 * far.metadata.read_s):
                    assert [(await anext(reader)).value for _ in range(3)] == numbered(3, 3)
