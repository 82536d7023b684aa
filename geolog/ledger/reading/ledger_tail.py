"""The tails of ledgers, each followed once for all readers of a process.

Theory of operation. Readers that wait for the next entry of one ledger share a `LedgerTail`. It
waits at members as `TailCourse` decides, checks each entry once, and passes the same objects to
every waiting reader by a call, in the task that receives them. So a reader costs a call for
each answer, not a request, a timer or a switch to a task of its own; and an idle tail costs
nothing, because its questions stay at the nodes. One task gives ticks to the tails that had
news a while ago.

A reader that is busy when entries arrive no longer waits. For such readers the last entries are
kept, within bounds; one that falls further behind reads from replicas until it is back at the
tail. Nothing more is requested while no reader waits.

Invariants.
1. Every waiting reader waits for the entry after `lac`.
2. All entries up to `lac` are acknowledged; it never falls.
3. Entries are kept only while some reader of the tail does not wait, and within both bounds.

Rules: PROTOCOL R22.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol, assert_never

import attrs
import trio

from geolog.ledger.reading.ledger_reader import FetchedEntry, LedgerReader
from geolog.ledger.reading.tail_node import TailNode
from geolog.ledger.replicas.replica_order import HEALTHY_REFUSALS
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import Message, ReadAnswer, Refused
from geolog.protocol.tail_course import (
    AskNoMore,
    Demote,
    Effect,
    FollowAt,
    PassTo,
    TailCourse,
    WatchAt,
)


@attrs.frozen(kw_only=True)
class TailConfig:
    """Limits of following."""

    tick_s: float = 0.25
    """After one to two of these without news from the followed member, all others are asked to
    tell when they hear of more."""

    wait_s: float = 600.0
    """How long a node may leave a question unanswered before it is asked again."""

    kept_bytes_max: int = 1 << 20
    """Unpacked bytes of entries to keep of one tail for readers that are busy. A reader that
    falls further behind reads from replicas, as in a catch-up."""

    kept_bytes_max_all: int = 32 << 20
    """The same for all tails together. A tail that would exceed it drops its own."""


_TICKS_AT_ONCE = 64
"""Tails that get their tick before other tasks have a turn."""


class TailReader(Protocol):
    """A reader that waits at a tail. Both calls come from the task that has the news."""

    def on_entries(self, entries: list[FetchedEntry]) -> bool:
        """Take the next entries, in order; False if the reader waits no longer."""
        ...

    def on_passed(self) -> None:
        """Wait no longer: the tail's LAC is above, but the entries are to be read elsewhere."""
        ...


