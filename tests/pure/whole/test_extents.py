"""Questions of a program that keeps its own positions: how far to read, where it stands."""

import pytest
from trio.testing import MockClock

import geolog
from geolog.catalog.cursors import CursorHeldError
from geolog.protocol.ids import Position
from sim.in_process import open_in_process_cluster
from tests.pure.whole.clusters import append_each, numbered
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import append, open_site, relay

ORDERS = "shop/orders"


async def test_extents_tell_what_is_left_what_waits_and_new_partitions(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 4}) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(ORDERS, survive="1 node")
        async with log.open_writer(ORDERS) as writer:
            await append_each(writer, numbered(20))
        await log.truncate_stream(ORDERS, before=geolog.AtSequence(3))
        await log.update_stream(ORDERS, partitions=2)

        fresh = await log.extents_from(ORDERS, {})
        half = await log.extents_from(ORDERS, {0: Position(1, 10)}, bytes_too=True)
        whole = await log.extents_from(f"{ORDERS}#0", {0: Position(1, 3)}, bytes_too=True)

    assert {key: (one.first, one.end) for key, one in fresh.items()} == {0: (3, 20), 1: (0, 0)}
    assert fresh[0].position == Position(1, 3)
    assert half[0].position == Position(1, 10)
    assert whole.keys() == {0}
    assert 0 < half[0].waiting_bytes < whole[0].waiting_bytes
    assert half[1].waiting_bytes == 0


async def test_a_position_in_a_dead_branch_is_told_with_where_the_log_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await append(site.east, range(10))
        await relay(site.west, 4)
        await site.cluster.kill_region(HOME)
        await site.west.failover(STREAM, to=TARGET)
        await append(site.west, range(20, 23))

        ahead = await site.west.extents_from(STREAM, {0: Position(1, 7)})
        behind = await site.west.extents_from(STREAM, {0: Position(1, 4)})

    assert (ahead[0].position, ahead[0].diverged_to) == (Position(2, 4), 7)
    assert (behind[0].position, behind[0].diverged_to) == (Position(2, 4), None)
    assert (ahead[0].end, behind[0].end) == (7, 7)


async def test_a_cursor_shows_positions_that_are_kept_elsewhere(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_in_process_cluster({"us-east": 4}) as cluster,
        cluster.open_client("us-east") as log,
    ):
        await log.create_stream(ORDERS, survive="1 node", partitions=2)
        async with log.open_writer(f"{ORDERS}#1") as writer:
            await append_each(writer, numbered(20))

        await log.commit_cursor(ORDERS, "query", {1: Position(1, 15)})
        await log.commit_cursor(ORDERS, "query", {0: Position(1, 0), 1: Position(1, 12)})
        shown = await log.describe_cursor(ORDERS, "query")
        async with log.open_reader(ORDERS, cursor="query"):
            with pytest.raises(CursorHeldError):
                await log.commit_cursor(ORDERS, "query", {1: Position(1, 18)})

    assert [one.sequence for one in shown.partition_list] == [0, 15]
    assert shown.lag_records == 5
