"""Processes whose wall clocks are wrong by hours, months or a century share a stream."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import geolog
from geolog.protocol.append_clock import AHEAD_US_MAX
from sim.in_process import InProcessCluster, open_in_process_cluster
from sim.planted.bugs import planted
from tests.pure.whole.clusters import STREAM, records_of

KEPT_S = 600.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S
FAR_S = (HOUR_S, -HOUR_S, YEAR_S, -YEAR_S, 100 * YEAR_S, -50 * YEAR_S)


@asynccontextmanager
async def open_short_stream() -> AsyncIterator[tuple[InProcessCluster, geolog.Log]]:
    """A stream of small segments with ten minutes of retention, and a client that trims it."""
    async with (
        open_in_process_cluster({"us": 2, "eu": 2, "ap": 2}) as cluster,
        cluster.open_client("us", host="right") as log,
    ):
        await log.create_stream(
            STREAM, survive="1 region", segment_bytes=1 << 16, retention_s=KEPT_S
        )
        yield cluster, log


@asynccontextmanager
async def open_writer_at(
    cluster: InProcessCluster, off_s: float
) -> AsyncIterator[geolog.Writer]:
    """Open a writer in a process whose clock is off by this much."""
    off_us = round(off_s * 1e6)
    async with (
        cluster.open_client("eu", host="wrong", off_us=lambda: off_us) as log,
        log.open_writer(STREAM) as writer,
    ):
        yield writer


async def append_some(writer: geolog.Writer, count: int) -> None:
    for _ in range(count):
        await writer.append(b"x" * 30_000)
        await trio.sleep(1)


def warnings_of(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    found = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    return [one for one in found if words in one]


@pytest.mark.parametrize("off_s", FAR_S)
async def test_no_wrong_clock_removes_young_records(
    off_s: float, autojump_clock: MockClock
) -> None:
    async with open_short_stream() as (cluster, log):
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
        for _ in range(2):  # The second one finds segments completed by the first.
            async with open_writer_at(cluster, off_s) as writer:
                await append_some(writer, 8)
                await trio.sleep(60)
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
            await trio.sleep(60)

        assert [one.sequence for one in await records_of(log)] == list(range(32))


async def test_old_records_go_whatever_clocks_appended_them(
    autojump_clock: MockClock,
) -> None:
    async with open_short_stream() as (cluster, log):
        for off_s in FAR_S:
            async with open_writer_at(cluster, off_s) as writer:
                await append_some(writer, 8)
        await trio.sleep(KEPT_S + AHEAD_US_MAX / 1e6)
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
            await trio.sleep(60)

        assert (await records_of(log))[0].sequence >= 8 * len(FAR_S) - 3


@pytest.mark.parametrize("off_s", FAR_S)
async def test_append_times_are_near_the_metadata_store_and_never_decrease(
    off_s: float, autojump_clock: MockClock
) -> None:
    async with open_short_stream() as (cluster, log):
        async with open_writer_at(cluster, off_s) as writer:
            await append_some(writer, 3)
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 3)
        times = [one.timestamp_us for one in await records_of(log)]

        assert times == sorted(times)
        assert times[-1] <= cluster.now_us() + AHEAD_US_MAX


async def test_a_clock_that_is_ahead_is_reported_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_short_stream() as (cluster, _),
        open_writer_at(cluster, 8 * DAY_S) as writer,
    ):
        await append_some(writer, 8)

    (told,) = warnings_of(caplog, "ahead of the metadata store's")
    assert "8 days" in told
    assert "one of the two is wrong" in told
    assert f"{STREAM}#0" in told


async def test_a_clock_that_is_behind_is_reported_once_and_retention_uses_the_stores_clock(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_short_stream() as (cluster, log):
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
        await trio.sleep(KEPT_S - 120)
        async with open_writer_at(cluster, -30 * DAY_S) as writer:
            await append_some(writer, 1)
            kept = await records_of(log)
            await trio.sleep(240)
        left = await records_of(log)

    (told,) = warnings_of(caplog, "behind the metadata store's")
    assert "30 days" in told
    assert "one of the two is wrong" in told
    assert len(warnings_of(caplog, "30 days, 0:00:00 ahead of what this host's says now")) <= 1
    assert kept[0].sequence == 0
    assert left[0].sequence >= 4


async def test_a_partition_stamped_ahead_goes_on_is_reported_and_expires_in_the_end(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An older version, which trusted any clock, stamped it. New records are not affected."""
    async with open_short_stream() as (cluster, log):
        with planted("append-time-unclamped"):
            async with open_writer_at(cluster, 100 * YEAR_S) as writer:
                await append_some(writer, 8)
        stamped_us = (await records_of(log))[-1].timestamp_us
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
            await trio.sleep(60)
        kept = await records_of(log, start=geolog.AtTime(cluster.now_us()))
        await trio.sleep(KEPT_S + AHEAD_US_MAX / 1e6)
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 1)
            await trio.sleep(60)
        left = await records_of(log)

    assert stamped_us > cluster.now_us() + round(99 * YEAR_S * 1e6)
    assert [one.sequence for one in kept] == list(range(16))
    assert {one.timestamp_us for one in kept[8:]} == {stamped_us}
    assert len(warnings_of(caplog, "last record's append time is 2123-")) == 2  # Takeovers.
    assert len(warnings_of(caplog, "days, 0:00:00 ahead of what this host's says now")) <= 1
    assert left[0].sequence >= 12


