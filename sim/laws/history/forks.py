"""Laws about failovers: what a fork left behind is kept, told of, and in no stream."""

from collections.abc import Iterator
from itertools import pairwise

from geolog.client.reading.bounds import AtDlsn, AtSequence
from geolog.protocol.stream_state import FIRST_HOME_EPOCH
from sim.laws.history.appends import is_same, name_of, out_of_order
from sim.world.history import Append, Ending, Found, History, Missing, words_of


def left_behind_is_kept(history: History, _ending: Ending) -> Iterator[str]:
    """Law 1: an acknowledged record that is left behind is kept aside, at its place."""
    kept = _kept(history)
    for append in history.left_behind():
        found = kept.get((append.partition, append.dlsn))
        if found is None and append.is_local_only:
            continue  # It may be kept in another region than that of the last read.
        if found is None or not is_same(append, found):
            yield (
                f"{name_of(append.value)} was acknowledged at {append.dlsn} of partition"
                f" {append.partition}, which a fork left behind; kept aside is"
                f" {'nothing' if found is None else name_of(found.value)}"
            )


def left_behind_is_told(history: History, _ending: Ending) -> Iterator[str]:
    """Law 1: only a failover leaves acknowledged records behind, and tells from where on."""
    told = {
        (one.home_epoch, each.partition): each.from_sequence
        for one in history.failovers
        for each in one.ranges
        if not one.is_nothing_lost
    }
    for append in history.left_behind():
        epochs = [
            fork.home_epoch
            for fork in history.forks_of(append.partition)
            if _is_behind(append, fork.segment, fork.entry, fork.segment_next)
        ]
        assert append.sequence is not None
        if not any(
            told.get((epoch, append.partition), append.sequence + 1) <= append.sequence
            for epoch in epochs
        ):
            yield (
                f"{name_of(append.value)} at {append.dlsn} of partition {append.partition},"
                f" {words_of(append.place)}, was left behind by home epoch {epochs}, and no"
                f" failover told of it: {told}"
            )


def _is_behind(append: Append, segment: int, entry: int, segment_next: int) -> bool:
    assert append.dlsn is not None
    place = append.dlsn.segment, append.dlsn.entry
    return place >= (segment, entry) and append.dlsn.segment < segment_next


def replaced_homes_answer_nobody(history: History, _ending: Ending) -> Iterator[str]:
    """Law 10: a home that stops when it is cut off answers nobody once another one begins."""
    if not history.stops_when_isolated:
        return
    failed_over = {one.home_epoch for one in history.failovers}
    for append in history.acknowledged() + history.left_behind():
        if append.is_duplicate:
            continue
        assert append.dlsn is not None
        for fork in history.forks_of(append.partition):
            is_of_earlier = append.dlsn.segment < fork.segment_next
            is_late = append.home_epoch_then >= fork.home_epoch
            # An owner that was cut off meanwhile may never have heard that it is to stop.
            has_to_stop = _home_epoch_of(history, append) not in history.unstopped_epochs
            is_wrong = is_of_earlier and is_late and has_to_stop
            if fork.home_epoch in failed_over and is_wrong:
                yield (
                    f"{name_of(append.value)} was answered at {append.dlsn} of partition"
                    f" {append.partition} in home epoch {append.home_epoch_then}; its home"
                    f" stops when it is cut off, and was replaced by epoch {fork.home_epoch}"
                )


def _home_epoch_of(history: History, append: Append) -> int:
    assert append.dlsn is not None
    segment = append.dlsn.segment
    begun = [
        one.home_epoch
        for one in history.forks_of(append.partition)
        if one.segment_next <= segment
    ]
    return max(begun, default=FIRST_HOME_EPOCH)


def shown_is_kept(history: History, _ending: Ending) -> Iterator[str]:
    """Law 11: a record that was shown, and then left behind, is kept aside as it was shown."""
    kept = _kept(history)
    for record in history.shown_aside:
        found = kept.get((record.partition, record.dlsn))
        if found is None and history.is_local_only(record.value):
            continue
        if found != record:
            yield (
                f"{name_of(record.value)} was shown at {record.dlsn} of partition"
                f" {record.partition}, which a fork left behind; kept aside is"
                f" {'nothing' if found is None else name_of(found.value)}"
            )


def epochs_are_in_order(history: History, _ending: Ending) -> Iterator[str]:
    """Law 13: of each home epoch, what was left behind was appended in its order."""
    lost = history.left_behind()
    for partition, segment_next in sorted(
        {(one.partition, _next(history, one)) for one in lost}
    ):
        yield from out_of_order(
            [
                one
                for one in lost
                if one.partition == partition and _next(history, one) == segment_next
            ]
        )


def _next(history: History, append: Append) -> int:
    """The lowest segment of the home behind the one where it was appended: it tells homes."""
    assert append.dlsn is not None
    return min(
        fork.segment_next
        for fork in history.forks_of(append.partition)
        if append.dlsn.segment < fork.segment_next
    )


