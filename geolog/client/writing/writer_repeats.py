"""Repeated records of a named writer: found in the log, and compared with it.

Rules: PROTOCOL S5 and S19.
"""

from collections.abc import Awaitable, Callable, Sequence

from geolog.client.writing.open_batch import WriterSession
from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer_pending import Receipt, RepeatedRecord
from geolog.protocol.ids import DLSN
from geolog.protocol.partition_state import BATCHES_REMEMBERED, WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch
from topology.errors import (
    ConflictError,
    DataLostError,
    GeologError,
    Outcome,
    TrimmedError,
    UnavailableError,
)

ReadBack = Callable[[PartitionName, WrittenBatch], Awaitable[Batch]]
"""Reads a batch back from the log. DataLostError, UnavailableError."""


class ForgottenSeqError(ConflictError):
    """The seq is below its writer's highest, and its record is forgotten or trimmed.

    `outcome` is `duplicate` if the record was appended and trimmed since, `refused` if it was
    left out and is certainly not in the log, `unknown` if it is too old to be remembered.
    """

    outcome: Outcome = "unknown"


class RepeatUnreadError(UnavailableError):
    """The log has a record of this writer and seq, but it cannot be read and compared now.

    Nothing was appended. Try again: the bytes are compared once the record can be read.
    """

    outcome: Outcome = "duplicate"


class WriterRepeats:
    """Answers records that a named writer has in the log already."""

    def __init__(
        self,
        session: WriterSession,
        lanes: Sequence[PartitionBatcher],
        *,
        home_epoch: int,
        read_back: ReadBack | None,
    ) -> None:
        self._session = session
        self._lanes = lanes
        self._home_epoch = home_epoch
        self._read_back = read_back

    def lane_that_has(self, seq: int) -> PartitionBatcher | None:
        """The lane that remembers this seq, if any; a caller may have chosen its partition."""
        if len(self._lanes) == 1:
            return None
        writer_id = self._session.writer_id
        return next(
            (
                lane
                for lane in self._lanes
                if lane.sink.acknowledged.writer(writer_id).batch_of(seq) is not None
            ),
            None,
        )

    def answer(self, lane: PartitionBatcher, seq: int, fields: RecordFields) -> RepeatedRecord:
        """The append of a record whose seq is at or below its lane's highest.

        ForgottenSeqError; ConflictError while the first append is in flight. The outcome is
        `refused` only if the log certainly has no record of this seq.
        """
        writer = lane.sink.acknowledged.writer(self._session.writer_id)
        batch = writer.batch_of(seq)
        if batch is None and seq > writer.seq_highest:
            in_flight = ConflictError(
                f"{self._who(seq)} is in flight, or was left out before seqs in flight: wait"
                " for their answers"
            )
            in_flight.outcome = "unknown"
            raise in_flight
        if batch is None:
            raise self._forgotten(lane, seq)
        return RepeatedRecord(lambda: self._compared(lane.sink.name, batch, seq, fields))

    def _forgotten(self, lane: PartitionBatcher, seq: int) -> ForgottenSeqError:
        """The error for a seq below the highest whose place is not known."""
        if all(self._is_surely_absent(one, seq) for one in self._lanes):
            left_out = ForgottenSeqError(
                f"{self._who(seq)} was left out and is not in the log; the highest seq is"
                f" {lane.seq_highest}: append this record under a higher one"
            )
            left_out.outcome = "refused"
            return left_out
        return ForgottenSeqError(
            f"{self._who(seq)} is not remembered: the highest seq is {lane.seq_highest}, and"
            f" only the last {BATCHES_REMEMBERED} batches are remembered. Read the stream to"
            " see whether it is there"
        )

    def _is_surely_absent(self, lane: PartitionBatcher, seq: int) -> bool:
        writer = lane.sink.acknowledged.writer(self._session.writer_id)
        return seq > lane.seq_highest or writer.is_left_out(seq)

    def _who(self, seq: int) -> str:
        return f"seq {seq} of writer {self._session.writer_id.decode()}"

    async def _read(self, name: PartitionName, batch: WrittenBatch, seq: int) -> Batch:
        """Read the batch in the log that has this seq. Each error says that it was appended."""
        assert self._read_back is not None
        try:
            return await self._read_back(name, batch)
        except TrimmedError as error:
            trimmed = ForgottenSeqError(
                f"{self._who(seq)} was appended, and trimmed since: {error}"
            )
            trimmed.outcome = "duplicate"
            raise trimmed from None
        except DataLostError as error:
            lost = DataLostError(f"{self._who(seq)} was appended, and is lost: {error}")
            lost.outcome = "duplicate"
            raise lost from error
        except GeologError as error:
            raise RepeatUnreadError(
                f"{self._who(seq)} is in the log already, but its bytes cannot be read and"
                f" compared: {error}. Append it again later"
            ) from error

    async def _compared(
        self, name: PartitionName, batch: WrittenBatch, seq: int, fields: RecordFields
    ) -> Receipt:
        row = batch.seqs.row_of(seq)
        assert row is not None, f"{batch} has no seq {seq}"
        there = await self._read(name, batch, seq)
        found = (
            there.value(row), there.key(row), there.headers(row), there.transaction_id(row)
        )  # fmt: skip
        given = (fields.value, fields.key, dict(fields.headers or {}), fields.transaction_id)
        if found != given:
            raise ConflictError(f"{self._who(seq)} was appended before with different bytes")
        return Receipt(
            name.number,
            DLSN(batch.segment, batch.entry, batch.slot + row),
            batch.first_sequence + row,
            self._home_epoch,
            duplicate=True,
        )