async def test_a_process_whose_monotonic_clock_stood_still_soon_learns_the_time(
    autojump_clock: MockClock,
) -> None:
    """It slept: all wall clocks advanced by a day, its monotonic clock did not."""
    async with open_short_stream() as (cluster, log):
        slept_us = 0
        async with (
            cluster.open_client("eu", host="sleeps", off_us=lambda: slept_us) as sleeper,
            sleeper.open_writer(STREAM) as writer,
        ):
            await writer.append(b"before")
            slept_us = cluster.store.clock_offset_us = round(DAY_S * 1e6)
            await writer.append(b"at once")
            await trio.sleep(1)
            await writer.append(b"after")
        before, at_once, after = await records_of(log)

        assert at_once.timestamp_us - before.timestamp_us < 2 * AHEAD_US_MAX
        assert after.timestamp_us - before.timestamp_us >= slept_us


@pytest.mark.parametrize("is_recovered", [False, True])
@pytest.mark.parametrize("off_s", FAR_S)
async def test_correcting_the_stores_wrong_clock_removes_no_young_records(
    off_s: float,
    is_recovered: bool,  # noqa: FBT001 - Drawn by pytest.
    autojump_clock: MockClock,
) -> None:
    async with open_short_stream() as (cluster, log):
        cluster.store.clock_offset_us = round(off_s * 1e6)
        if is_recovered:
            with trio.CancelScope() as killed:
                async with log.open_writer(STREAM) as writer:
                    await append_some(writer, 8)
                    killed.cancel()
        else:
            async with log.open_writer(STREAM) as writer:
                await append_some(writer, 8)
        async with cluster.open_client("eu", host="another") as other:
            async with other.open_writer(
                STREAM
            ) as writer:  # Its recovery completes the last segment.
                await append_some(writer, 1)
            cluster.store.clock_offset_us = 0
            async with other.open_writer(STREAM) as writer:
                await append_some(writer, 1)
                await trio.sleep(120)

        assert (await records_of(log))[0].sequence == 0


async def test_a_store_clock_that_jumps_far_ahead_removes_no_young_records(
    autojump_clock: MockClock,
) -> None:
    async with open_short_stream() as (cluster, log):
        async with log.open_writer(STREAM) as writer:
            await append_some(writer, 8)
            cluster.store.clock_offset_us = round(30 * DAY_S * 1e6)
            await append_some(writer, 8)
            await trio.sleep(60)

        assert [one.sequence for one in await records_of(log)] == list(range(16))


async def test_a_host_that_slept_gets_no_warning_about_its_clock(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """All wall clocks advanced by eight hours, its monotonic clock did not."""
    async with open_short_stream() as (cluster, _):
        slept_us = 0
        async with (
            cluster.open_client("eu", host="sleeps", off_us=lambda: slept_us) as sleeper,
            sleeper.open_writer(STREAM) as writer,
        ):
            await append_some(writer, 2)
            slept_us = cluster.store.clock_offset_us = round(8 * HOUR_S * 1e6)
            await append_some(writer, 4)

    assert not warnings_of(caplog, "clock")
    assert not [one for one in caplog.messages if "agree again" in one]
