"""A sink's stream is failed over: between two batches, and while one is copied."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from geolog.client.staging.sink_commit import UNREAD_AGAIN_S_MAX, UNREAD_S_MAX
from geolog.protocol.sink_copy import StagedBatch, StagedPart
from tests.pure.whole import test_sinks
from tests.pure.whole.mirroring import HOME, STREAM, TARGET
from tests.pure.whole.test_failover import Site, open_site, relay
from tests.pure.whole.test_sinks import Driver, rows_of
from tests.pure.whole.test_sinks_of_streams import KilledCommit
from topology.errors import UnavailableError


async def lose_home(site: Site) -> Driver:
    """Fail the stream over; the driver that goes on is in the new home."""
    await site.cluster.kill_region(HOME)
    await site.west.failover(STREAM, to=TARGET)
    return Driver(site.west, "driver-2")


async def leave_unfinished(
    site: Site, *values: str, streams: Sequence[str] = (STREAM,)
) -> None:
    """Record a batch whose driver is killed before it copies anything."""
    driver = Driver(site.east)
    parts = await stage_into(driver, streams, *values)
    commit = KilledCommit(site.east, test_sinks.SINK)
    commit.before = STREAM
    with pytest.raises(ZeroDivisionError):
        await commit.commit(StagedBatch(1, tuple(parts), "killed", driver.name, "one"))


async def stage_into(driver: Driver, streams: Sequence[str], *values: str) -> list[StagedPart]:
    """Stage these rows for each of the streams."""
    return [await driver.stage(rows_of(*values), batch=1, stream=stream) for stream in streams]


async def test_rows_of_a_finished_batch_that_diverged_are_not_written_again(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        before = Driver(site.east)
        await before.commit(0, await before.stage(rows_of("a", "b"), stream=STREAM))
        await relay(site.west)
        rows = await before.stage(rows_of("c"), batch=1, stream=STREAM)
        await before.commit(1, rows)
        after = await lose_home(site)
        rows = await after.stage(rows_of("c"), batch=1, stream=STREAM)
        await after.commit(1, rows)
        rows = await after.stage(rows_of("d"), batch=2, stream=STREAM)
        await after.commit(2, rows)

        assert await after.values(STREAM) == [b"a", b"b", b"d"]


async def test_a_copy_whose_staging_is_in_the_lost_home_ends_when_that_is_back(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        await leave_unfinished(site, "a", "b")
        after = await lose_home(site)
        rows = await after.stage(rows_of("a", "b"), batch=1, stream=STREAM)
        with pytest.raises(UnavailableError, match="staged cannot be read: no node that"):
            await after.commit(1, rows, query="one")
        assert await after.values(STREAM) == []
        await site.cluster.restart_region(HOME)
        await trio.sleep(10)
        rows = await after.stage(rows_of("a", "b"), batch=1, stream=STREAM)
        await after.commit(1, rows, query="one")

        assert await after.values(STREAM) == [b"a", b"b"]


async def test_unreadable_staging_of_some_streams_does_not_keep_the_others_from_their_rows(
    autojump_clock: MockClock,
) -> None:
    async with open_site() as site:
        for name in ("shop/visits", "shop/orders"):
            is_global = name == "shop/orders"
            await site.east.create_stream(
                name,
                mode="global" if is_global else "regional",
                home=None if is_global else HOME,
                relay_to=None if is_global else [TARGET],
            )
        streams = [STREAM, "shop/visits", "shop/orders"]
        await leave_unfinished(site, "a", "b", streams=streams)
        await site.west.failover("shop/visits", to=TARGET)
        after = await lose_home(site)
        begun_s = trio.current_time()
        with pytest.raises(UnavailableError) as refused:
            await after.commit(1, *await stage_into(after, streams, "a", "b"), query="one")
        waited_s = trio.current_time() - begun_s
        first = [await after.values(stream) for stream in streams]
        await site.cluster.restart_region(HOME)
        await trio.sleep(10)
        await after.commit(1, *await stage_into(after, streams, "a", "b"), query="one")

        assert first == [[], [], [b"a", b"b"]]
        assert [await after.values(stream) for stream in streams] == [[b"a", b"b"]] * 3
    assert UNREAD_S_MAX <= waited_s < UNREAD_S_MAX + 2 * UNREAD_AGAIN_S_MAX
    assert "Written: 2 records for shop/orders" in str(refused.value)


async def test_under_another_name_a_query_goes_on_without_the_lost_home(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_site() as site:
        await leave_unfinished(site, "a", "b")
        after = await lose_home(site)
        monkeypatch.setattr(test_sinks, "SINK", "orders-2")
        rows = await after.stage(rows_of("a", "b"), batch=1, stream=STREAM)
        await after.commit(1, rows, query="one")

        assert await after.values(STREAM) == [b"a", b"b"]
