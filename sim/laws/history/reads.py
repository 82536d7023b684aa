"""Laws about reads: where they begin and end, and what they give."""

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
from sim.world.history import (
    Append,
    Ending,
    Found,
    History,
    Item,
    Missing,
    ReaderWalk,
    words_of,
)


def reads_hold_all_before_them(history: History, ending: Ending) -> Iterator[str]:
    """Law 1: a read holds every record from its start on that was acknowledged before it began.

    Records trimmed while it ran are optional. A mirror may be behind its home.
    """
    known = known_records(history, ending)
    acknowledged = history.acknowledged()
    ends = {partition: ending.end(partition) for partition in range(history.partitions[1])}
    for read in history.reads:
        is_whole = read.is_of_all or read.start is not None
        if not read.has_reached_end or not is_whole or read.is_of_mirror:
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
                    f"a read by {read.reader} from {read.start or 'the earliest'} lacks"
                    f" sequence {append.sequence} of partition {append.partition},"
                    " which was acknowledged before it began"
                )
                break


def _is_due(read: ReaderWalk, append: Append) -> bool:
    """Whether it was acknowledged before the read began, and stayed until the read ended."""
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
    """Whether a read from that start includes the record; `end` is where the partition ends."""
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
    """Law 14: a full read begins at the trim, any other at the start that it names."""
    for read in history.reads:
        for partition, items in read.by_partition().items():
            least, most = read.trims.get(partition, 0), read.trims_first.get(partition, 0)
            if read.is_of_mirror:  # It is trimmed a little later than its home.
                least = 0
            first = items[0]
            if read.is_of_all and not least <= start_of(items) <= most:
                yield (
                    f"a read by {read.reader} began at {start_of(items)} of partition"
                    f" {partition}, which began at {least} to {most}"
                )
            elif isinstance(first, Found) and not _may_begin(read.start, first, least, most):
                yield f"a read by {read.reader} from {read.start} began at {first.dlsn}"


def _may_begin(start: Bound | None, first: Found, least: int, most: int) -> bool:
    """Whether a read from that start may begin with the record, or cannot be judged by it."""
    if start is None or isinstance(start, LastRecords):
        return True
    # A read that begins at the trim may begin with records that have no transaction id.
    is_at_trim = least <= first.sequence <= most
    has_no_id = isinstance(start, AtTransaction) and first.transaction_id is None
    return _is_wanted(start, first, 0) or (has_no_id and is_at_trim)


def reads_have_no_holes(history: History, ending: Ending) -> Iterator[str]:
    """Law 14: positions given to a reader are consecutive, but for reported gaps."""
    for read in history.reads:
        for partition, items in read.by_partition().items():
            hole = _first_hole(items)
            if hole is not None:
                yield f"a read by {read.reader} of partition {partition} was given {hole}"
    for partition, found in ending.by_partition().items():
        hole = _first_hole(found)
        if hole is not None:
            yield f"the last read of partition {partition} was given {hole}"
        least, most = ending.trim_first(partition), ending.trim(partition)
        if not least <= found[0].sequence <= most:
            yield (
                f"the last read of partition {partition} began at {found[0].sequence};"
                f" the partition began at {least} to {most}"
            )


def gaps_are_true(history: History, _ending: Ending) -> Iterator[str]:
    """Law 14: records that are reported as trimmed lie before the partition's beginning."""
    for read in history.reads:
        for item in read.items:
            if not isinstance(item, Missing) or item.has_diverged or item.is_local_only:
                continue
            first = item.from_sequence
            if item.to_sequence > item.trim or (
                first is not None and first >= item.to_sequence
            ):
                yield (
                    f"{read.reader} got a gap from {first} to {item.to_sequence} of partition"
                    f" {item.partition}, which begins at {item.trim}"
                )


def local_only_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 18: readers abroad get a gap for local-only records, and for no others."""
    known = known_records(history, ending)
    for read in history.reads:
        for item in read.items:
            if isinstance(item, Found):
                append = history.appends.get(item.value)
                if read.is_abroad and append is not None and append.is_local_only:
                    yield (
                        f"{read.reader} is abroad, and was given {words_of(item.place)}, which"
                        " is local-only"
                    )
                continue
            if not item.is_local_only:
                continue
            for sequence in range(item.from_sequence or 0, item.to_sequence):
                there = known.get((item.partition, sequence))
                append = None if there is None else history.appends.get(there.value)
                if not read.is_abroad or (append is not None and not append.is_local_only):
                    yield (
                        f"{read.reader} got a gap of local-only records at"
                        f" {words_of((item.partition, sequence))}"
                    )


def truncations_do_as_asked(history: History, ending: Ending) -> Iterator[str]:
    """Law 14: records that a truncation reports as gone are gone for good."""
    for one in history.truncations:
        if one.answered is None:
            continue
        if one.answered > ending.trim(one.partition):
            yield (
                f"a truncation reported {one.answered} as the start of partition"
                f" {one.partition}, which begins at {ending.trim(one.partition)}"
            )
        if one.answered < one.reaches:
            yield (
                f"a truncation of partition {one.partition} to at least {one.reaches} only"
                f" reached {one.answered}"
            )


def shown_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 11: a record that a reader was shown never changes, and stays until it is trimmed."""
    there = ending.by_place()
    for place in history.shown_otherwise:
        yield f"different records were shown at {words_of(place)}"
    for place, record in sorted(history.shown.items()):
        if not ending.is_trimmed(place) and there.get(place) != record:
            yield (
                f"{name_of(record.value)} was shown at {words_of(place)}, and is gone or"
                " changed"
            )


def sealed_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 4: all reads of a sealed stream to its end come to the same end."""
    if not history.is_seal_asked:
        return
    ends = {partition: ending.end(partition) for partition in range(history.partitions[1])}
    for read in history.reads:
        is_late = history.sealed_at is not None and read.begun_at > history.sealed_at
        is_followed = not read.is_of_all and read.start is None
        is_at_home = not read.is_of_mirror
        if not read.has_reached_end or not (is_followed or (is_late and is_at_home)):
            continue
        for partition, items in read.by_partition().items():
            if end_of(items) != ends[partition]:
                yield (
                    f"a read by {read.reader} ended at {end_of(items)} of partition"
                    f" {partition}, which is sealed at {ends[partition]}"
                )


def nothing_is_damaged(history: History, _ending: Ending) -> Iterator[str]:
    """Law 15: no reader is refused for good without a cause."""
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
    """The first sequence of these items."""
    first = items[0]
    if isinstance(first, Missing) and first.has_diverged:
        return first.sequence_next
    return first.sequence if isinstance(first, Found) else first.from_sequence or 0


def end_of(items: Sequence[Item]) -> int:
    """The sequence after the last of these items."""
    last = items[-1]
    return last.sequence + 1 if isinstance(last, Found) else last.sequence_next


def _first_hole(items: Sequence[Item]) -> str | None:
    for before, after in pairwise(items):
        due = end_of([before])
        if isinstance(after, Missing) and after.has_diverged:
            found: int | None = after.to_sequence  # The place that the reader had reached.
        else:
            found = after.sequence if isinstance(after, Found) else after.from_sequence
        if found not in (None, due):
            return f"{found} instead of {due}"
    return None
