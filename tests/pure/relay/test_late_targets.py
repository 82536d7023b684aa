"""Targets that come and go while a stream is written and relayed; and where they begin."""

import pytest
import trio
from trio.testing import MockClock

import geolog
from sim.in_process import open_in_process_cluster
from tests.pure.relay.test_bridges import open_home, open_target, wait_equal
from tests.pure.whole.clusters import append_each
from tests.pure.whole.mirroring import (
    HOME,
    REGIONS,
    STREAM,
    TARGET,
    create,
    entries_of,
    home_of,
    mirror_of,
    rows_of,
)

SMALL = 64 << 10


async def write_segments(log: geolog.Log, *, first: int = 0, count: int = 4) -> None:
    """Append three records and roll, `count` times."""
    for number in range(first, first + count):
        async with log.open_writer(STREAM, writer_id="till") as writer:
            await append_each(writer, [b"%d-%d" % (number, n) for n in range(3)])


async def wait_mirrored(log: geolog.Log, first_sequence: int) -> list[bytes]:
    """Wait until the mirror has all of the home's entries from there on; its entries."""
    home = await entries_of(log, await home_of(log))
    wanted = [one.data for one in home if one.row.first_sequence >= first_sequence]
    with trio.fail_after(60):
        while True:
            found = [one.data for one in await entries_of(log, await mirror_of(log))]
            if found == wanted:
                return found
            await trio.sleep(0.1)


async def values_from(
    log: geolog.Log, start: geolog.Bound, *, count: int
) -> list[tuple[bytes, str | None]]:
    found = []
    async with log.open_reader(STREAM, start=start) as reader:
        async for record in reader:
            found.append((record.value, record.origin))
            if len(found) == count:
                break
    return found


async def test_targets_come_and_go_while_the_stream_is_written_and_relayed(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log, segment_bytes=SMALL)
        async with log.open_writer(STREAM, writer_id="till") as writer:
            for number in range(6):
                await append_each(writer, [bytes([number]) * 20_000 for _ in range(3)])
                targets = [] if number % 2 == 0 else [TARGET]
                await log.update_stream(STREAM, relay_to=targets)
                if targets:
                    await wait_equal(log)
        await wait_equal(log)

        assert [bridge.alarms for bridge in home.served] == [[]]


@pytest.mark.parametrize(
    ("start", "first_sequence"),
    [
        (geolog.EARLIEST, 0),
        (geolog.LATEST, 9),
        (geolog.AtSequence(7), 6),
        (geolog.AtDlsn(geolog.DLSN.parse("2-1-0")), 3),
        (geolog.LastRecords(2), 9),
    ],
)
async def test_a_new_target_begins_with_the_segment_that_has_the_position(
    autojump_clock: MockClock, start: geolog.Bound, first_sequence: int
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        open_home(cluster) as home,
        open_target(cluster),
    ):
        await create(log, segment_bytes=SMALL)
        await log.update_stream(STREAM, relay_to=[])
        await write_segments(log)
        await log.update_stream(STREAM, relay_to=[TARGET], relay_from=start)
        await write_segments(log, first=4, count=2)
        await wait_mirrored(log, first_sequence)
        rows = await rows_of(log, await mirror_of(log))
        verified = await log.verify_stream(STREAM)

        assert rows[0].first_sequence == first_sequence
        assert (verified.mirrors_unequal, verified.is_good) == (0, True)
        assert [bridge.alarms for bridge in home.served] == [[]]


async def test_reads_that_begin_before_a_mirror_are_read_at_home(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
        cluster.open_client(TARGET) as far,
        open_home(cluster),
        open_target(cluster),
    ):
        await create(log, segment_bytes=SMALL)
        await log.update_stream(STREAM, relay_to=[])
        await write_segments(log, count=3)
        await log.update_stream(STREAM, relay_to=[TARGET], relay_from=geolog.AtSequence(6))
        await write_segments(log, first=3, count=1)
        await wait_mirrored(log, 6)
        reads = {
            start: await values_from(far, start, count=1)
            for start in (
                geolog.EARLIEST,
                geolog.AtSequence(5),
                geolog.AtSequence(6),
                geolog.AtDlsn(geolog.DLSN.parse("2-0-0")),
                geolog.AtDlsn(geolog.DLSN.parse("3-0-0")),
            )
        }

    assert list(reads.values()) == [
        [(b"0-0", None)],
        [(b"1-2", None)],
        [(b"2-0", HOME)],
        [(b"1-0", None)],
        [(b"2-0", HOME)],
    ]


async def test_positions_at_which_no_mirror_can_begin_are_refused(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster(REGIONS) as cluster,
        cluster.open_client(HOME) as log,
    ):
        with pytest.raises(geolog.InvalidArgumentError, match="a new stream begin with its"):
            await log.create_stream(
                STREAM,
                mode="regional",
                home=HOME,
                relay_to=[TARGET],
                relay_from=geolog.AtSequence(5),
            )
        assert await log.list_streams() == []
        await create(log)
        with pytest.raises(geolog.InvalidArgumentError, match="no target is given"):
            await log.update_stream(STREAM, relay_from=geolog.LATEST)
        await log.update_stream(STREAM, relay_to=[])
        with pytest.raises(geolog.InvalidArgumentError, match="beyond the end"):
            await log.update_stream(STREAM, relay_to=[TARGET], relay_from=geolog.AtSequence(5))
        assert (await log.describe_stream(STREAM)).relay_to == []