class LedgerTail:
    """The tail of one ledger; `LedgerTails.join` gives it."""

    def __init__(self, tails: "LedgerTails", ledger: LedgerId) -> None:
        self._tails = tails
        self.ledger = ledger
        self._course: TailCourse[InstanceId] = TailCourse()
        self._record: LedgerRecord | None = None
        self._members: dict[InstanceId, Member] = {}
        self._joined_count = 0
        self._waiting: dict[TailReader, None] = {}
        self._kept: deque[FetchedEntry] = deque()
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"LedgerTail({self.ledger}, lac={self.lac}, {len(self._waiting)} wait)"

    @property
    def lac(self) -> EntryId:
        """All entries up to here are acknowledged, and were given or passed to readers."""
        return self._course.lac

    def kept_from(self, first: EntryId) -> list[FetchedEntry]:
        """The entries from this one on, if they are kept; otherwise read them from replicas."""
        kept = self._kept
        if not kept or not kept[0].entry <= first <= kept[-1].entry:
            return []
        return list(islice(kept, first - kept[0].entry, None))

    # Readers.

    def join(self) -> None:
        """Count one more reader, which must leave."""
        self._joined_count += 1

    def leave(self) -> None:
        """One of the readers that joined goes on elsewhere; with the last one the tail ends."""
        self._joined_count -= 1
        if not self._joined_count:
            self._drop_kept()
            for instance in self._members:
                self._tails.node(instance).drop(self)
            self._tails.forget(self)

    def wait_nowait(self, reader: TailReader, record: LedgerRecord, first: EntryId) -> None:
        """Begin to wait for `first`, which the reader does not know to be acknowledged.

        `record` is the ledger's, as new as the reader has it.
        """
        assert first > self.lac, f"entry {first} is acknowledged: {self}"
        before, self._record = self._record, record
        if before is None or (before is not record and before != record):
            left, members = self._members, record.fragments[-1].ensemble
            self._members = {**left, **{one.instance: one for one in members}}
            self._perform(self._course.on_changed(self._order()))
            self._members = {one.instance: one for one in members}
        if first > self.lac + 1:
            self._pass_all()
        self._waiting[reader] = None
        self._tails.stir(self)
        self._perform(self._course.on_wanted(self._order(), EntryId(first - 1)))

    def discard(self, reader: TailReader) -> None:
        """The reader waits no longer, if it did."""
        self._waiting.pop(reader, None)
        if not self._waiting:
            self._course.on_unwanted()

    # News.

    def on_follow_answered(self, member: Member, answer: Message) -> None:
        """Take the followed member's answer. See `Asker`."""
        self._tails.stir(self)
        instance, course = member.instance, self._course
        if isinstance(answer, Refused) and answer.reason in HEALTHY_REFUSALS:
            self._perform(course.on_nothing(instance))
            return
        if not isinstance(answer, ReadAnswer):
            self._perform(course.on_failed(instance))
            return
        assert self._record is not None
        reader = self._tails.reader
        reader.replicas.forgive(member)  # The time that it took says nothing.
        found = reader.intact_prefix(self._record, member, answer.first, answer)
        entries = [one for one in found if one.entry > course.lac]
        if entries and entries[0].entry == course.lac + 1:
            self._give(entries)
            self._perform(course.on_answered(instance, entries[-1].entry))
        elif answer.lac > course.lac:
            self._perform(course.on_lacking(instance, answer.lac))
        else:
            self._perform(course.on_nothing(instance))

    def on_follow_lost(self, member: Member) -> None:
        """Go to another member. See `Asker`."""
        self._tails.stir(self)
        self._perform(self._course.on_failed(member.instance))

    def on_watch_answered(self, member: Member, answer: Message) -> None:
        """Take a watched member's LAC. See `Asker`."""
        self._tails.stir(self)
        if isinstance(answer, ReadAnswer):
            self._course.on_watched(member.instance, answer.lac)
        else:
            self._course.on_watch_failed(member.instance)

    def on_tick(self) -> None:
        """Nothing has come for a while."""
        self._perform(self._course.on_tick(self._order()))
        if self._course.is_restless:
            self._tails.stir(self)

    def _order(self) -> Sequence[InstanceId]:
        """The members, the one to follow first in front."""
        assert self._record is not None
        fragment = self._record.fragments[-1]
        slots = self._tails.reader.replicas.in_order(fragment, range(len(fragment.ensemble)))
        return [fragment.ensemble[slot].instance for slot in slots]

    def _perform(self, effects: list[Effect[InstanceId]]) -> None:
        tails = self._tails
        for effect in effects:
            match effect:
                case FollowAt(instance, first):
                    self._ask(instance, first, tails.reader.config.batch_entries)
                case WatchAt(instance, first):
                    self._ask(instance, first, 0)
                case AskNoMore(instance):
                    tails.node(instance).drop(self)
                case Demote(instance):
                    tails.reader.replicas.note_failed(self._members[instance])
                case PassTo():
                    self._pass_all()
                case _:
                    assert_never(effect)

    def _ask(self, instance: InstanceId, first: EntryId, count: int) -> None:
        member = self._members[instance]
        self._tails.node(instance).ask(self, self.ledger, member, first, count=count)

    def _give(self, entries: list[FetchedEntry]) -> None:
        """Give the next entries to all waiting readers, and keep them for the others."""
        busy = [reader for reader in self._waiting if not reader.on_entries(entries)]
        for reader in busy:
            self._waiting.pop(reader, None)
        if not self._waiting:
            self._course.on_unwanted()
        if len(self._waiting) < self._joined_count:
            self._keep(entries)
        else:
            self._drop_kept()

    def _pass_all(self) -> None:
        """Send all waiting readers to replicas: the next entries were not given to the tail."""
        self._drop_kept()
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.on_passed()

    def _keep(self, entries: list[FetchedEntry]) -> None:
        added_bytes = sum(one.decoded.raw_bytes for one in entries)
        self._kept.extend(entries)
        self._kept_bytes += added_bytes
        self._tails.kept_bytes += added_bytes
        if self._tails.kept_bytes > self._tails.config.kept_bytes_max_all:
            self._drop_kept()
        while self._kept_bytes > self._tails.config.kept_bytes_max:
            dropped_bytes = self._kept.popleft().decoded.raw_bytes
            self._kept_bytes -= dropped_bytes
            self._tails.kept_bytes -= dropped_bytes

    def _drop_kept(self) -> None:
        self._tails.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0
        self._kept.clear()


