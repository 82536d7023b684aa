"""Repair reports are queued in the background, once metadata takes them."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.ledger.repair_reporter import RepairReporter, open_repair_reporter
from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairQueue, RepairReason
from geolog.protocol.ids import LedgerId
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store

MISSING = RepairReason.COPIES_MISSING


@attrs.frozen
class Reporting:
    reporter: RepairReporter
    metadata: MemoryMetadata
    queue: RepairQueue
    """The queue as another process sees it."""

    async def ledgers(self) -> list[int]:
        return [one.record.ledger for one in await self.queue.list()]


@asynccontextmanager
async def open_reporting() -> AsyncIterator[Reporting]:
    paths = ClusterPaths("default")
    async with (
        open_memory_store(lambda: 0.1) as store,
        store.open_session() as other,
        store.open_session() as metadata,
        open_repair_reporter(RepairQueue(metadata, paths, now_us=lambda: 1)) as reporter,
    ):
        yield Reporting(reporter, metadata, RepairQueue(other, paths, now_us=lambda: 1))


async def test_reports_get_into_the_queue(autojump_clock: MockClock) -> None:
    async with open_reporting() as reporting:
        for ledger in (3, 1, 3):
            reporting.reporter.report_nowait(LedgerId(ledger), MISSING)
        with trio.fail_after(5):
            await reporting.reporter.wait_all_queued()

        assert await reporting.ledgers() == [1, 3]


async def test_reports_are_kept_while_metadata_is_away_with_one_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="geolog")
    async with open_reporting() as reporting:
        reporting.metadata.cut_off()
        reporting.reporter.report_nowait(LedgerId(1), MISSING)
        await trio.sleep(60)
        reporting.metadata.restore()
        with trio.fail_after(60):
            await reporting.reporter.wait_all_queued()

        assert await reporting.ledgers() == [1]
    assert len(caplog.records) == 1


async def test_the_end_queues_the_remaining_reports(autojump_clock: MockClock) -> None:
    paths = ClusterPaths("default")
    async with open_memory_store(lambda: 0.1) as store, store.open_session() as metadata:
        queue = RepairQueue(metadata, paths, now_us=lambda: 1)
        async with open_repair_reporter(queue) as reporter:
            reporter.report_nowait(LedgerId(1), MISSING)

        assert [one.record.ledger for one in await queue.list()] == [1]


async def test_the_end_does_not_wait_for_metadata_that_is_away(
    autojump_clock: MockClock,
) -> None:
    async with open_memory_store() as store, store.open_session() as metadata:
        metadata.cut_off()
        with trio.fail_after(3):
            async with open_repair_reporter(
                RepairQueue(metadata, ClusterPaths("default"), now_us=lambda: 1)
            ) as reporter:
                reporter.report_nowait(LedgerId(1), MISSING)
