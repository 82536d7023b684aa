"""Laws about appends: each answer is compared with the log."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from crc32c import crc32c

from sim.world.history import Append, Ending, Found, History, Place, words_of


def acknowledged_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 1: an acknowledged record is at its position, as sent, until it is trimmed."""
    there, elsewhere = ending.by_place(), ending.places_elsewhere()
    for append in history.acknowledged():
        if ending.is_trimmed(append.place):
            continue
        if append.is_local_only and append.place in elsewhere:
            continue  # Law 18 judges where it may be missing.
        found = there.get(append.place)
        if found is None or not is_same(append, found):
            yield (
                f"{name_of(append.value)} was acknowledged at {words_of(append.place)}; there"
                f" is now {'nothing' if found is None else name_of(found.value)}"
            )


def flushed_stays(history: History, ending: Ending) -> Iterator[str]:
    """Law 1: records that were flushed are in the log, unless they may have been trimmed.

    So are records whose repeats were answered as duplicates.
    """
    known = known_records(history, ending)
    values = {found.value for found in known.values()} | kept_values(history)
    gone = [
        append
        for append in history.appends.values()
        if append.outcome in ("flushed", "duplicate") and append.value not in values
    ]
    unseen_count = sum(ending.trims.values()) - sum(map(ending.is_trimmed, known))
    unseen_count += len(ending.places_elsewhere() - known.keys())
    unseen_count += sum(map(len, history.rests_elsewhere.values()))
    if len(gone) > unseen_count:
        yield (
            f"{name_of(gone[0].value)} was {gone[0].outcome} and is not in the log:"
            f" {len(gone)} records are missing, only {unseen_count} were trimmed unseen"
        )


def real_time_orders(history: History, _ending: Ending) -> Iterator[str]:
    """Law 13: an append sent after another was answered gets the higher position."""
    acknowledged = history.acknowledged()
    for partition in sorted({append.partition for append in acknowledged}):
        appends = [one for one in acknowledged if one.partition == partition]
        yield from out_of_order(appends)


def out_of_order(appends: list[Append]) -> Iterator[str]:
    """Breaches within one partition, in the order in which its records were sent."""
    answered = sorted(appends, key=lambda append: append.answered_at or 0)
    highest, reached = -1, 0
    for append in appends:
        assert append.sequence is not None
        while reached < len(answered) and (answered[reached].answered_at or 0) < append.sent_at:
            highest = max(highest, answered[reached].sequence or 0)
            reached += 1
        if append.sequence <= highest:
            yield (
                f"{name_of(append.value)} was sent after {highest} was answered, yet got"
                f" {words_of(append.place)}"
            )


def transaction_ids_rise(history: History, ending: Ending) -> Iterator[str]:
    """Law 13: the transaction ids of a partition do not fall."""
    known = known_records(history, ending)
    numbered = [one for one in known.values() if one.transaction_id is not None]
    for one, other in pairwise(numbered):
        assert one.transaction_id is not None
        assert other.transaction_id is not None
        if one.partition == other.partition and other.transaction_id < one.transaction_id:
            yield (
                f"transaction ids fall: {one.transaction_id} at {words_of(one.place)},"
                f" {other.transaction_id} at {words_of(other.place)}"
            )


def keys_stay_together(history: History, ending: Ending) -> Iterator[str]:
    """Law 13: a record goes to the partition of its key, of those that its writer knew."""
    for found in known_records(history, ending).values():
        append = history.appends.get(found.value)
        right = None if append is None else _right_partitions(append)
        if right is not None and found.partition not in right:
            yield (
                f"{name_of(found.value)} is in partition {found.partition}; its key belongs"
                f" to {' or '.join(map(str, sorted(right)))}"
            )


def _right_partitions(append: Append) -> set[int] | None:
    """The partitions that a record may go to; None if any."""
    if append.partition_named is not None:
        return {append.partition_named}
    if append.key is None:
        return None
    least, most = append.partitions_known
    return {crc32c(append.key) % count for count in range(least, most + 1)}


def expected_is_got(history: History, _ending: Ending) -> Iterator[str]:
    """Law 13: an append that expects a sequence gets it, or is refused."""
    for append in history.acknowledged():
        if append.expected not in (None, append.sequence):
            yield (
                f"{name_of(append.value)} expected sequence {append.expected}, but got"
                f" {append.sequence}"
            )


def nothing_passes_a_refusal(history: History, _ending: Ending) -> Iterator[str]:
    """Law 13: what a session sends behind a refused record, and unaware, is not appended."""
    for session in history.sessions:
        for refused_at, heard_at, refused in session.refused:
            right = _right_partitions(refused)
            for sent_at, append in session.appended:
                if refused_at < sent_at < heard_at and right == {append.partition}:
                    yield (
                        f"{name_of(append.value)} was appended by session {session.epoch},"
                        f" which had sent {name_of(refused.value)} before; that was refused"
                    )


