"""Queues ledgers for repair in the background: the caller never waits, and nothing fails.

A process that closes a ledger with missing copies reports it and goes on. While metadata is
away reports are kept, up to a bound, and retried. Reports lost with the process are found again
by a check of the ledgers themselves, such as `verify`.

Rules: PROTOCOL C6.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geolog.background import open_background
from geolog.metadata.repair_queue import RepairQueue, RepairReason
from geolog.protocol.ids import LedgerId
from topology.errors import GeologError

_log = logging.getLogger(__name__)

WAITING_MAX = 10_000
"""Reports that may wait for metadata; beyond that the oldest are dropped and logged."""

RETRY_DELAY_S_MIN = 0.5
RETRY_DELAY_S_MAX = 30.0

LEAVE_S = 2.0
"""How long the end of the process may wait until all reports are queued."""


class RepairReporter:
    """The repair reports of one process; made by `open_repair_reporter`."""

    def __init__(self, queue: RepairQueue) -> None:
        self._queue = queue
        self._waiting: dict[tuple[LedgerId, RepairReason], None] = {}
        self._wake = trio.Event()
        self._all_queued = trio.Event()
        self._all_queued.set()

    def __repr__(self) -> str:
        return f"RepairReporter({len(self._waiting)} waiting)"

    def report_nowait(self, ledger: LedgerId, why: RepairReason) -> None:
        """Queue the ledger for repair soon."""
        self._waiting[ledger, why] = None
        if len(self._waiting) > WAITING_MAX:
            forgotten = next(iter(self._waiting))
            del self._waiting[forgotten]
            _log.warning(
                "ledger %s: needs repair; report dropped, too many are waiting", *forgotten[:1]
            )
        if self._all_queued.is_set():
            self._all_queued = trio.Event()
        self._wake.set()

    async def wait_all_queued(self) -> None:
        """Wait until every report is queued."""
        await self._all_queued.wait()

    async def run(self) -> None:
        """Queue reports one after another; never returns."""
        delay_s = RETRY_DELAY_S_MIN
        while True:
            if not self._waiting:
                self._all_queued.set()
                self._wake = trio.Event()
                await self._wake.wait()
            ledger, why = next(iter(self._waiting))
            try:
                await self._queue.enqueue(ledger, why)
            except GeologError as error:
                if delay_s == RETRY_DELAY_S_MIN:
                    _log.warning(
                        "ledger %s: needs repair (%s), but cannot be queued: %s",
                        ledger,
                        why.value,
                        error,
                    )
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_DELAY_S_MAX)
                if error.retriable:
                    continue
            delay_s = RETRY_DELAY_S_MIN
            self._waiting.pop((ledger, why), None)


@asynccontextmanager
async def open_repair_reporter(queue: RepairQueue) -> AsyncIterator[RepairReporter]:
    """Open a reporter for the block; its end waits a moment for the remaining reports."""
    async with open_background() as nursery:
        reporter = RepairReporter(queue)
        nursery.start_soon(reporter.run, name="repair reporter")
        try:
            yield reporter
        finally:
            with trio.move_on_after(LEAVE_S, shield=True):
                await reporter.wait_all_queued()
