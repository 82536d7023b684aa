"""What a history shows of its reads: where they began and ended, what they were given."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from geolog.client.reading.bounds import (
    AtDlsn,
    AtSequence,
    AtTime,
    AtTransaction,
    Bound,
    LastRecords,
)
from sim.laws.history.appends import known_records, name_of
from sim.world.history import Append, Ending, Found, History, Item, Missing, ReaderWalk


def reads_hold_all_before_them(history: History, ending: Ending) -> Iterator[str]:
    """Law 1: a read holds what was answered OK before it began, from its start on.

    What was trimmed while it ran it may hold or not.
    """
    known = known_records(history, ending)
    acknowledged = history.acknowledged()
    ends = {partition: ending.end(partition) for partition in range(history.partitions[1])}
    for read in history.reads:
        if not read.has_reached_end or not (read.is_of_all or read.start is not None):
            continue
        lists = read.by_partition()
        for append in acknowledged:
            if not _is_due(read, append):
                continue
            found = known.get(append.place)
            if read.start is not None and not (
                found and _is_wanted(read.start, found, ends[found.partition])
            ):
                continue
            if not _is_covered(lists.get(append.partition, []), append.sequence or 0):
                yield (
                    f"a read of {read.reader} from {read.start or 'the earliest'} was not given"
                    f" sequence {append.sequence} of partition {append.partition}, which had"
                    " been acknowledged before it began"
                )
                break


def _is_due(read: ReaderWalk, append: Append) -> bool:
    """Whether it was answered before the read began, and was there until that ended."""
    assert append.sequence is not None
    return (
        append.answered_at is not None
        and append.answered_at < read.begun_at
        and append.partition in read.partitions
        and append.sequence >= read.trims_ended.get(append.partition, 0)
    )


def _is_covered(items: Sequence[Item], sequence: int) -> bool:
    return bool(items) and start_of(items) <= sequence < end_of(items)


def _is_wanted(start: Bound, found: Found, end: int) -> bool:
    """Whether a read from there on has the record; at last the partition ends at `end`."""
    match start:
        case AtSequence(sequence, _):
            return found.sequence >= sequence
        case AtDlsn(dlsn):
            return found.dlsn >= dlsn
        case AtTime(time_us):
            return found.timestamp_us >= time_us
        case AtTransaction(transaction_id):
            return found.transaction_id is not None and found.transaction_id >= transaction_id
        case LastRecords(count):
            return found.sequence >= end - count
        case _:
            return True


def reads_begin_where_they_should(history: History, _ending: Ending) -> Iterator[str]:
    """Law 14: a read of all begins at the trim, another at the place that it names."""
    for read in history.reads:
        for partition, items in read.by_partition().items():
            least, most = read.trims.get(partition, 0), read.trims_first.get(partition, 0)
            first = items[0]
            if read.is_of_all and not least <= start_of(items) <= most:
                yield (
                    f"a read of {read.reader} began at {start_of(items)} of partition"
                    f" {partition}, whose first was {least} to {most}"
                )
            elif isinstance(first, Found) and not _may_begin(read.start, first, least, most):
                yield f"a read of {read.reader} from {read.start} began at {first.dlsn}"


def _may_begin(start: Bound | None, first: Found, least: int, most: int) -> bool:
    """Whether a read from a place may begin with the record, or cannot be judged by it."""
    if start is None or isinstance(start, LastRecords):
        return True
    # What begins at the trim may begin with records that have no transaction id.
    is_at_trim = least <= first.sequence <= most
    has_no_id = isinstance(start, AtTransaction) and first.transaction_id is None
    return _is_wanted(start, first, 0) or (has_no_id and is_at_trim)


def reads_have_no_holes(history: History, ending: Ending) -> Iterator[str]:
    """Law 14: positions given to a reader are consecutive, but for gaps that it is told."""
    for read in history.reads:
        for partition, items in read.by_partition().items():
            hole = _first_hole(items)
            if hole is not None:
                yield f"a read of {read.reader} of partition {partition} was given {hole}"
    for partition, found in ending.by_partition().items():
        hole = _first_hole(found)
        if hole is not None:
            yield f"the last read of partition {partition} was given {hole}"
        if found[0].sequence != ending.trim(partition):
            yield (
                f"the last read of partition {partition} began at {found[0].sequence}, and what"
                f" is there begins at {ending.trim(partition)}"
            )


def gaps_are_true(history: History, _ending: Ending) -> Iterator[str]:
    """Law 14: what a reader is told to be trimmed lies before the beginning."""
    for read in history.reads:
        for item in read.items:
            if not isinstance(item, Missing):
                continue
            first = item.from_sequence
            if item.to_sequence > item.trim or (
                first is not None and first >= item.to_sequence
            ):
                yield (
                    f"{read.reader} was told that {first} to {item.to_sequence} of partition"
                    f" {item.partition} are trimmed, which begins at {item.trim}"
                )


def truncations_do_as_asked(history: History, ending: Ending) -> Iterator[str]:
    """Law 14: what a truncation says is gone is gone for good."""
    for one in history.truncations:
        if one.answered is None:
            continue
        if one.answered > ending.trim(one.partition):
            yield (
                f"partition {one.partition} was said to begin at {one.answered}, and begins at"
                f" {ending.trim(one.partition)}"
            )
        if one.answered < one.reaches:
            yield (
                f"partition {one.partition} was to be cut at {one.reaches}, and was said to"
                f" begin at {one.answered}"
            )


def shown_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 11: what a reader was shown never goes, unless it is trimmed, and never changes."""
    there = ending.by_place()
    for place in history.shown_otherwise:
        yield f"{place} was shown with two different values"
    for place, record in sorted(history.shown.items()):
        if not ending.is_trimmed(place) and there.get(place) != record:
            yield f"{place} was shown as {name_of(record.value)} and is gone, or another"


