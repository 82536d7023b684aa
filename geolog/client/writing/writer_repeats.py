"""Records of a named writer that come again: found in the log, and compared with it."""

from collections.abc import Awaitable, Callable, Sequence

from geolog.client.writing.filling import WriterSession
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer_lane import WriterLane
from geolog.client.writing.writer_pending import Receipt, RepeatedRecord
from geolog.protocol.ids import DLSN
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch
from topology.errors import ConflictError, TrimmedError

ReadBack = Callable[[PartitionName, WrittenBatch], Awaitable[Batch]]
"""Reads a batch that was appended before. DataLostError, UnavailableError."""


class ForgottenSeqError(ConflictError):
    """A seq is below the highest of its writer, and its record is forgotten or trimmed."""


class WriterRepeats:
    """Answers what a named writer has in the log already."""

    def __init__(
        self,
        session: WriterSession,
        lanes: Sequence[WriterLane],
        *,
        home_epoch: int,
        read_back: ReadBack | None,
    ) -> None:
        self._session = session
        self._lanes = lanes
        self._home_epoch = home_epoch
        self._read_back = read_back

    def lane_that_has(self, seq: int) -> WriterLane | None:
        """The lane that remembers this seq: it may have been addressed to that partition."""
        if len(self._lanes) == 1:
            return None
        writer_id = self._session.writer_id
        return next(
            (
                lane
                for lane in self._lanes
                if lane.taker.acknowledged.writer(writer_id).batch_of(seq) is not None
            ),
            None,
        )

    def answer(self, lane: WriterLane, seq: int, fields: RecordFields) -> RepeatedRecord:
        """The append of a record whose seq is at or below the highest of its lane.

        ForgottenSeqError; ConflictError while the first one is on its way.
        """
        writer = lane.taker.acknowledged.writer(self._session.writer_id)
        batch = writer.batch_of(seq)
        if batch is None and seq > writer.seq_highest:
            raise ConflictError(
                f"{self._who(seq)} is on its way, or was left out before others that are: wait"
                " for their answers"
            )
        if batch is None:
            raise ForgottenSeqError(
                f"{self._who(seq)} is not remembered: {lane.seq_highest} was appended already"
            )
        return RepeatedRecord(lambda: self._compared(lane.taker.name, batch, seq, fields))

    def _who(self, seq: int) -> str:
        return f"seq {seq} of writer {self._session.writer_id.decode()}"

    async def _compared(
        self, name: PartitionName, batch: WrittenBatch, seq: int, fields: RecordFields
    ) -> Receipt:
        assert self._read_back is not None
        row = batch.seqs.row_of(seq)
        assert row is not None, f"{batch} has no seq {seq}"
        try:
            there = await self._read_back(name, batch)
        except TrimmedError as error:
            raise ForgottenSeqError(
                f"{self._who(seq)} was appended, and trimmed since: {error}"
            ) from None
        found = (
            there.value(row), there.key(row), there.headers(row), there.transaction_id(row)
        )  # fmt: skip
        given = (fields.value, fields.key, dict(fields.headers or {}), fields.transaction_id)
        if found != given:
            raise ConflictError(f"{self._who(seq)} was appended before with other bytes")
        return Receipt(
            name.number,
            DLSN(batch.segment, batch.entry, batch.slot + row),
            batch.first_sequence + row,
            self._home_epoch,
            duplicate=True,
        )