def branches_are_left_loudly(history: History, _ending: Ending) -> Iterator[str]:
    """Law 14: a reader leaves a branch behind a gap, which begins where a later home did."""
    for read in history.reads:
        for partition, items in read.by_partition().items():
            forks = history.forks_of(partition)
            begins = {fork.sequence for fork in forks}
            for item in items:
                if not (isinstance(item, Missing) and item.has_diverged):
                    continue
                first = item.from_sequence
                is_empty = first is not None and first >= item.to_sequence
                if item.sequence_next not in begins or is_empty:
                    yield (
                        f"{read.reader} got a gap from {first} to {item.to_sequence} of"
                        f" partition {partition}, whose homes began at {sorted(begins)}"
                    )
            for one, other in pairwise(items):
                if not (isinstance(one, Found) and isinstance(other, Found)):
                    continue
                if one.home_epoch < other.home_epoch and history.is_left_behind(
                    partition, one.dlsn
                ):
                    yield (
                        f"{read.reader} was given {one.dlsn} of partition {partition}, which a"
                        f" fork left behind, and then {other.dlsn} without a gap"
                    )


def dead_places_are_left_loudly(history: History, _ending: Ending) -> Iterator[str]:
    """Law 14: a read from a place that a fork left behind comes to later homes behind a gap."""
    for read in history.reads:
        if not read.items:
            continue
        partition, first = read.partitions[0], read.items[0]
        forks = history.forks_of(partition)
        match read.start:
            case AtDlsn(dlsn):
                place = dlsn.segment, dlsn.entry
                epochs = [
                    fork.home_epoch
                    for fork in forks
                    if place >= (fork.segment, fork.entry) and dlsn.segment < fork.segment_next
                ]
            case AtSequence(sequence, int(home_epoch)):
                epochs = [
                    fork.home_epoch
                    for fork in forks
                    if home_epoch < fork.home_epoch and sequence > fork.sequence
                ]
            case _:
                continue
        if epochs and isinstance(first, Found) and first.home_epoch >= min(epochs):
            yield (
                f"a read by {read.reader} from {read.start} of partition {partition}, which a"
                f" fork left behind, began at {first.dlsn} without a gap"
            )


def regions_read_the_same(history: History, ending: Ending) -> Iterator[str]:
    """Law 18: once a mirror has all, a read there gives what a read at the home gives."""
    at_home, elsewhere = set(ending.found), ending.places_elsewhere()
    for region, items in ending.abroad.items():
        for item in items:
            if isinstance(item, Missing) and item.has_diverged:
                yield (
                    f"a read of everything in {region} went through what a fork left behind, up"
                    f" to {item.to_sequence} of partition {item.partition}"
                )
            elif (
                isinstance(item, Found)
                and item not in at_home
                and not (history.is_local_only(item.value) and item.place in elsewhere)
                and item.sequence >= ending.trim(item.partition)  # Mirrors are trimmed later.
            ):
                yield (
                    f"{name_of(item.value)} was read in {region} at {item.dlsn} of partition"
                    f" {item.partition}, {words_of(item.place)}, and not at the home"
                )


def kept_is_in_no_stream(history: History, ending: Ending) -> Iterator[str]:
    """Law 16: what is kept aside is not in the stream as well, and equal wherever it is."""
    there = {found.value: found for found in ending.found}
    first: dict[tuple[int, object], Found] = {}
    for name, records in history.rests.items():
        elsewhere = history.rests_elsewhere.get(name, set())
        for one, other in pairwise(records):
            between = set(range(one.sequence + 1, other.sequence))
            is_next = one.sequence < other.sequence and between <= elsewhere
            if not is_next or other.dlsn <= one.dlsn:
                yield f"{name} keeps {one.dlsn}, and then {other.dlsn}"
        for record in records:
            append = history.appends.get(record.value)
            if append is None or not is_same(append, record):
                yield f"{name} keeps {name_of(record.value)}, which nobody sent so"
                continue
            if not history.is_left_behind(record.partition, record.dlsn):
                yield f"{name} keeps {record.dlsn}, which is in the stream"
            if first.setdefault((record.partition, record.dlsn), record) != record:
                yield f"{name} keeps another record at {record.dlsn} than another region"
            is_twice = record.value in there and not (
                append.is_sent_again or append.is_repeated
            )
            if is_twice:
                yield (
                    f"{name_of(record.value)} was sent once; {name} keeps it, and it is at"
                    f" {words_of(there[record.value].place)}"
                )


def sessions_end_with_a_loss(history: History, _ending: Ending) -> Iterator[str]:
    """Law 16: a session of which a home lacks an answered record appends nothing there."""
    lost = {one.session: one for one in history.left_behind()}
    for append in history.acknowledged():
        before = lost.get(append.session)
        if before is None or before.partition != append.partition:
            continue
        assert append.dlsn is not None
        if append.dlsn.segment >= _next(history, before):
            yield (
                f"{name_of(append.value)} was answered at {append.dlsn} in the session in which"
                f" {name_of(before.value)} had been answered, which that home lacks"
            )


def _kept(history: History) -> dict[tuple[int, object], Found]:
    return {(one.partition, one.dlsn): one for kept in history.rests.values() for one in kept}
