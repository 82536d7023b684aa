"""What becomes of an open ledger while its entries are followed.

When metadata says that the record has changed it is read again, in the background and for as
long as metadata takes: the reader goes on by what it knows. A read that fails is repeated at
the reader's pace. The watch ends with the ledger's close, or when its record is gone.

Rules: PROTOCOL R13.
"""

import trio

from geolog.client.reading.scan import PartitionScan
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.stream_state import SegmentRecord
from topology.errors import GeologError


class LedgerWatch:
    """Looks after the record of one segment's ledger; `news` is set while some is not taken."""

    def __init__(
        self, scan: PartitionScan, segment: SegmentRecord, changed: trio.Event
    ) -> None:
        """`changed`: set once the record is no longer what the reader has."""
        self._scan = scan
        self._segment = segment
        self._changed = changed
        self._found: LedgerRecord | GeologError | None = None
        self.news = trio.Event()
        self.asking = trio.CancelScope()
        """Cancelled when nobody wants to know any more."""

    def __repr__(self) -> str:
        return f"LedgerWatch({self._segment.ledger}, news={self.news.is_set()})"

    def take_nowait(self) -> LedgerRecord | None:
        """The record if it has changed since it was taken last. NoSuchLedgerError."""
        found, self._found = self._found, None
        if found is None:
            return None
        self.news = trio.Event()
        if isinstance(found, GeologError):
            raise found
        return found

    async def run(self) -> None:
        """Keep the record, until the ledger is CLOSED or gone, or `asking` is cancelled."""
        with self.asking:
            while not await self._follow_change():
                pass

    async def _follow_change(self) -> bool:
        """Wait for the next change, and read what it was; whether it was the last."""
        await self._changed.wait()
        await self._scan.wait_to_ask()
        self._changed = trio.Event()
        try:
            found = await self._scan.ledger_now(self._segment)
            if found.state is not LedgerState.CLOSED:
                # A watch on what never changes would wait for ever, one for each segment.
                self._tell(found)
                found = await self._scan.ledger_now(self._segment, self._changed)
        except GeologError as error:
            if not error.retriable:
                self._tell(error)
                return True
            self._scan.pace.on_failed(now_s=trio.current_time())
            self._changed.set()  # It is still not known.
            return False
        self._scan.pace.on_answered()
        self._tell(found)
        return found.state is LedgerState.CLOSED

    def _tell(self, found: LedgerRecord | GeologError) -> None:
        self._found = found
        self.news.set()
