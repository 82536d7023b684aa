"""Laws about reads: where they begin and end, and what they give."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    Place,
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
            found, items = known.get(append.place), lists.get(append.partition, [])
            # A fork may have left the last records behind since.
            end = max([ends[append.partition], *([end_of(items)] if items else [])])
            if read.start is not None and not (found and _is_wanted(read.start, found, end)):
                continue
            if not _is_covered(items, append.sequence or 0):
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
    if isinstance(start, AtDlsn):  # That of a record that somebody was shown.
        return first.dlsn == start.dlsn
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
    for partition, found in ending.items_by_partition().items():
        hole = _first_hole(found)
        if hole is not None:
            yield f"the last read of partition {partition} was given {hole}"
        least, most = ending.trim_first(partition), ending.trim(partition)
        if not least <= start_of(found) <= most:
            yield (
                f"the last read of partition {partition} began at {start_of(found)};"
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
    """Law 18: readers get local-only records in the region of their home, and others a gap.

    There is a gap for no other record. In the region of its home, a reader gets it if it reads
    there; in the end any reader does, unless mirrors may have gone on without it.
    """
    kept = [one for found in history.rests.values() for one in found]
    local = {
        (found.place, found.home_epoch): history.is_local_only(found.value)
        for found in (*known_records(history, ending).values(), *history.shown_aside, *kept)
    }
    for read in history.reads:
        is_at_home = not (read.is_abroad or read.is_of_mirror)
        for words in _withheld_or_leaked(
            history, read.items, read.region, local, is_there=is_at_home
        ):
            yield f"{read.reader} {words}"
    at_home: list[Item] = [*ending.found, *ending.elsewhere]
    for region, items in ({ending.region: at_home} | ending.abroad).items():
        for words in _withheld_or_leaked(
            history, items, region, local, is_there=not history.may_evict
        ):
            yield f"the last read in {region} {words}"


def _withheld_or_leaked(
    history: History,
    items: Iterable[Item],
    region: str,
    local: Mapping[tuple[Place, int], bool],
    *,
    is_there: bool,
) -> Iterator[str]:
    """Records given outside their region, and gaps that hide what is there.

    local: by place and home epoch, whether the record there is local-only. is_there: whether it
    surely read a log that has all records of this region.
    """
    for item in items:
        if isinstance(item, Found):
            origin = history.home_regions.get(item.home_epoch, region)
            if origin != region and history.is_local_only(item.value):
                yield f"was given {words_of(item.place)}, which is local-only in {origin}"
            continue
        if not item.is_local_only:
            continue
        is_own = history.home_regions.get(item.home_epoch) == region
        for place in item.places:
            if (is_own and is_there) or not local.get((place, item.home_epoch), True):
                yield f"got a gap of local-only records at {words_of(place)}"


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
    there, elsewhere = ending.by_place(), ending.places_elsewhere()
    for place in history.shown_otherwise:
        yield f"different records were shown at {words_of(place)}"
    for place, record in sorted(history.shown.items()):
        if place in elsewhere and history.is_local_only(record.value):
            continue
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
