"""Defects of writers: each function replaces a good method."""

from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.partition.repeated_batch import RepeatedBatch
from geolog.protocol.batch_seqs import BatchSeqs
from geolog.protocol.owner_answers import FirstPlace
from geolog.protocol.partition_state import WrittenBatch
from geolog.wire.batch import Batch, SealedBatch, seal_batch
from geolog.wire.entry import WriterStamp
from sim.planted.planted_bug import PlantedBug

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_compared = RepeatedBatch._compared


def has_room_in_lane(
    _writer: Writer, lane: PartitionBatcher, fields: RecordFields, size_bytes: int
) -> bool:
    """Take records, however many bytes are in flight."""
    return lane.has_room(fields, size_bytes)


async def compare_with_itself(
    repeated: RepeatedBatch, written: WrittenBatch, seq: int, _row: int
) -> FirstPlace:
    """Compare a repeat with itself instead of the log."""
    there = await repeated._read(written, seq)
    row_there = written.seqs.row_of(seq)
    assert row_there is not None
    same = RepeatedBatch(
        repeated._name,
        _sealed_row(there, row_there),
        WriterStamp(repeated._writer_id, 0, BatchSeqs(seq, 1)),
        repeated._writer,
        repeated._read_back,
    )
    return await _compared(same, written, seq, 0)


def _sealed_row(batch: Batch, row: int) -> SealedBatch:
    """A batch of this record alone."""
    return seal_batch(
        [batch.value(row)],
        created_us=batch.created_us(row),
        keys=[batch.key(row)],
        transaction_ids=[batch.transaction_id(row)],
        headers=[batch.headers(row)],
    )


async def read_and_pass_on(repeated: RepeatedBatch, written: WrittenBatch, _seq: int) -> Batch:
    """Read the log; if that fails, report it as if nothing were known of the record."""
    return await repeated._read_back(repeated._name, written)


WRITER_BUGS: dict[str, PlantedBug] = {
    "unbounded-writer": PlantedBug(
        63,
        "a writer takes records without a bound",
        [(Writer, "_has_room", has_room_in_lane)],
    ),
    "bytes-not-compared": PlantedBug(
        64,
        "a repeat is not compared with the record in the log",
        [(RepeatedBatch, "_compared", compare_with_itself)],
    ),
    "repeat-as-refused": PlantedBug(
        80,
        "the repeat of a record in the log that cannot be read is reported as refused",
        [(RepeatedBatch, "_read", read_and_pass_on)],
    ),
}
"""These bugs, by name."""