class LedgerTails:
    """The followed tails of a process."""

    def __init__(self, reader: LedgerReader, config: TailConfig) -> None:
        self.reader = reader
        self.config = config
        self.kept_bytes = 0
        """Unpacked bytes that all tails keep."""
        self._tails: dict[LedgerId, LedgerTail] = {}
        self._nodes: dict[InstanceId, TailNode] = {}
        self._stirred: dict[LedgerTail, None] = {}  # Since the last tick.
        self._has_stirred: trio.Event | None = None

    def __repr__(self) -> str:
        return f"LedgerTails({len(self._tails)} followed, {self.kept_bytes} bytes kept)"

    def __len__(self) -> int:
        return len(self._tails)

    def join(self, ledger: LedgerId) -> LedgerTail:
        """The ledger's tail, for a reader that will `leave` it."""
        tail = self._tails.get(ledger)
        if tail is None:
            tail = self._tails[ledger] = LedgerTail(self, ledger)
        tail.join()
        if self._has_stirred is None:
            self._has_stirred = trio.Event()
            self.reader.replicas.pool.start_soon(self._run_ticks, name="ticks of tails")
        return tail

    def forget(self, tail: LedgerTail) -> None:
        """The last reader of this tail has left."""
        del self._tails[tail.ledger]
        self._stirred.pop(tail, None)

    def node(self, instance: InstanceId) -> TailNode:
        """The questions of all tails to a node."""
        node = self._nodes.get(instance)
        if node is None:
            node = self._nodes[instance] = TailNode(
                self.reader.replicas,
                instance,
                bytes_max=self.reader.config.batch_bytes,
                wait_s=self.config.wait_s,
            )
        return node

    def stir(self, tail: LedgerTail) -> None:
        """Give the tail a tick when nothing has come for a while."""
        self._stirred[tail] = None
        assert self._has_stirred is not None
        self._has_stirred.set()

    async def _run_ticks(self) -> None:
        """Tick each tail once, one to two ticks after its last news; never returns."""
        before: dict[LedgerTail, None] = {}
        while True:
            if not before and not self._stirred:
                self._has_stirred = trio.Event()
                await self._has_stirred.wait()
            await trio.sleep(self.config.tick_s)
            stirred, self._stirred = self._stirred, {}
            for number, tail in enumerate(one for one in before if one not in stirred):
                if self._tails.get(tail.ledger) is tail:
                    tail.on_tick()
                if number % _TICKS_AT_ONCE == _TICKS_AT_ONCE - 1:
                    await trio.lowlevel.checkpoint()
            before = stirred
