"""Appends through a spool: of records that wait for the log's answer, and of posted ones."""

import trio

from geolog.client.writing.writer_pending import Pending, Receipt
from geolog.partition.repeated_batch import ForgottenSeqError
from topology.errors import GeologError, Outcome


class InLogAlreadyError(ForgottenSeqError):
    """The log has the record, under its seq, but forgot its position."""

    outcome: Outcome = "duplicate"


class SpooledRecord(Pending):
    """A record that is written to the spool, and then sent to the log."""

    __slots__ = ("_answered", "_is_spooled", "_outcome")

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._is_spooled = False
        self._outcome: Receipt | GeologError | None = None

    def __repr__(self) -> str:
        where = "done" if self.is_done else "in the spool" if self._is_spooled else "in flight"
        return f"<SpooledRecord {where}>"

    @property
    def is_spooled(self) -> bool:
        """Whether the record is on the local disk."""
        return self._is_spooled

    @property
    def is_done(self) -> bool:
        """Whether the append is answered by the log, or has failed."""
        return self._outcome is not None

    @property
    def is_durable(self) -> bool:
        """Whether the log has answered, or the append has failed."""
        return self._outcome is not None

    def on_spooled(self) -> None:
        """The record is on the local disk."""
        self._is_spooled = True

    def finish(self, outcome: Receipt | GeologError) -> None:
        """The log has answered, or the append has failed."""
        if self._outcome is None:
            self._outcome = outcome
            self._answered.set()

    async def wait(self) -> Receipt:
        """Wait for the log's answer. Raises the error of an append without one."""
        await self._answered.wait()
        return self.receipt_nowait()

    async def wait_durable(self) -> Receipt:
        """Wait until the log has the record on disk."""
        return await self.wait()

    def receipt_nowait(self) -> Receipt:
        """The log's answer. trio.WouldBlock if it has not arrived yet."""
        if self._outcome is None:
            raise trio.WouldBlock
        if isinstance(self._outcome, GeologError):
            raise self._outcome
        return self._outcome


class PostedRecord(SpooledRecord):
    """A record without a receipt: it is done once it is on the local disk."""

    @property
    def is_done(self) -> bool:
        """Whether it is on the local disk, or has failed."""
        return self._answered.is_set()

    def on_spooled(self) -> None:
        """The record is on the local disk, and so it is done."""
        super().on_spooled()
        self._answered.set()

    async def wait_done(self) -> None:
        """Wait until it is on the local disk. SpoolWriteError."""
        await self._answered.wait()
        if isinstance(self._outcome, GeologError):
            raise self._outcome
