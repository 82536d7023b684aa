"""Where the records between two positions lie: what the planner of a divided read asks."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.read_ranges import SequenceSpan
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import append_each, numbered

STREAM = "shop/orders"
REGIONS = {"us-east": 4}


async def test_spans_reach_from_what_is_left_to_the_current_end(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, survive="1 node", partitions=2)
        async with log.open_writer(f"{STREAM}#1") as writer:
            await append_each(writer, numbered(20))
        await log.truncate_stream(f"{STREAM}#1", before=geolog.AtSequence(3))

        _, spans = await log.spans_between(STREAM)
        _, rest = await log.spans_between(STREAM, start=geolog.LATEST)
        _, last = await log.spans_between(STREAM, start=geolog.LastRecords(5))
        _, trimmed = await log.spans_between(f"{STREAM}#1", start=geolog.AtSequence(0))
        _, inner = await log.spans_between(
            f"{STREAM}#1", start=geolog.AtSequence(4), stop=geolog.AtSequence(9)
        )

    assert spans == [SequenceSpan(STREAM, 0, 0, 0), SequenceSpan(STREAM, 1, 3, 20)]
    assert [len(span) for span in rest] == [0, 0]
    assert last[1] == SequenceSpan(STREAM, 1, 15, 20)
    assert trimmed == [SequenceSpan(STREAM, 1, 0, 20)]
    assert inner == [SequenceSpan(STREAM, 1, 4, 9)]


async def test_a_stream_made_again_under_its_name_is_another(autojump_clock: MockClock) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, survive="1 node")
        before, _ = await log.spans_between(STREAM)
        await log.delete_stream(STREAM)
        with pytest.raises(geolog.NoSuchStreamError):
            await log.spans_between(STREAM)
        await trio.sleep(0.001)  # The clock of these tests stands still otherwise.
        await log.create_stream(STREAM, survive="1 node")
        after, _ = await log.spans_between(STREAM)

    assert before != after


@pytest.mark.parametrize(
    ("target", "start", "stop", "message"),
    [
        (STREAM, geolog.AtSequence(1), None, "name one of them"),
        (STREAM, geolog.EARLIEST, geolog.AtSequence(1), "name one of them"),
        (f"{STREAM}#0", geolog.AtSequence(1), None, "beyond the end"),
        (f"{STREAM}#0", geolog.EARLIEST, geolog.AtSequence(1), "beyond the end"),
        (f"{STREAM}#0", geolog.LATEST, geolog.EARLIEST, "swap the two"),
    ],
)
async def test_positions_that_cannot_be_are_refused(
    target: str,
    start: geolog.Bound,
    stop: geolog.Bound | None,
    message: str,
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, survive="1 node", partitions=2)
        with pytest.raises(geolog.InvalidArgumentError, match=message):
            await log.spans_between(target, start=start, stop=stop)


async def test_one_read_of_metadata_tells_the_life_of_a_stream(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(STREAM, survive="1 node", partitions=20)

        created_us, spans = await log.spans_between(STREAM)

        assert [span.partition for span in spans] == list(range(20))
        assert await log.stream_created_us(STREAM) == created_us
        with pytest.raises(geolog.NoSuchStreamError):
            await log.stream_created_us("shop/order")
