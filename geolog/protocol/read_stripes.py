"""Decides which replicas to ask for which entries of a ledger: catch-up in stripes.

Theory of operation. Entries are requested in ranges, in order; each range is one request to one
replica, which sends it in several answers. The reader takes the answers of the first range, the
head; those of later ranges wait for their turn.

Usually one replica is asked, and the reader sticks to it while it is good. Its range is open:
as many entries as fit the answers requested. The next range follows when the last answer was
taken. If the reader has waited for every answer of a range, that replica limits it. After a few
such ranges in a row a further replica is asked: ranges get an end, estimated from the answers
before, and go to these replicas in turn. A third follows if the reader still waits for whole
ranges. Once the reader has waited for no answer during a few rounds, one replica fewer
suffices. Whenever that turns out wrong, the next attempt takes twice as many rounds.

A replica is behind if the reader waits for it when all other ranges have been received, one of
them with twice the entries that it gave. The rest of its range is then requested elsewhere, and
it is set aside for a while. A replica that says nothing at all is the business of
`Speculation`, which sends the reader's question to another one; the rest of that range is
requested elsewhere, too.

There is no clock here: only which answers had come when the reader wanted them.

Invariants.
1. The ranges are adjacent, in order, and the first of them begins with the next entry.
2. At most `ANSWERS_MAX` answers are requested and not taken, or one for each range if more.
3. A range without an end is the last one.
4. There are no more ranges than replicas in use, once those begun before have ended.

Rules: PROTOCOL R24.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.read_window import ANSWERS_MAX, ANSWERS_MIN

WIDTH_MAX = 4
"""Maximum replicas in use: each further one adds less."""

LIMITING_ROUNDS = 2
"""After so many rounds in a row with a range that limits it, a reader uses one more replica."""

IDLE_ROUNDS_MIN = 4
"""After so many rounds in a row without waiting, it uses one replica fewer."""

IDLE_ROUNDS_MAX = 64
"""The same, at most, after attempts to use fewer that were wrong."""

ASIDE_RANGES = 64
"""For how many ranges a replica that was behind is not asked, if others are good."""

LIMITING_ANSWERS_MIN = 2
"""A range of fewer answers says nothing about its replica."""


@attrs.frozen
class AskRange:
    """Ask this replica for these entries, in at most `answers_max` answers.

    A number that is used again replaces the request before.
    """

    number: int
    instance: InstanceId
    first: EntryId
    count: int
    answers_max: int


@attrs.frozen
class DropRange:
    """Cancel the request for this range: its replica is behind."""

    number: int


Effect = AskRange | DropRange


@attrs.define(eq=False)
class _Range:
    """Entries from `first` up to, not including, `end`; None if that is not known yet."""

    number: int
    first: EntryId
    end: EntryId | None
    instance: InstanceId | None = None
    """The replica that was asked; None if it must be asked for."""
    answers_left: int = 0
    count: int = 0
    """Entries in the whole range."""
    answers_count: int = 0
    entries_count: int = 0
    waits_count: int = 0
    """Answers that the reader had to wait for."""
    is_judged: bool = True
    """Whether it tells the pace of one replica: all its entries were asked of that one."""
    lost_at: InstanceId | None = None
    """A replica that did not give all of it."""


class ReadStripes:
    """Asks for entries `first` to `last`, which have the same replicas.

    The caller asks `due` before it wants an answer, then reports what came: `on_answer` for an
    answer of the head, after `on_overtaken` if another replica gave it, or `on_read`.
    """

    def __init__(self, first: EntryId, last: EntryId, *, entries_max: int) -> None:
        """entries_max: maximum entries of one request."""
        assert first <= last
        self._next = first
        self._last = last
        self._entries_max = entries_max
        self._unasked = first  # First entry of no range; meaningless behind an open range.
        self._ranges: deque[_Range] = deque()
        self._number_last = 0
        self._width = 1
        self._available_count = 1
        self._in_use: list[InstanceId] = []  # In the order in which they came into use.
        self._aside: dict[InstanceId, int] = {}  # Until which range.
        self._entries_each = 1  # Of one answer, lately.
        self._limiting_rounds = self._idle_rounds = 0
        self._idle_rounds_needed = IDLE_ROUNDS_MIN
        self._has_narrowed = False
        self._begin_round()

    def __repr__(self) -> str:
        return f"ReadStripes({len(self._ranges)} ranges from {self._next}, {self._width} wide)"

    @property
    def next(self) -> EntryId:
        """The first entry that was not taken."""
        return self._next

    @property
    def is_over(self) -> bool:
        """Whether all entries were taken."""
        return self._next > self._last

    @property
    def width(self) -> int:
        """How many replicas to use, if there are so many."""
        return self._width

    @property
    def in_use(self) -> Sequence[InstanceId]:
        """The replicas that get ranges now."""
        return self._in_use

    @property
    def head(self) -> int | None:
        """The number of the first range; None if there is none."""
        return self._ranges[0].number if self._ranges else None

    @property
    def head_last(self) -> EntryId:
        """The last entry of the first range, as far as it is known."""
        head = self._ranges[0] if self._ranges else None
        return self._last if head is None or head.end is None else EntryId(head.end - 1)

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all ranges, in order."""
        return [one.number for one in self._ranges]

    # Asking.

    def due(
        self, good: Sequence[InstanceId], window: Callable[[InstanceId], int]
    ) -> list[AskRange]:
        """What to ask now. `good`: the replicas that may be asked, the best first.

        window(replica): how many answers of it cover its round trips.
        """
        if not good:
            return []
        self._choose(good)
        asked = [
            self._ask_again(one, good, window) for one in self._ranges if one.instance is None
        ]
        while self._has_room():
            asked.append(self._ask_next(window))
        return asked

    def _choose(self, good: Sequence[InstanceId]) -> None:
        """Keep those in use that are good; add or leave out others, as the width says."""
        number = self._number_last
        self._aside = {one: until for one, until in self._aside.items() if until > number}
        able = [one for one in good if one not in self._aside] or list(good)
        self._available_count = len(able)
        kept = [one for one in self._in_use if one in able]
        kept += [one for one in able if one not in kept]
        self._in_use = kept[: self._width]

    def _has_room(self) -> bool:
        if self._unasked > self._last or len(self._ranges) >= len(self._in_use):
            return False
        if self._ranges and self._ranges[-1].end is None:
            return False
        return not self._ranges or self._answers_unused() >= ANSWERS_MIN

    def _ask_next(self, window: Callable[[InstanceId], int]) -> AskRange:
        instance = self._least_busy(self._in_use)
        self._number_last += 1
        first, end = self._unasked, EntryId(self._last + 1)
        made = _Range(self._number_last, first, None)
        answers_max = self._answers_for(instance, window)
        if len(self._in_use) > 1:
            # One answer less than requested: an estimate that is a little high does no harm.
            count = max(1, answers_max - 1) * self._entries_each
            end = EntryId(min(end, first + min(count, self._entries_max)))
            made.end = self._unasked = end
        made.count = end - first
        self._ranges.append(made)
        return self._ask(made, instance, answers_max)

    def _ask_again(
        self, lost: _Range, good: Sequence[InstanceId], window: Callable[[InstanceId], int]
    ) -> AskRange:
        """Ask for the rest of a range."""
        able = [one for one in self._in_use if one != lost.lost_at]
        able = able or [one for one in good if one != lost.lost_at] or self._in_use
        instance = self._least_busy(able)
        return self._ask(lost, instance, self._answers_for(instance, window))

    def _ask(self, asked: _Range, instance: InstanceId, answers_max: int) -> AskRange:
        asked.instance, asked.answers_left = instance, answers_max
        end = self._last + 1 if asked.end is None else asked.end
        count = min(end - asked.first, self._entries_max)
        return AskRange(asked.number, instance, asked.first, count, answers_max)

    def _least_busy(self, able: Collection[InstanceId]) -> InstanceId:
        """The one with the fewest ranges; of those the first."""
        return min(able, key=[one.instance for one in self._ranges].count)

    def _answers_for(self, instance: InstanceId, window: Callable[[InstanceId], int]) -> int:
        # All get ranges of one size: the reader takes as many of each.
        wanted = max(map(window, [instance, *self._in_use]))
        share = ANSWERS_MAX // max(1, len(self._in_use))
        return max(1, min(wanted, share, self._answers_unused()))

    def _answers_unused(self) -> int:
        return ANSWERS_MAX - sum(one.answers_left for one in self._ranges)

    # Taking.

    def on_overtaken(self, instance: InstanceId) -> None:
        """A question to this further replica was answered first: the head goes on there."""
        head = self._ranges[0]
        head.lost_at, head.instance = head.instance, instance
        head.answers_left, head.is_judged = 1, False

    def on_answer(
        self, count: int, *, is_last: bool, has_waited: bool, others_received: bool
    ) -> list[Effect]:
        """The reader took an answer of the head with `count` entries.

        is_last: the replica sends no more. has_waited: it had not come when it was wanted.
        others_received: all answers of all other ranges have come.
        """
        head = self._ranges[0]
        head.answers_count += 1
        head.entries_count += count
        head.waits_count += has_waited
        head.answers_left = 0 if is_last else max(1, head.answers_left - 1)
        self._advance(head, count)
        if head.end is None and is_last:
            self._unasked = head.end = self._next
        if head.first == head.end:
            self._ranges.popleft()
            self._note_ended(head)
        elif is_last:
            head.instance, head.is_judged = None, False
        elif has_waited and others_received and self._is_behind(head):
            assert head.instance is not None
            self._aside[head.instance] = self._number_last + ASIDE_RANGES
            self._lose(head)
            return [DropRange(head.number)]
        return []

    def on_failed(self) -> None:
        """The head's replica has failed, or lacks the next entry; its request is closed."""
        if self._ranges:
            self._lose(self._ranges[0])

    def on_read(self, count: int) -> None:
        """The reader got the next entries otherwise; `head_last` bounds them."""
        if not self._ranges:
            self._next = self._unasked = EntryId(self._next + count)
            return
        head = self._ranges[0]
        self._advance(head, count)
        self._lose(head)
        if head.end is None:
            self._unasked = head.end = self._next
        if head.first == head.end:
            self._ranges.popleft()

    def _advance(self, head: _Range, count: int) -> None:
        self._next = head.first = EntryId(self._next + count)
        assert self._next <= self._last + 1
        assert head.end is None or self._next <= head.end, "a request ends with its range"

    def _lose(self, lost: _Range) -> None:
        if lost.instance is not None:
            lost.lost_at = lost.instance
        lost.instance, lost.answers_left, lost.is_judged = None, 0, False

    def _is_behind(self, head: _Range) -> bool:
        """Whether another replica gave at least twice as much, though it was asked later."""
        others = [one.count for one in self._ranges if one is not head]
        return head.is_judged and 2 * head.entries_count <= max(others, default=0)

    # Width.

    def _begin_round(self) -> None:
        self._round_ranges = self._round_waits = 0
        self._is_round_limiting = False

    def _note_ended(self, ended: _Range) -> None:
        """Learn from a range that was taken whole."""
        if not ended.is_judged:
            return
        self._entries_each = max(1, ended.entries_count // ended.answers_count)
        self._round_ranges += 1
        self._round_waits += ended.waits_count
        self._is_round_limiting |= (
            ended.waits_count == ended.answers_count >= LIMITING_ANSWERS_MIN
        )
        if self._round_ranges >= self._width:
            self._note_round()
            self._begin_round()

    def _note_round(self) -> None:
        """Learn from as many ranges as there are replicas in use."""
        self._limiting_rounds = self._limiting_rounds + 1 if self._is_round_limiting else 0
        self._idle_rounds = 0 if self._round_waits else self._idle_rounds + 1
        widest = min(WIDTH_MAX, self._available_count)
        if self._limiting_rounds >= LIMITING_ROUNDS and self._width < widest:
            self._width += 1
            if self._has_narrowed:
                self._idle_rounds_needed = min(2 * self._idle_rounds_needed, IDLE_ROUNDS_MAX)
                self._has_narrowed = False
            self._limiting_rounds = 0
        elif self._idle_rounds >= self._idle_rounds_needed and self._width > 1:
            self._width -= 1
            self._has_narrowed = True
            self._idle_rounds = 0
