"""The repair queue: repeated enqueues, and dequeues only without new findings."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock

from geolog.metadata.paths import ClusterPaths
from geolog.metadata.repair_queue import RepairItem, RepairQueue, RepairReason, RepairRecord
from geolog.metadata.seam import NoNodeError
from geolog.protocol.ids import LedgerId
from sim.fakes.memory_metadata import MemoryMetadata, open_memory_store
from topology.errors import UnavailableError

MISSING, DAMAGED = RepairReason.COPIES_MISSING, RepairReason.DAMAGED
PATHS = ClusterPaths("default")


@attrs.frozen
class Queue:
    queue: RepairQueue
    metadata: MemoryMetadata
    other: RepairQueue
    """Belongs to another process."""


@asynccontextmanager
async def open_queue(now_us: Callable[[], int] = lambda: 7) -> AsyncIterator[Queue]:
    async with (
        open_memory_store(lambda: 0.01) as store,
        store.open_session() as metadata,
        store.open_session() as other,
    ):
        yield Queue(
            RepairQueue(metadata, PATHS, now_us=now_us),
            metadata,
            RepairQueue(other, PATHS, now_us=now_us),
        )


def item(
    ledger: int, *reasons: RepairReason, version: int = 0, since_us: int = 7
) -> RepairItem:
    record = RepairRecord(ledger=LedgerId(ledger), reasons=reasons, since_us=since_us)
    return RepairItem(record, version)


async def test_a_cluster_that_never_missed_a_copy_has_an_empty_queue(
    autojump_clock: MockClock,
) -> None:
    async with open_queue() as here:
        assert await here.queue.list() == []


async def test_ledgers_of_all_buckets_are_listed_by_id(autojump_clock: MockClock) -> None:
    async with open_queue() as here:
        for ledger in (1234, 7, 999_999_999_999, 1):
            await here.other.enqueue(LedgerId(ledger), MISSING)

        assert await here.queue.list() == [
            item(ledger, MISSING) for ledger in (1, 7, 1234, 999_999_999_999)
        ]


async def test_a_repeated_reason_raises_only_the_version(
    autojump_clock: MockClock,
) -> None:
    now_us = 100
    async with open_queue(lambda: now_us) as here:
        await here.queue.enqueue(LedgerId(1), MISSING)
        now_us = 200
        await here.other.enqueue(LedgerId(1), MISSING)

        assert await here.queue.list() == [item(1, MISSING, version=1, since_us=100)]


async def test_another_reason_is_added(autojump_clock: MockClock) -> None:
    async with open_queue() as here:
        await here.queue.enqueue(LedgerId(1), MISSING)
        await here.queue.enqueue(LedgerId(1), DAMAGED)

        assert await here.queue.list() == [item(1, MISSING, DAMAGED, version=1)]


async def test_a_dequeued_ledger_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with open_queue() as here:
        await here.queue.enqueue(LedgerId(1), MISSING)
        await here.queue.enqueue(LedgerId(2), MISSING)
        one, two = await here.queue.list()

        assert await here.queue.done(one)
        assert await here.queue.list() == [two]
        assert await here.queue.done(two)
        assert await here.metadata.children(PATHS.repairs) == []


async def test_a_finding_during_the_repair_keeps_the_ledger_queued(
    autojump_clock: MockClock,
) -> None:
    async with open_queue() as here:
        await here.queue.enqueue(LedgerId(1), DAMAGED)
        (listed,) = await here.queue.list()
        await here.other.enqueue(LedgerId(1), DAMAGED)

        assert not await here.queue.done(listed)
        assert await here.queue.list() == [item(1, DAMAGED, version=1)]


async def test_two_copiers_may_both_be_done(autojump_clock: MockClock) -> None:
    async with open_queue() as here:
        await here.queue.enqueue(LedgerId(1), DAMAGED)
        (listed,) = await here.queue.list()

        assert await here.queue.done(listed)
        assert await here.other.done(listed)


async def test_concurrent_enqueues_and_dequeues_of_one_ledger_all_succeed(
    autojump_clock: MockClock,
) -> None:
    async with open_queue() as here:

        async def find_and_repair(queue: RepairQueue, ledger: int) -> None:
            for _ in range(5):
                await queue.enqueue(LedgerId(ledger), MISSING)
                for listed in await queue.list():
                    await queue.done(listed)

        async with trio.open_nursery() as nursery:
            for ledger in (1, 2):
                for queue in (here.queue, here.other):
                    nursery.start_soon(find_and_repair, queue, ledger)

        assert await here.queue.list() == []
        with pytest.raises(NoNodeError):
            await here.metadata.get(PATHS.repair(LedgerId(1)))


async def test_with_metadata_away_enqueue_fails_and_a_repeat_enqueues_once(
    autojump_clock: MockClock,
) -> None:
    async with open_queue() as here:
        here.metadata.cut_off()
        with pytest.raises(UnavailableError) as away:
            await here.queue.enqueue(LedgerId(1), MISSING)
        here.metadata.restore()
        await here.queue.enqueue(LedgerId(1), MISSING)

        assert away.value.retriable
        assert [one.record.ledger for one in await here.queue.list()] == [1]
