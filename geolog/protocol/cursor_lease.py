"""One reader of a cursor: joins, gains and loses partitions, commits, and leaves.

Theory of operation. A reader is there while its ephemeral node is. That node is its lease:
metadata ends it with the session of a process that is paused or cut off, and no other clock
counts. `due` compares the session in which the reader joined with the current one. In a later
session it joins again, under another id. What others did meanwhile shows when it looks: a
partition whose record still names its earlier id is still its own, and is claimed again without
reading it again. One whose record names another, or nobody, is lost: reading it ends at once,
and what the application says of it later is ignored.

A look reads who is there, and all records of partitions. It is due after joining, when a watch
fires, after a compare-and-set that was refused or had no answer, again and again while a
partition that should be ours is still another's, and now and then. Then `divide` says which
partitions to claim, and which to give up. A reader that does not share its cursor gets all of
them, because nobody else is there.

Commits go out under the reader's id and the version of the partition's record. So a reader
whose lease has ended, or whose partition was claimed by another, is refused, however late it
hears of that.

One request is under way at a time. Requests that fail are repeated after growing pauses.

Invariants:
1. A partition is committed only as its record last named this reader, in its current lease.
2. Reading of a partition ends before the partition is given up.
3. While requests are answered and nobody joins or leaves, each partition gets a reader.

Rules: PROTOCOL K2, K3 and K6.
"""

import math
import random
from collections.abc import Mapping, Sequence

import attrs

from geolog.protocol.asking_pace import AskingPace
from geolog.protocol.cursor_commits import CursorCommits
from geolog.protocol.cursor_sharing import divide
from geolog.protocol.cursor_state import NO_READER, PartitionStanding, reader_id
from geolog.protocol.ids import Position

LOOK_S = 0.25
"""Pause before looking again for a partition that another reader should give up."""

LOOK_SELDOM_S = 30.0
"""Otherwise look this often: the stream may have more partitions, which no watch tells."""

_PAUSE_S_FIRST = 0.25
_PAUSE_S_MAX = 4.0
_NO_SESSION = 0


@attrs.frozen
class CursorView:
    """A look at a cursor: who is there, and the record of each partition."""

    readers: frozenset[str]
    standings: Sequence[PartitionStanding]
    """By partition number."""


@attrs.frozen
class JoinCursor:
    """Join; `on_joined`."""

    reader: str
    is_again: bool
    """Whether the reader was there before, so that another may have taken the cursor."""


@attrs.frozen
class LookAtCursor:
    """Read who is there, and all records; `on_view`."""


@attrs.frozen
class ClaimPartitions:
    """Write this reader into the records of these partitions; `on_claimed` for each."""

    standings: Mapping[int, PartitionStanding]


@attrs.frozen
class PartitionCommit:
    """A position to store in one partition's record."""

    partition: int
    standing: PartitionStanding
    position: Position | None
    """None keeps the position."""
    is_last: bool = False
    """Whether the reader gives the partition up with it."""


@attrs.frozen
class CommitPositions:
    """Store these; `on_committed` or `on_commit_refused` for each."""

    commits: Sequence[PartitionCommit]


Request = JoinCursor | LookAtCursor | ClaimPartitions | CommitPositions


@attrs.frozen
class BeginReading:
    """Read a partition from this position; None if none was ever committed."""

    partition: int
    hold: int
    position: Position | None


@attrs.frozen
class EndReading:
    """Read a partition no more, and drop what was read ahead."""

    partition: int


Effect = BeginReading | EndReading


