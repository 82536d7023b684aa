"""What a history shows of a stream that was deleted and made again under its name."""

from collections.abc import Iterator
from itertools import pairwise

from sim.laws.history.appends import name_of
from sim.world.history import Ending, History
from sim.world.lives import Death, LifeRecord, Lives

_FENCED_WITHIN_S = 10.0
"""A deletion that takes longer may have been made without a fence: too few nodes answered."""


def deleted_stays_gone(history: History, _ending: Ending) -> Iterator[str]:
    """Whoever begins to read after a deletion was answered is given nothing of before.

    So whoever was opened before it does not write into the stream that comes after.
    """
    lives = history.lives
    for walk in lives.walks:
        for _, value in walk.items:
            entry = lives.entries.get(value)
            if entry is None:
                yield f"nobody sent {name_of(value)}, which {walk.reader} was given"
            elif entry.life.last < walk.life.first:
                yield (
                    f"{name_of(value)} was written in life {entry.life.last} at the latest, and"
                    f" {walk.reader} was given it in life {walk.life.first}"
                )


def deleted_takes_nothing(history: History, _ending: Ending) -> Iterator[str]:
    """What is sent to a deleted stream, after the deletion was answered, is not answered OK."""
    lives = history.lives
    for entry in lives.entries.values():
        death = _death_of(lives, entry)
        if death is None or entry.answered_at is None or death.took_s > _FENCED_WITHIN_S:
            continue
        assert death.answered_at is not None
        if entry.sent_at > death.answered_at:
            yield (
                f"{name_of(entry.value)} was sent after life {entry.life.last} was deleted, and"
                " answered OK"
            )


def _death_of(lives: Lives, entry: LifeRecord) -> Death | None:
    """The end of the last life that a record may be of, if that was answered."""
    if entry.life.last > len(lives.deaths):
        return None
    death = lives.deaths[entry.life.last - 1]
    return None if death.answered_at is None else death


def walks_keep_to_one_life(history: History, _ending: Ending) -> Iterator[str]:
    """A reader that begins in one life is given nothing of the next, as if that went on."""
    lives = history.lives
    for walk in lives.walks:
        entries = [lives.entries[value] for _, value in walk.items if value in lives.entries]
        for one, other in pairwise(sorted(entries, key=lambda entry: entry.life)):
            if one.life.last < other.life.first:
                yield (
                    f"{walk.reader} was given {name_of(one.value)} of life {one.life.last} and"
                    f" {name_of(other.value)} of life {other.life.first} in one read"
                )
                break


def lives_begin_empty(history: History, _ending: Ending) -> Iterator[str]:
    """Each life begins with sequence 0 and goes on without a hole: nobody trims it."""
    for walk in history.lives.walks:
        for due, (sequence, value) in enumerate(walk.items):
            if sequence != due:
                yield f"{walk.reader} was given {name_of(value)} at {sequence} instead of {due}"
                break
        for first, end in walk.gaps:
            yield f"{walk.reader} was told that {first} to {end} are trimmed, which nobody did"


def answered_stays_for_its_life(history: History, _ending: Ending) -> Iterator[str]:
    """What was answered OK before a read begins is in it, as long as that life lasts."""
    lives = history.lives
    for walk in lives.walks:
        if not walk.has_reached_end or walk.life.first != walk.life.last:
            continue
        given = {value: sequence for sequence, value in walk.items}
        for entry in lives.entries.values():
            is_due = (
                entry.answered_at is not None
                and entry.answered_at < walk.begun_at
                and entry.life == walk.life
            )
            if is_due and given.get(entry.value) != entry.sequence:
                yield (
                    f"{name_of(entry.value)} was answered at {entry.sequence} in life"
                    f" {entry.life.last}, and {walk.reader} was given it at"
                    f" {given.get(entry.value)}"
                )
                break
