"""Watches the record of an open ledger while a reader follows its entries.

When metadata reports a change, the watch reads the record again in the background, without a
time limit; the reader meanwhile uses the record it has. A failed read is repeated at the
reader's pace. The watch ends when the ledger is closed or its record is gone.

Rules: PROTOCOL R13.
"""

from collections.abc import Callable

import trio

from geolog.client.reading.scan import PartitionScan
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import SegmentRecord
from topology.errors import GeologError


class LedgerWatch:
    """Watches the record of one segment's ledger; keeps the last change until it is taken."""

    def __init__(
        self,
        scan: PartitionScan,
        segment: SegmentRecord,
        changed: trio.Event,
        on_news: Callable[[], None],
    ) -> None:
        """`changed` is set once the record differs from the one that the reader has.

        on_news() is called when there is something to take.
        """
        self._scan = scan
        self._segment = segment
        self._changed = changed
        self._on_news = on_news
        self._found: LedgerRecord | GeologError | None = None
        self.asking = trio.CancelScope()
        """Cancel this to end the watch."""

    def __repr__(self) -> str:
        return f"LedgerWatch({self._segment.ledger}, news={self._found is not None})"

    def take_nowait(self) -> LedgerRecord | None:
        """The record if it changed since it was last taken. NoSuchLedgerError."""
        found, self._found = self._found, None
        if found is None:
            return None
        if isinstance(found, GeologError):
            raise found
        return found

    async def run(self) -> None:
        """Watch until the ledger is CLOSED or gone, or `asking` is cancelled."""
        with self.asking:
            while not await self._follow_change():
                pass

    async def _follow_change(self) -> bool:
        """Wait for the next change and read the record. True: it was the last change."""
        await self._changed.wait()
        await self._scan.wait_to_ask()
        self._changed = trio.Event()
        try:
            found = await self._scan.ledger_now(self._segment)
            if found.state is not LedgerState.CLOSED:
                # A watch on a CLOSED ledger would wait for ever, one per segment.
                self._tell(found)
                found = await self._scan.ledger_now(self._segment, self._changed)
        except GeologError as error:
            if not error.retriable:
                self._tell(error)
                return True
            self._scan.pace.on_failed(now_s=trio.current_time())
            self._changed.set()  # The change is still unread.
            return False
        self._scan.pace.on_answered()
        self._tell(found)
        return found.state is LedgerState.CLOSED

    def _tell(self, found: LedgerRecord | GeologError) -> None:
        self._found = found
        self._on_news()
