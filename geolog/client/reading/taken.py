"""How far an application has come in the run that it has in hand."""

from geolog.client.reading.record import Gap, Record, RecordBatch


def taken_to(run: RecordBatch | Gap, item: Record | Gap | None) -> int:
    """The sequence after what was taken. item: the last of its items, if taken one by one."""
    if isinstance(item, Record):
        return item.sequence + 1
    return run.sequence_next if isinstance(run, Gap) else run.end_sequence


def taken_before(item: Record | Gap | None) -> int | None:
    """The sequence after the items before this one; None if it is the whole run."""
    return item.sequence if isinstance(item, Record) else None
