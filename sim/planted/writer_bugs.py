"""Defects of writers: each function replaces a good method."""

from geolog.client.writing.partition_batcher import PartitionBatcher
from geolog.client.writing.record_fields import RecordFields
from geolog.client.writing.writer import Writer
from geolog.client.writing.writer_pending import Receipt
from geolog.client.writing.writer_repeats import WriterRepeats
from geolog.protocol.partition_state import WrittenBatch
from geolog.protocol.stream_state import PartitionName
from geolog.wire.batch import Batch
from sim.planted.planted_bug import PlantedBug

# A planted bug changes private state of the code that it breaks.
# ruff: noqa: SLF001

_compared = WriterRepeats._compared


def has_room_in_lane(
    _writer: Writer, lane: PartitionBatcher, fields: RecordFields, size_bytes: int
) -> bool:
    """Take records, however many bytes are in flight."""
    return lane.has_room(fields, size_bytes)


async def compare_with_itself(
    repeats: WriterRepeats,
    name: PartitionName,
    batch: WrittenBatch,
    seq: int,
    _fields: RecordFields,
) -> Receipt:
    """Compare a repeat with itself instead of the log."""
    assert repeats._read_back is not None
    there = await repeats._read_back(name, batch)
    row = batch.seqs.row_of(seq)
    assert row is not None
    same = RecordFields(
        value=there.value(row),
        key=there.key(row),
        headers=there.headers(row),
        transaction_id=there.transaction_id(row),
    )
    return await _compared(repeats, name, batch, seq, same)


async def read_and_pass_on(
    repeats: WriterRepeats, name: PartitionName, batch: WrittenBatch, _seq: int
) -> Batch:
    """Read the log; if that fails, report it as if nothing were known of the record."""
    assert repeats._read_back is not None
    return await repeats._read_back(name, batch)


WRITER_BUGS: dict[str, PlantedBug] = {
    "unbounded-writer": PlantedBug(
        63,
        "a writer takes records without a bound",
        [(Writer, "_has_room", has_room_in_lane)],
    ),
    "bytes-not-compared": PlantedBug(
        64,
        "a repeat is not compared with the record in the log",
        [(WriterRepeats, "_compared", compare_with_itself)],
    ),
    "repeat-as-refused": PlantedBug(
        80,
        "the repeat of a record in the log that cannot be read is reported as refused",
        [(WriterRepeats, "_read", read_and_pass_on)],
    ),
}
"""These bugs, by name."""
