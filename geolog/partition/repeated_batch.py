"""A named writer's batch whose seqs the log had before: found there, and compared.

Rules: PROTOCOL H26, S5 and S19.
"""

from collections.abc import Awaitable, Callable

import attrs
import trio

from geolog.partition.read_back import LocalOnlyElsewhereError
from geolog.protocol.ids import DLSN, Sequence
from geolog.protocol.owner_answers import FirstPlace, RepeatedRecords, lease_over
from geolog.protocol.partition_state import BATCHES_REMEMBERED, WriterState, WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch, SealedBatch, open_batch
from geolog.wire.entry import WriterStamp
from topology.errors import (
    ConflictError,
    DataLostError,
    GeologError,
    Outcome,
    TrimmedError,
    UnavailableError,
    public,
)

ReadBack = Callable[[PartitionName, WrittenBatch], Awaitable[Batch]]
"""Reads a batch back from the log. DataLostError, UnavailableError."""


@public
class ForgottenSeqError(ConflictError):
    """The seq is below its writer's highest, and its record is forgotten or trimmed.

    `outcome` is `duplicate` if the record was appended, and was trimmed since or is local-only
    in another region; `refused` if it was left out and is certainly not in the log; `unknown`
    if it is too old to be remembered.
    """

    outcome: Outcome = "unknown"


@public
class RepeatUnreadError(UnavailableError):
    """The log has a record of this writer and seq, but it cannot be read and compared now.

    Nothing was appended. Try again: the bytes are compared once the record can be read.
    """

    outcome: Outcome = "duplicate"


class RepeatedBatch(RepeatedRecords):
    """A batch of which the log has a seq: each of its records has its own answer.

    Records are often batched differently when they are sent again, so one may be in the log and
    its neighbour not. Nothing of the batch is appended.
    """

    def __init__(
        self,
        name: PartitionName,
        sealed: SealedBatch,
        stamp: WriterStamp,
        writer: WriterState,
        read_back: ReadBack,
        *,
        lease_left_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`writer`: the writer's state after all acknowledged entries.

        lease_left_s: how long an answer counts, asked when it is ready; None: for good.
        """
        self._lease_left_s = lease_left_s
        self._name = name
        self._sealed = sealed
        self._stamp = stamp
        self._seqs = list(stamp.seqs)
        self._writer_id = stamp.writer_id
        self._writer = writer
        self._read_back = read_back
        self._opened: Batch | None = None

    def __repr__(self) -> str:
        return f"RepeatedBatch({self._name}, {len(self._seqs)} records)"

    async def answer(self, row: int) -> FirstPlace:
        """Where the record in this row was appended first. Errors as of `RepeatedRecords`.

        OutcomeUnknownError if the owner's lease has ended meanwhile.
        """
        seq = self._seqs[row]
        written = self._writer.batch_of(seq)
        if written is None:
            raise self._not_remembered(seq)
        found = await self._compared(written, seq, row)
        left_s = self._lease_left_s()
        if left_s is None:
            return found
        if left_s <= 0:
            raise lease_over(self._name)
        return attrs.evolve(found, valid_until_s=trio.current_time() + left_s)

    def _not_remembered(self, seq: int) -> ConflictError:
        highest = self._writer.seq_highest
        if seq > highest:
            in_flight = ConflictError(
                f"{self._who(seq)} is in flight, or was left out before seqs in flight: wait"
                " for their answers"
            )
            in_flight.outcome = "unknown"
            return in_flight
        if self._writer.is_left_out(seq):
            left_out = ForgottenSeqError(
                f"{self._who(seq)} was left out and is not in the log; the highest seq is"
                f" {highest}: append this record under a higher one"
            )
            left_out.outcome = "refused"
            return left_out
        return ForgottenSeqError(
            f"{self._who(seq)} is not remembered: the highest seq is {highest}, and only the"
            f" last {BATCHES_REMEMBERED} batches are remembered. Read the stream to see whether"
            " it is there"
        )

    def _who(self, seq: int) -> str:
        return f"seq {seq} of writer {self._writer_id.decode()}"

    async def _compared(self, written: WrittenBatch, seq: int, row: int) -> FirstPlace:
        row_there = written.seqs.row_of(seq)
        assert row_there is not None, f"{written} has no seq {seq}"
        try:
            there = await self._read(written, seq)
        except LocalOnlyElsewhereError as error:
            self._compare_checksums(written, seq, error)
        else:
            if self._opened is None:
                self._opened = open_batch(self._sealed.data)
            if _fields_of(there, row_there) != _fields_of(self._opened, row):
                raise ConflictError(
                    f"{self._who(seq)} was appended before with different bytes"
                )
        return FirstPlace(
            DLSN(written.segment, written.entry, written.slot + row_there),
            Sequence(written.first_sequence + row_there),
        )

    def _compare_checksums(
        self, written: WrittenBatch, seq: int, error: LocalOnlyElsewhereError
    ) -> None:
        """ForgottenSeqError unless the same batch was sealed before.

        Records that are gathered again make another batch, even if each is the same.
        """
        sealed = self._sealed
        found = (self._stamp.seqs, sealed.header_crc, sealed.body_crc)
        if found == (written.seqs, written.header_crc, written.body_crc):
            return
        elsewhere = ForgottenSeqError(
            f"{self._who(seq)} was appended, and cannot be compared: {error}"
        )
        elsewhere.outcome = "duplicate"
        raise elsewhere from None

    async def _read(self, written: WrittenBatch, seq: int) -> Batch:
        """Read the batch in the log that has this seq. Each error says that it was appended."""
        try:
            return await self._read_back(self._name, written)
        except TrimmedError as error:
            trimmed = ForgottenSeqError(
                f"{self._who(seq)} was appended, and trimmed since: {error}"
            )
            trimmed.outcome = "duplicate"
            raise trimmed from None
        except LocalOnlyElsewhereError:
            raise
        except DataLostError as error:
            lost = DataLostError(f"{self._who(seq)} was appended, and is lost: {error}")
            lost.outcome = "duplicate"
            raise lost from error
        except GeologError as error:
            raise RepeatUnreadError(
                f"{self._who(seq)} is in the log already, but its bytes cannot be read and"
                f" compared: {error}. Append it again later"
            ) from error


def _fields_of(
    batch: Batch, row: int
) -> tuple[bytes, bytes | None, dict[str, bytes], int | None]:
    return batch.value(row), batch.key(row), batch.headers(row), batch.transaction_id(row)