class CursorLease:
    """A reader of a cursor, and the partitions that it reads."""

    def __init__(self, reading: str, rng: random.Random, *, only: int | None = None) -> None:
        """reading: unique to this reader. only: the one partition to read, if not shared."""
        self._reading = reading
        self._only = only
        self.commits = CursorCommits()
        self.reader = NO_READER
        """The id under which it joined last."""
        self.readers_count = 0
        self.is_settled = False
        """Whether the last look left nothing to claim or to wait for."""
        self._joining = NO_READER
        """The id under which it last tried to join."""
        self._leases_count = 0
        self._joins_in = _NO_SESSION
        """The session in which it joins, or has joined."""
        self._session = _NO_SESSION
        """The session in which it joined; `_NO_SESSION` if it has to join."""
        self._is_look_due = False
        self._look_s = math.inf
        self._held: dict[int, PartitionStanding] = {}
        self._wanted: dict[int, PartitionStanding] = {}
        self._leaving: dict[int, PartitionCommit] = {}
        self._pace = AskingPace(pause_s_first=_PAUSE_S_FIRST, pause_s_max=_PAUSE_S_MAX, rng=rng)

    def __repr__(self) -> str:
        return f"CursorLease({self.reader or 'not joined'}, reads {sorted(self._held)})"

    # What to ask, and when.

    def next_due_s(self, session: int) -> float:
        """When `due` next has a request, if nothing happens until then."""
        is_due = session != self._session or self._is_look_due or self._wanted or self._leaving
        next_s = -math.inf if is_due else min(self._look_s, self.commits.next_due_s())
        return max(next_s, self._pace.due_s)

    def due(self, session: int, now_s: float) -> Request | None:
        """The request to send now, if any."""
        if now_s < self.next_due_s(session):
            return None
        if session != self._session:
            return self._join(session)
        if self._is_look_due or now_s >= self._look_s:
            return LookAtCursor()
        if self._leaving:
            return CommitPositions([self._leaving[one] for one in sorted(self._leaving)])
        if self._wanted:
            return ClaimPartitions(dict(sorted(self._wanted.items())))
        partitions = self.commits.due(now_s)
        if not partitions:
            return None
        self.commits.on_commit_begins(partitions, now_s)
        return CommitPositions([self._commit(one) for one in partitions])

    @property
    def ids(self) -> list[str]:
        """The ids under which it may be there: a join that had no answer may have succeeded."""
        return sorted({self.reader, self._joining} - {NO_READER})

    def is_lost(self, partition: int, hold: int) -> bool:
        """Whether something that was done in this hold will not be stored: the hold is over."""
        return (
            self.commits.hold_of(partition) != hold
            and partition not in self._leaving
            and not self.commits.is_stored(partition, hold)
        )

    def last_commits(self) -> list[PartitionCommit]:
        """What to store when the reader leaves: all that is done, and that nobody reads it."""
        ours = [
            self._commit(one, is_last=True)
            for one, standing in sorted(self._held.items())
            if standing.record.reader == self.reader
        ]
        return [*ours, *(self._leaving[one] for one in sorted(self._leaving))]

    # Answers.

    def on_back(self, now_s: float) -> None:
        """Metadata can be reached again."""
        self._pace.on_back(now_s=now_s)

    def on_failed(self, now_s: float) -> None:
        """A request had no answer: it may have been carried out."""
        self._pace.on_failed(now_s=now_s)
        self._is_look_due = True

    def on_joined(self, reader: str, session: int) -> None:
        """The reader is there under this id, until that session ends."""
        self._pace.on_answered()
        self.reader = reader
        self._session = session
        self._is_look_due = True

    def on_news(self) -> None:
        """A reader may have come or gone, or a position may have been set."""
        self._is_look_due = True

    def on_view(self, view: CursorView, now_s: float) -> list[Effect]:
        """The result of a look; returns which partitions to read, and to read no more."""
        self._pace.on_answered()
        self._is_look_due = False
        self.readers_count = len(view.readers)
        if self.reader not in view.readers:  # Taken by force, or the session is about to end.
            self._session = self._joins_in = _NO_SESSION
            return []
        effects: list[Effect] = [*self._lose(view), *self._keep(view)]
        read_by = {
            number: self.reader if number in self._held else standing.record.reader
            for number, standing in enumerate(view.standings)
        }
        given = divide(len(view.standings), view.readers, read_by)
        ours = {
            number
            for number, reader in given.items()
            if reader == self.reader and self._only in (None, number)
        }
        for number in sorted(set(self._held) - ours):
            commit = self._commit(number, is_last=True)
            effects.append(self._drop(number))
            if commit.standing.record.reader == self.reader:
                self._leaving[number] = commit
        free = {
            number
            for number in ours - set(self._leaving)
            if read_by[number] not in view.readers
            or (number in self._held and view.standings[number].record.reader != self.reader)
        }
        self._wanted = {number: view.standings[number] for number in free}
        self.is_settled = not free and not self._leaving and ours <= set(self._held)
        self._look_s = now_s + (LOOK_SELDOM_S if self.is_settled else LOOK_S)
        return effects

    def _lose(self, view: CursorView) -> list[EndReading]:
        """Drop the partitions whose records no longer name this reader."""
        lost = [
            number
            for number, standing in sorted(self._held.items())
            if view.standings[number].record.reader != standing.record.reader
        ]
        for number in sorted(self._leaving):
            found = view.standings[number]
            if found.record.reader == self.reader:
                self._leaving[number] = attrs.evolve(self._leaving[number], standing=found)
            else:  # It may have been stored: then the answer was lost.
                del self._leaving[number]
                self.commits.on_last_stored(number, found.record.position)
        return [self._drop(number) for number in lost]

    def _keep(self, view: CursorView) -> list[BeginReading]:
        """Take the records as they are now; also of a claim that had no answer."""
        found = []
        for number, standing in enumerate(view.standings):
            if number in self._held:
                self._held[number] = standing
                self.commits.on_stored(number, standing.record.position)
            elif standing.record.reader == self.reader and number not in self._leaving:
                found.append(self._gain(number, standing))
        return found

    def on_claimed(self, partition: int, standing: PartitionStanding) -> list[Effect]:
        """The partition's record names this reader now."""
        self._pace.on_answered()
        self._wanted.pop(partition, None)
        if partition in self._held:  # Kept from an earlier lease.
            self._held[partition] = standing
            return []
        return [self._gain(partition, standing)]

    def on_claim_refused(self, partition: int) -> None:
        """Another reader was first, or the lease is over."""
        self._wanted.pop(partition, None)
        self._is_look_due = True

    def on_committed(self, partition: int, standing: PartitionStanding) -> None:
        """The position is stored."""
        self._pace.on_answered()
        if self._leaving.pop(partition, None) is not None:
            self.commits.on_last_stored(partition, standing.record.position)
        elif partition in self._held:
            self._held[partition] = standing
            self.commits.on_stored(partition, standing.record.position)

    def on_commit_refused(self, partition: int) -> None:
        """The record is another's now, or the lease is over: a look will tell."""
        self._leaving.pop(partition, None)
        self._is_look_due = True

    def _join(self, session: int) -> JoinCursor:
        """Join under one id in each session: an earlier try may have succeeded unheard."""
        if session != self._joins_in:
            self._joins_in = session
            self._leases_count += 1
        self._joining = reader_id(self._reading, self._leases_count)
        return JoinCursor(self._joining, is_again=self.reader != NO_READER)

    # Partitions.

    def _commit(self, partition: int, *, is_last: bool = False) -> PartitionCommit:
        position = self.commits.position_to_commit(partition)
        return PartitionCommit(partition, self._held[partition], position, is_last)

    def _gain(self, partition: int, standing: PartitionStanding) -> BeginReading:
        position = standing.record.position
        self._held[partition] = standing
        return BeginReading(partition, self.commits.on_gained(partition, position), position)

    def _drop(self, partition: int) -> EndReading:
        del self._held[partition]
        self.commits.on_dropped(partition)
        return EndReading(partition)
