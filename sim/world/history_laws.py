"""The laws that a history shows by itself: what was told, and what is there when all is over.

Every acknowledgement carries a position, so no search is needed: each law is one walk over the
appends and reads, in sorted order where an order is what it speaks of.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import attrs

from sim.world.history import Found, History

Law = Callable[[History, Sequence[Found]], Iterator[str]]
"""Says, in words, each way in which a history breaks it."""

_TOLD_MAX = 5
"""Breaches of one law that are told; the first are the ones to look at."""


@attrs.frozen
class Violation:
    """A law was broken."""

    law: str
    """Its number, or `crash` and `stuck` for what no law needs to forbid."""
    message: str
    replay: str
    """The command that shows it again."""


def acknowledged_stays(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 1: what was answered OK is there, at its position, with its bytes."""
    values = {record.sequence: record.value for record in found}
    for append in history.acknowledged():
        assert append.sequence is not None
        there = values.get(append.sequence)
        if there != append.value:
            yield (
                f"{_name(append.value)} was acknowledged at sequence {append.sequence}, where"
                f" there is now {'nothing' if there is None else _name(there)}"
            )


def reads_hold_all_before_them(history: History, _found: Sequence[Found]) -> Iterator[str]:
    """Law 1: a read of all holds what was answered OK before it began."""
    answered = sorted(
        (append.answered_at, append.sequence)
        for append in history.acknowledged()
        if append.answered_at is not None and append.sequence is not None
    )
    for read in history.reads:
        if read.is_of_all and read.has_reached_end:
            due = [sequence for at, sequence in answered if at < read.begun_at]
            if due and max(due) >= len(read.sequences):
                yield (
                    f"a read of {read.reader} ended at {len(read.sequences) - 1}, sequence"
                    f" {max(due)} had been acknowledged before it began"
                )


def shown_stays(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 11: what a reader was shown never goes, and never changes."""
    values = {record.sequence: record.value for record in found}
    for sequence in history.shown_otherwise:
        yield f"sequence {sequence} was shown with two different values"
    for sequence, value in sorted(history.shown.items()):
        if values.get(sequence) != value:
            yield f"sequence {sequence} was shown as {_name(value)} and is gone, or another"


def real_time_orders(history: History, _found: Sequence[Found]) -> Iterator[str]:
    """Law 13: an append sent after another was answered gets the greater position."""
    answered = sorted(history.acknowledged(), key=lambda append: append.answered_at or 0)
    highest, reached = -1, 0
    for append in history.acknowledged():
        assert append.sequence is not None
        while reached < len(answered) and (answered[reached].answered_at or 0) < append.sent_at:
            highest = max(highest, answered[reached].sequence or 0)
            reached += 1
        if append.sequence <= highest:
            yield (
                f"{_name(append.value)} got sequence {append.sequence}, though {highest} was"
                " answered before it was sent"
            )


def reads_have_no_holes(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 14: positions given to a reader are consecutive, from 0 in a read of all."""
    for read in history.reads:
        first = 0 if read.is_of_all else (read.sequences or [0])[0]
        if read.sequences != list(range(first, first + len(read.sequences))):
            yield f"a read of {read.reader} was given {_first_hole(read.sequences, first)}"
    sequences = [record.sequence for record in found]
    if sequences != list(range(len(sequences))):
        yield f"the last read was given {_first_hole(sequences, 0)}"


def nothing_is_damaged(history: History, _found: Sequence[Found]) -> Iterator[str]:
    """Law 15: no reader is refused for good while no disk is harmed."""
    yield from history.harsh_errors


def appends_happen_once(_history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 16: no append is in the log twice."""
    first_seen: dict[bytes, int] = {}
    for record in found:
        first = first_seen.setdefault(record.value, record.sequence)
        if first != record.sequence:
            yield f"{_name(record.value)} is at {first} and again at {record.sequence}"


def repeats_are_found_out(history: History, _found: Sequence[Found]) -> Iterator[str]:
    """Law 16: what is sent again under its number is answered with its first position."""
    for append, dlsn in history.repeats:
        if dlsn != append.dlsn:
            yield f"{_name(append.value)} is at {append.dlsn}; sent again it was put to {dlsn}"


def refused_is_absent(history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 17: what was refused is not in the log, and nothing that nobody sent is."""
    for record in found:
        append = history.appends.get(record.value)
        if append is None:
            yield f"nobody sent {_name(record.value)}, at sequence {record.sequence}"
        elif append.outcome == "refused":
            yield f"{_name(record.value)} was refused and is at sequence {record.sequence}"


def list_order_is_append_order(_history: History, found: Sequence[Found]) -> Iterator[str]:
    """Law 9: segments, entries and append times rise with the sequence."""
    for before, after in pairwise(found):
        if after.dlsn <= before.dlsn:
            yield f"{after.dlsn} follows {before.dlsn} at sequence {after.sequence}"
        if after.timestamp_us < before.timestamp_us:
            yield f"append times fall at sequence {after.sequence}"


HISTORY_LAWS: dict[str, tuple[Law, ...]] = {
    "1": (acknowledged_stays, reads_hold_all_before_them),
    "9": (list_order_is_append_order,),
    "11": (shown_stays,),
    "13": (real_time_orders,),
    "14": (reads_have_no_holes,),
    "15": (nothing_is_damaged,),
    "16": (appends_happen_once, repeats_are_found_out),
    "17": (refused_is_absent,),
}
"""By number of the law that each belongs to."""


def breaches(history: History, found: Sequence[Found]) -> Iterator[tuple[str, str]]:
    """Every law that the history breaks, by number, with words; few of each."""
    for number, laws in HISTORY_LAWS.items():
        for law in laws:
            for count, message in enumerate(law(history, found)):
                if count == _TOLD_MAX:
                    break
                yield number, message


def _name(value: bytes) -> str:
    """The readable head of a value, which the workload makes unique."""
    return value.partition(b"|")[0].decode(errors="replace")


def _first_hole(sequences: Sequence[int], first: int) -> str:
    for expected, sequence in enumerate(sequences, first):
        if sequence != expected:
            return f"{sequence} where {expected} was due"
    return "no hole"
