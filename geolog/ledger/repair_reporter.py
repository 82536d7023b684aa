"""Puts ledgers into the repair queue in the background: nobody waits, and nothing fails of it.

Whoever closes a ledger that lacks copies says so and goes on. While metadata is away what was
said is kept, up to a bound, and tried again; what is lost with the process is found by whoever
looks at the ledgers themselves.

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
"""Ledgers that may wait for metadata; beyond that the oldest are forgotten, which is logged."""

RETRY_DELAY_S_MIN = 0.5
RETRY_DELAY_S_MAX = 30.0

LEAVE_S = 2.0
"""How long the end of the process may wait until all is said."""


class RepairReporter:
    """What a process has to say to the repair queue; `open_repair_reporter` makes it."""

    def __init__(self, queue: RepairQueue) -> None:
        self._queue = queue
        self._waiting: dict[tuple[LedgerId, RepairReason], None] = {}
        self._wake = trio.Event()
        self._all_said = trio.Event()
        self._all_said.set()

    def __repr__(self) -> str:
        return f"RepairReporter({len(self._waiting)} waiting)"

    def report_nowait(self, ledger: LedgerId, why: RepairReason) -> None:
        """Put the ledger into the queue soon."""
        self._waiting[ledger, why] = None
        if len(self._waiting) > WAITING_MAX:
            forgotten = next(iter(self._waiting))
            del self._waiting[forgotten]
            _log.warning(
                "ledger %s wants repair, which is not noted: too many do", *forgotten[:1]
            )
        if self._all_said.is_set():
            self._all_said = trio.Event()
        self._wake.set()

    async def wait_all_said(self) -> None:
        """Wait until metadata has all that was reported."""
        await self._all_said.wait()

    async def run(self) -> None:
        """Say what is reported, one after the other; never returns."""
        delay_s = RETRY_DELAY_S_MIN
        while True:
            if not self._waiting:
                self._all_said.set()
                self._wake = trio.Event()
                await self._wake.wait()
            ledger, why = next(iter(self._waiting))
            try:
                await self._queue.enqueue(ledger, why)
            except GeologError as error:
                if delay_s == RETRY_DELAY_S_MIN:
                    _log.warning("ledger %s wants repair (%s): %s", ledger, why.value, error)
                await trio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_DELAY_S_MAX)
                if error.retriable:
                    continue
            delay_s = RETRY_DELAY_S_MIN
            self._waiting.pop((ledger, why), None)


@asynccontextmanager
async def open_repair_reporter(queue: RepairQueue) -> AsyncIterator[RepairReporter]:
    """A reporter that lives as long as the block, and a moment longer to say the rest."""
    async with open_background() as nursery:
        reporter = RepairReporter(queue)
        nursery.start_soon(reporter.run, name="repair reporter")
        try:
            yield reporter
        finally:
            with trio.move_on_after(LEAVE_S, shield=True):
                await reporter.wait_all_said()
