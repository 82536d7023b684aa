# Generated from geolog/aio/writer.py by `python -P -m sim.twins`: edit that file.
"""Append from an ordinary thread: records cross to the trio thread in groups."""

from collections.abc import Iterable, Mapping
from functools import partial

import attrs

from geolog.blocking.waiting import GIVEN_UP, Waiter, new_waiter, wait_for, withdraw
from geolog.client.writing.record_fields import RecordFields, checked_records
from geolog.client.writing.writer import SpoolStatistics, WriterStatistics
from geolog.client.writing.writer import Writer as TrioWriter
from geolog.client.writing.writer_pending import AckLevel, Receipt
from geolog.portal.inlet import Inlet, QueuedAppend
from geolog.portal.residence import Residence
from geolog.portal.would_block import WouldBlock


class Pending:
    """An append, and its answer once that has arrived."""

    __slots__ = ("_append", "_inlet", "_residence")

    def __init__(
        self,
        residence: Residence[TrioWriter],
        inlet: Inlet[Waiter],
        append: QueuedAppend[Waiter],
    ) -> None:
        self._residence = residence
        self._inlet = inlet
        self._append = append

    def __repr__(self) -> str:
        return f"<Pending {'done' if self.is_done else 'in flight'}>"

    @property
    def is_done(self) -> bool:
        """Whether the append is answered, or has failed."""
        return self._append.is_done

    @property
    def is_durable(self) -> bool:
        """Whether `wait_durable` would not wait."""
        return self._append.is_durable

    def wait(self) -> Receipt:
        """Wait for the answer. Raises the error of an append that was not acknowledged."""
        wait_done(self._inlet, self._append)
        return self.receipt_nowait()

    def wait_durable(self) -> Receipt:
        """Wait until the record is on the disks of an ack set, even at ack level received."""
        receipt = self.wait()
        if not receipt.provisional:
            return receipt
        assert self._append.pending is not None, "an append with a receipt was sent"
        return wait_for(self._residence.call(self._append.pending.wait_durable))

    def receipt_nowait(self) -> Receipt:
        """The answer. WouldBlock if it has not arrived yet."""
        return self._append.receipt_nowait()


def wait_done(inlet: Inlet[Waiter], append: QueuedAppend[Waiter]) -> None:
    """Wait until an append is answered, or has failed."""
    if append.is_done:
        return
    waiter = new_waiter()
    if inlet.wait_done(append, waiter):
        try:
            waiter.sleep()
        except BaseException:
            inlet.forget(waiter, append)
            raise


