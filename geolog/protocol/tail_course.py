"""The course of a tail: at which members of a ledger a process waits for its next entries.

Theory of operation. One member is followed: it answers with the next entries once it knows
that they are acknowledged. When it has been silent for a while, all others are watched: each
answers once, with its LAC alone, when that has passed the tail's. So an idle tail costs no
request. If a watched member tells of more than the followed one gives until the next tick, the
followed member is cut off or slow: it is demoted, another is followed, and readers read the
entries elsewhere. A member that fails, or has the ledger fenced, rests until the next tick.

Ticks come while the course is restless, and until a while after each other event. Members are
given in the order of preference.

Invariants.
1. `lac` never falls; everything up to it was given, or passed to readers.
2. At most one member is followed, and only a member that does not rest.
3. While readers wait and the course is not restless, one member is followed and every other one
   is watched, or refuses to be.

Rules: PROTOCOL R22, R23.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import attrs

from geolog.protocol.ids import NO_ENTRY, EntryId

REFUSED_TICKS = 8
"""Ticks after which members are watched again that refused it or answered at once."""

M = TypeVar("M")


@attrs.frozen
class FollowAt(Generic[M]):
    """Ask this member for entries from `first` on, once it knows that they are acknowledged."""

    member: M
    first: EntryId


@attrs.frozen
class WatchAt(Generic[M]):
    """Ask this member for its LAC, once that is at `first` or above."""

    member: M
    first: EntryId


@attrs.frozen
class AskNoMore(Generic[M]):
    """Drop the questions to this member."""

    member: M


@attrs.frozen
class Demote(Generic[M]):
    """This member failed, or is behind the others."""

    member: M


@attrs.frozen
class PassTo:
    """Tell readers that entries up to here are acknowledged: they are to be read elsewhere."""

    lac: EntryId


Effect = FollowAt[M] | WatchAt[M] | AskNoMore[M] | Demote[M] | PassTo


class TailCourse(Generic[M]):
    """The course of one tail. `M` identifies a member and is hashable."""

    def __init__(self) -> None:
        self.lac = NO_ENTRY
        self.followed: M | None = None
        self._heard = NO_ENTRY
        self._order: Sequence[M] = ()
        self._watched: dict[M, EntryId] = {}  # With the entry that each waits for.
        self._refused: dict[M, None] = {}
        self._resting: dict[M, None] = {}
        self._is_wanted = False
        self._is_detoured = False
        self._ticks_count = 0

    def __repr__(self) -> str:
        return f"TailCourse(lac={self.lac}, at {self.followed})"

    @property
    def is_restless(self) -> bool:
        """Whether ticks must come although nothing happens."""
        return self._is_wanted and (self.followed is None or bool(self._refused))

    def on_wanted(self, order: Sequence[M], lac: EntryId) -> list[Effect[M]]:
        """Readers wait for the entry after `lac`, which is acknowledged."""
        effects: list[Effect[M]] = []
        if lac > self.lac:
            self.lac = lac
            if self.followed is not None:
                effects += self._leave(self.followed)
        self._is_wanted, self._order = True, order
        return [*effects, *self._follow()]

    def on_unwanted(self) -> None:
        """No reader waits: ask for nothing more."""
        self._is_wanted = False

    def on_changed(self, order: Sequence[M]) -> list[Effect[M]]:
        """The ledger's record has changed: these are its members now."""
        gone = [one for one in (*self._watched, self.followed) if one not in order]
        effects = [effect for one in gone if one is not None for effect in self._leave(one)]
        self._order = order
        self._resting.clear()
        self._refused.clear()
        return [*effects, *self._follow()]

    def on_answered(self, member: M, lac: EntryId) -> list[Effect[M]]:
        """The followed member gave all entries up to `lac`, or nothing if it is no higher."""
        if member == self.followed:
            self.followed = None
        self.lac = max(self.lac, lac)
        return self._follow()

    def on_lacking(self, member: M, lac: EntryId) -> list[Effect[M]]:
        """The followed member knows this LAC, but has not the next entry intact."""
        if member == self.followed:
            self.followed = None
        return [*self._pass_to(lac), *self._follow()]

    def on_nothing(self, member: M) -> list[Effect[M]]:
        """The followed member answered without more: it is fenced there, or time was over."""
        return self._rest(member)

    def on_failed(self, member: M) -> list[Effect[M]]:
        """The followed member failed or refused."""
        return [Demote(member), *self._rest(member)]

    def on_watched(self, member: M, lac: EntryId) -> None:
        """A watched member has told its LAC."""
        first = self._watched.pop(member, NO_ENTRY)
        self._heard = max(self._heard, lac)
        if lac < first:
            self._refused[member] = None  # It is fenced there, or the time was over.

    def on_watch_failed(self, member: M) -> None:
        """A member refused to be watched."""
        self._watched.pop(member, None)
        self._refused[member] = None

    def on_tick(self, order: Sequence[M]) -> list[Effect[M]]:
        """Nothing has come for a while."""
        self._order = order
        self._ticks_count += 1
        if self._ticks_count % REFUSED_TICKS == 0:
            self._refused.clear()
        self._resting.clear()
        if not self._is_wanted:
            return []
        effects: list[Effect[M]] = []
        behind = self.followed
        if self._heard > self.lac:
            if behind is not None:
                effects += [Demote(behind), *self._leave(behind)]
                self._resting[behind] = None
            return [*effects, *self._pass_to(self._heard)]
        if behind is not None and self._is_detoured and behind != order[0]:
            effects += self._leave(behind)
        effects += self._follow()
        for member in order:
            if not self._is_asked(member):
                first = self._watched[member] = EntryId(self.lac + 1)
                effects.append(WatchAt(member, first))
        return effects

    def _is_asked(self, member: M) -> bool:
        return member == self.followed or member in self._watched or member in self._refused

    def _follow(self) -> list[Effect[M]]:
        """Follow the best member that does not rest, if readers wait and none is followed."""
        if not self._is_wanted or self.followed is not None:
            return []
        awake = [member for member in self._order if member not in self._resting]
        if not awake:
            return []
        self.followed = awake[0]
        self._is_detoured = awake[0] != self._order[0]
        return [FollowAt(awake[0], EntryId(self.lac + 1))]

    def _rest(self, member: M) -> list[Effect[M]]:
        self._resting[member] = None
        if member == self.followed:
            self.followed = None
        return self._follow()

    def _leave(self, member: M) -> list[Effect[M]]:
        self._watched.pop(member, None)
        if member == self.followed:
            self.followed = None
        return [AskNoMore(member)]

    def _pass_to(self, lac: EntryId) -> list[Effect[M]]:
        if lac <= self.lac:
            return []
        self.lac = lac
        self._is_wanted = False  # Until the readers have those entries.
        return [PassTo(lac)]