def sealed_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 4: whoever reads a sealed stream to its end comes to the same end."""
    if not history.is_seal_asked:
        return
    ends = {partition: ending.end(partition) for partition in range(history.partitions[1])}
    for read in history.reads:
        is_late = history.sealed_at is not None and read.begun_at > history.sealed_at
        is_followed = not read.is_of_all and read.start is None
        if not read.has_reached_end or not (is_followed or is_late):
            continue
        for partition, items in read.by_partition().items():
            if end_of(items) != ends[partition]:
                yield (
                    f"a read of {read.reader} ended at {end_of(items)} of partition"
                    f" {partition}, which is sealed at {ends[partition]}"
                )


def nothing_is_damaged(history: History, _ending: Ending) -> Iterator[str]:
    """Law 15: nobody is refused for good without a cause."""
    yield from history.harsh_errors


def list_order_is_append_order(_history: History, ending: Ending) -> Iterator[str]:
    """Law 9: segments, entries and append times rise with the sequence."""
    for found in ending.by_partition().values():
        for before, after in pairwise(found):
            if after.dlsn <= before.dlsn:
                yield f"{after.dlsn} follows {before.dlsn} at sequence {after.sequence}"
            if after.timestamp_us < before.timestamp_us:
                yield f"append times fall at sequence {after.sequence}"


def start_of(items: Sequence[Item]) -> int:
    """The first sequence that these speak of."""
    first = items[0]
    return first.sequence if isinstance(first, Found) else first.from_sequence or 0


def end_of(items: Sequence[Item]) -> int:
    """Behind the last."""
    last = items[-1]
    return last.sequence + 1 if isinstance(last, Found) else last.to_sequence


def _first_hole(items: Sequence[Item]) -> str | None:
    for before, after in pairwise(items):
        due = end_of([before])
        found = after.sequence if isinstance(after, Found) else after.from_sequence
        if found not in (None, due):
            return f"{found} where {due} was due"
    return None