class Writer:
    """Appends to one stream, in order. `Log.open_writer` opens it. Threads may share it."""

    def __init__(
        self, residence: Residence[TrioWriter], writer: TrioWriter, inlet: Inlet[Waiter]
    ) -> None:
        self.ack: AckLevel = writer.ack
        self._residence = residence
        self._writer = writer
        self._inlet = inlet

    def __repr__(self) -> str:
        return f"Writer({self._inlet.unanswered_bytes} bytes in flight)"

    def append(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
        local_only: bool = False,
    ) -> Receipt:
        """Append one record; wait until the writer's ack level is reached.

        local_only: the record must not leave the region of the stream's home; readers elsewhere
        get a gap.

        ConflictError: the transaction id or seq goes back, the seq was used for other bytes, or
        the record would not get `expect_sequence`. FencedError: another writer owns the stream
        now. SealedError: the stream takes no more records. OutcomeUnknownError: the record may
        or may not be in the log. TooLargeError, InvalidArgumentError: it was not sent.

        An append that is cancelled or out of time is withdrawn if it was not sent yet;
        otherwise the record may or may not be in the log.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence, local_only=local_only,
        )  # fmt: skip
        append = self._put(fields, is_posted=False)
        try:
            return Pending(self._residence, self._inlet, append).wait()
        except GIVEN_UP as error:
            withdraw(self._inlet, append, error)
            raise

    def append_many(
        self,
        values: Iterable[bytes],
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        local_only: bool = False,
    ) -> list[Receipt]:
        """Append records in order, all in flight at once; return their receipts in order.

        key, headers, local_only: of each record. If a record is wrong, none is sent:
        TooLargeError, InvalidArgumentError. Otherwise each is answered as `append` would answer
        it, and the error of the first that failed is raised: then any of the records may be in
        the log.

        Cancelled or out of time, it withdraws the records that were not sent yet.
        """
        appends: list[QueuedAppend[Waiter]] = []
        try:
            for fields in checked_records(
                values, key=key, headers=headers, local_only=local_only
            ):
                appends.append(  # noqa: PERF401 - an error leaves those to withdraw.
                    self._put(fields, is_posted=False)
                )
            return [Pending(self._residence, self._inlet, one).wait() for one in appends]
        except GIVEN_UP as error:
            unanswered = [append for append in appends if not append.is_done]
            for append in reversed(unanswered[1:]):  # So that none is sent behind a gap.
                self._inlet.withdraw(append)
            if unanswered:
                withdraw(self._inlet, unanswered[0], error)
            raise

    def post(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        local_only: bool = False,
    ) -> None:
        """Append one record without an answer; return once it is in the window.

        With a spool, return once it is on the local disk. If it fails, `flush` or a later call
        raises the error.
        """
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id,
            local_only=local_only,
        )  # fmt: skip
        append = self._put(fields, is_posted=True)
        if self._writer.has_spool:
            wait_done(self._inlet, append)
            if append.error is not None:
                raise append.error

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        transaction_id: int | None = None,
        seq: int | None = None,
        expect_sequence: int | None = None,
        local_only: bool = False,
    ) -> Pending:
        """Append one record without waiting. WouldBlock while the window is full."""
        fields = RecordFields(
            value=value, key=key, headers=headers, transaction_id=transaction_id, seq=seq,
            expect_sequence=expect_sequence, local_only=local_only,
        )  # fmt: skip
        return Pending(self._residence, self._inlet, self._inlet.put_nowait(fields))

    @property
    def home_epoch(self) -> int:
        """The home epoch of the stream as the writer knows it."""
        return self._writer.home_epoch

    @property
    def seq_highest(self) -> int:
        """The highest seq of this named writer in the log or in flight; -1 for none.

        A record appended just now counts once it has crossed to the trio thread.
        """
        return self._writer.seq_highest

    def is_appended(self, seq: int, *, key: bytes | None = None) -> bool:
        """Whether `seq` is at or below the named writer's highest seq in the log.

        The seq may have been appended or left out; `append` says whether it is remembered.
        """
        return self._writer.is_appended(seq, key=key)

    def wait_writable(self) -> None:
        """Wait until there is room for the record that `append_nowait` refused last.

        Returns when the writer is closed, too.
        """
        while True:
            waiter = new_waiter()
            if not self._inlet.wait_room(waiter):
                return
            try:
                waiter.sleep()
            except BaseException:
                self._inlet.forget(waiter)
                raise

    def flush(self) -> None:
        """Wait until all records appended before this call are acknowledged.

        Raises the error that stopped the writer, if any.
        """
        wait_for(self._residence.call(partial(self._inlet.flush, self._writer)))

    def wait_spooled(self) -> None:
        """Wait until all records appended before this call are on the local disk.

        InvalidArgumentError: the writer has no spool. SpoolWriteError: its disk fails.
        """
        wait_for(self._residence.call(partial(self._inlet.wait_spooled, self._writer)))

    def spool_statistics(self) -> SpoolStatistics:
        """A snapshot of the spool's figures. InvalidArgumentError without one."""
        return self._writer.spool_statistics()

    def statistics(self) -> WriterStatistics:
        """A snapshot of the writer's figures."""
        return attrs.evolve(
            self._writer.statistics(), in_flight_bytes=self._inlet.unanswered_bytes
        )

    def _put(self, fields: RecordFields, *, is_posted: bool) -> QueuedAppend[Waiter]:
        while True:
            try:
                return self._inlet.put_nowait(fields, is_posted=is_posted)
            except WouldBlock:
                self.wait_writable()