def sealed_takes_nothing(history: History, ending: Ending) -> Iterator[str]:
    """Law 4: a record sent after the seal is not acknowledged, nor in the log."""
    if history.sealed_at is None:
        return
    there = {found.value for found in known_records(history, ending).values()}
    for append in history.appends.values():
        is_there = append.outcome in ("acknowledged", "flushed") or append.value in there
        if append.sent_at > history.sealed_at and is_there:
            yield f"{name_of(append.value)} was sent after the seal, yet is {append.outcome}"


def appends_happen_once(history: History, ending: Ending) -> Iterator[str]:
    """Law 16: no record is in the log twice, as long as its writer must be remembered."""
    first_seen: dict[bytes, Place] = {}
    for place, record in known_records(history, ending).items():
        first = first_seen.setdefault(record.value, place)
        append = history.appends.get(record.value)
        # Nobody can tell which of two partitions had it first.
        earlier = [first] if first[0] == place[0] else [first, place]
        if first != place and not (
            append and any(_may_be_forgotten(history, append, one, ending) for one in earlier)
        ):
            yield (
                f"{name_of(record.value)} is at {words_of(first)} and again at"
                f" {words_of(place)}"
            )


def _may_be_forgotten(history: History, append: Append, place: Place, ending: Ending) -> bool:
    """Whether its writer may have been forgotten when the repeat came: it was trimmed."""
    if not (history.may_forget_writers and append.is_repeated):
        return False
    partition, sequence = place
    trims = ending.trims if append.trims_repeated is None else append.trims_repeated
    return sequence < trims.get(partition, 0)


def repeats_are_found_out(history: History, _ending: Ending) -> Iterator[str]:
    """Law 16: a repeat is answered with the position of the first."""
    for append, partition, dlsn in history.repeats:
        assert append.dlsn is not None
        if history.is_left_behind(append.partition, append.dlsn):
            continue  # The stream has lost it, so its repeat is a new record.
        if (partition, dlsn) != (append.partition, append.dlsn):
            yield (
                f"{name_of(append.value)} is at {append.dlsn} of partition {append.partition};"
                f" its repeat was answered with {dlsn} of {partition}"
            )
    for words in history.forgotten:
        yield f"the last acknowledged record was not remembered: {words}"
    yield from history.taken_for_others


def sessions_take_turns(history: History, _ending: Ending) -> Iterator[str]:
    """Law 16: once a session of a writer is open, no older one appends what it sends later.

    Nor do two have the same epoch, or a later one fewer partitions.
    """
    in_order = sorted(history.sessions, key=lambda one: one.epoch)
    for earlier, later in pairwise(in_order):
        if later.epoch == earlier.epoch:
            yield f"two sessions have epoch {later.epoch}"
        if later.partitions < earlier.partitions:
            yield (
                f"session {later.epoch} goes by {later.partitions} partitions, but"
                f" {earlier.epoch} by {earlier.partitions}"
            )
    for place, session in enumerate(in_order):
        newer = [one.opened_at for one in in_order[place + 1 :]]
        for sent_at, append in session.appended:
            if newer and sent_at > min(newer):
                yield (
                    f"{name_of(append.value)} was appended by session {session.epoch}, which"
                    " sent it when a newer one was open"
                )


def provisional_is_no_lie(history: History, ending: Ending) -> Iterator[str]:
    """Law 17: a record answered before it was durable is at that position, or nowhere.

    A record that was sent again is another append: the answer to the first has ended otherwise.
    """
    places = {found.value: place for place, found in known_records(history, ending).items()}
    for append in history.appends.values():
        if append.provisional is None or append.is_sent_again:
            continue
        is_final = append.outcome == "acknowledged"
        final = append.place if is_final else places.get(append.value, append.provisional)
        if final != append.provisional:
            yield (
                f"{name_of(append.value)} was received at {words_of(append.provisional)}, but"
                f" is at {words_of(final)}"
            )


def refused_is_absent(history: History, ending: Ending) -> Iterator[str]:
    """Law 17: no refused record is in the log, nor one that nobody sent.

    Nor is a repeat refused whose first was acknowledged or in doubt. To the log, a writer that
    was forgotten is a new one, and so are its repeats.
    """
    yield from history.refused_repeats
    for place, record in known_records(history, ending).items():
        append = history.appends.get(record.value)
        if append is None:
            yield f"{name_of(record.value)} at {words_of(place)} was never sent"
        elif append.outcome == "refused" and not _may_be_forgotten(
            history, append, place, ending
        ):
            yield f"{name_of(record.value)} was refused, yet is at {words_of(place)}"


def kept_values(history: History) -> set[bytes]:
    """The values that regions keep aside."""
    return {found.value for kept in history.rests.values() for found in kept}


def known_records(history: History, ending: Ending) -> Mapping[Place, Found]:
    """All records that anybody ever saw, in order."""
    known = {**history.shown, **ending.by_place()}
    return {place: known[place] for place in sorted(known)}


def name_of(value: bytes) -> str:
    """The readable head of a value, which the workload makes unique."""
    return value.partition(b"|")[0].decode(errors="replace")


def is_same(append: Append, found: Found) -> bool:
    """Whether a record is the one that was appended, byte for byte."""
    given = append.value, append.key, append.headers, append.transaction_id
    return given == (found.value, found.key, found.headers, found.transaction_id)
