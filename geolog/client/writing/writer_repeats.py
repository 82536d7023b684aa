"""Repeated records of a named writer: sent to the owner that has them, and answered one by one.

Records that are sent again gather in batches, like new ones, but in no window: a batch leaves
when it is full, or when a task waits for the first of its answers. The owner compares them with
the log.

Rules: PROTOCOL S19.
"""

from collections.abc import Sequence
from typing import assert_never

import attrs

from geolog.client.writing.open_batch import OpenBatch
from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer_pending import Receipt, ReceiptTerms, RepeatedRecord
from geolog.partition.batch_sink import SentBatch
from geolog.partition.repeated_batch import ForgottenSeqError
from geolog.protocol.ids import DLSN
from geolog.protocol.owner_answers import (
    AppendRefused,
    OwnerEnded,
    Placed,
    Received,
    Repeated,
    Unknown,
)
from topology.errors import ConflictError


@attrs.define(eq=False)
class _Repeats:
    """Records that are sent again to one partition, together."""

    lane: PartitionBatcher
    terms: ReceiptTerms
    records: OpenBatch
    sent: SentBatch | None = None

    def send(self) -> SentBatch:
        """Send them, unless that was done before."""
        if self.sent is None:
            self.sent = self.lane.append_repeats(self.records)
        return self.sent

    async def receipt(self, row: int) -> Receipt:
        """The receipt of the record in this row."""
        sent, terms = self.send(), self.terms
        await sent.done.wait()
        answer = sent.answer
        match answer:
            case Repeated(records):
                first = await records.answer(row)
                return Receipt(
                    terms.partition,
                    first.dlsn,
                    first.sequence,
                    terms.sink.home_epoch_of(first.dlsn.segment),
                    duplicate=True,
                    valid_until_s=first.valid_until_s,
                )
            case Placed():  # The owner has refused the seq meanwhile: it is new.
                return Receipt(
                    terms.partition,
                    DLSN(answer.segment, answer.entry, answer.slot + row),
                    answer.first_sequence + row,
                    terms.sink.home_epoch_of(answer.segment),
                    valid_until_s=answer.valid_until_s,
                )
            case AppendRefused(error=error) | Unknown(error=error) | OwnerEnded(error=error):
                raise error
            case None | Received():
                raise AssertionError(f"{answer} is not the last answer")
            case _:
                assert_never(answer)


class WriterRepeats:
    """Answers records that a named writer has in the log already."""

    def __init__(
        self,
        writer_id: bytes,
        lanes: Sequence[PartitionBatcher],
        terms: Sequence[ReceiptTerms],
        *,
        batch_bytes: int,
    ) -> None:
        """`terms`: of the receipts from each lane."""
        self._writer_id = writer_id
        self._lanes = lanes
        self._batch_bytes = batch_bytes
        self._terms = terms
        self._gathering: list[_Repeats | None] = [None] * len(lanes)

    def __repr__(self) -> str:
        return f"WriterRepeats({self._writer_id!r}, {len(self._lanes)} lanes)"

    def place_that_has(self, seq: int) -> int | None:
        """The lane that remembers this seq, if any; a caller may have chosen its partition."""
        if len(self._lanes) == 1:
            return None
        return next(
            (place for place, lane in enumerate(self._lanes) if lane.known.has(seq)), None
        )

    def surely_lack(self, seq: int, *, except_in: int) -> bool:
        """Whether certainly no partition but this one has a record of the seq."""
        return all(
            lane.surely_lacks(seq)
            for place, lane in enumerate(self._lanes)
            if place != except_in
        )

    def append(self, place: int, fields: RecordFields, size_bytes: int) -> RepeatedRecord:
        """Take in a record whose seq is at or below the highest of the lane in this place.

        ConflictError while the first append is in flight.
        """
        seq, lane = fields.seq, self._lanes[place]
        assert seq is not None
        if seq > lane.seq_answered:
            in_flight = ConflictError(
                f"{self._who(seq)} is in flight, or was left out before seqs in flight: wait"
                " for their answers"
            )
            in_flight.outcome = "unknown"
            raise in_flight
        repeats = self._gathering_with(place, fields, size_bytes)
        row = repeats.records.add(fields, created_us=0, size_bytes=size_bytes)
        return RepeatedRecord(lambda: self._answer(repeats, row, seq))

    def _gathering_with(self, place: int, fields: RecordFields, size_bytes: int) -> _Repeats:
        """The repeats that the record joins; full ones are sent."""
        repeats, seq = self._gathering[place], fields.seq
        if repeats is not None and repeats.sent is None:
            records = repeats.records
            assert records.seqs is not None
            assert seq is not None
            if records.seqs.last < seq and records.goes_on_with(
                fields, size_bytes, self._batch_bytes
            ):
                return repeats
            repeats.send()
        # The log may not have them after all, and append them then.
        records = OpenBatch(is_local_only=fields.local_only)
        repeats = _Repeats(self._lanes[place], self._terms[place], records)
        self._gathering[place] = repeats
        return repeats

    async def _answer(self, repeats: _Repeats, row: int, seq: int) -> Receipt:
        """The receipt. Its error is `refused` only if no partition has a record of the seq."""
        try:
            return await repeats.receipt(row)
        except ForgottenSeqError as error:
            if error.outcome != "refused" or all(
                one.surely_lacks(seq) for one in self._lanes if one is not repeats.lane
            ):
                raise
            elsewhere = ForgottenSeqError(
                f"{self._who(seq)} is not remembered: it was left out in the partition of its"
                " key, but another may have it. Read the stream to see whether it is there"
            )
            raise elsewhere from error

    def _who(self, seq: int) -> str:
        return f"seq {seq} of writer {self._writer_id.decode()}"
