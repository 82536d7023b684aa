"""Laws about a stream that is deleted and created again under its name."""

from collections.abc import Iterator
from itertools import pairwise

from sim.laws.history.appends import name_of
from sim.world.history import Ending, History
from sim.world.lives import Death, LifeRecord, Lives

_FENCED_WITHIN_S = 10.0
"""A deletion that takes longer may have proceeded without a fence: too few nodes answered."""


def deleted_stays_gone(history: History, _ending: Ending) -> Iterator[str]:
    """A read that begins after a deletion was answered gets nothing from before.

    So a writer opened before the deletion does not write into the next stream.
    """
    lives = history.lives
    for walk in lives.walks:
        for _, value in walk.items:
            entry = lives.entries.get(value)
            if entry is None:
                yield f"{walk.reader} was given {name_of(value)}, which was never sent"
            elif entry.life.last < walk.life.first:
                yield (
                    f"{name_of(value)} was written no later than life {entry.life.last};"
                    f" {walk.reader} got it in life {walk.life.first}"
                )


def deleted_takes_nothing(history: History, _ending: Ending) -> Iterator[str]:
    """A record sent to a deleted stream after the deletion was answered is not acknowledged."""
    lives = history.lives
    for entry in lives.entries.values():
        death = _death_of(lives, entry)
        if death is None or entry.answered_at is None or death.took_s > _FENCED_WITHIN_S:
            continue
        assert death.answered_at is not None
        if entry.sent_at > death.answered_at:
            yield (
                f"{name_of(entry.value)} was sent after life {entry.life.last} was deleted, yet"
                " acknowledged"
            )


def _death_of(lives: Lives, entry: LifeRecord) -> Death | None:
    """The end of the last life that a record may belong to, if that end was answered."""
    if entry.life.last > len(lives.deaths):
        return None
    death = lives.deaths[entry.life.last - 1]
    return None if death.answered_at is None else death


def walks_keep_to_one_life(history: History, _ending: Ending) -> Iterator[str]:
    """A read that begins in one life does not continue into the next."""
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
    """Each life begins with sequence 0 and has no holes: nobody trims it."""
    for walk in history.lives.walks:
        for due, (sequence, value) in enumerate(walk.items):
            if sequence != due:
                yield f"{walk.reader} was given {name_of(value)} at {sequence}, expected {due}"
                break
        for first, end in walk.gaps:
            yield f"{walk.reader} got a gap from {first} to {end}; nobody trims this stream"


def answered_stays_for_its_life(history: History, _ending: Ending) -> Iterator[str]:
    """A record acknowledged before a read begins is in it, as long as that life lasts."""
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
                    f"{name_of(entry.value)} was acknowledged at {entry.sequence} in life"
                    f" {entry.life.last}; {walk.reader} got it at {given.get(entry.value)}"
                )
                break
