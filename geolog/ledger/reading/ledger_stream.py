"""Streams a run of a ledger's entries: the next ones are in flight while the caller works.

Theory of operation. A request asks one replica for many entries, which come in several answers,
in entry order. When the last answer has come, the next request goes out before the caller gets
its entries. This needs no task besides the connection's own: answers wait in the request until
they are taken. `ReadStripes` decides which replicas get requests for which entries: mostly one,
several at a time if one is not fast enough. There are never more answers than requested, and
the read window sizes requests by the replica's bandwidth and delay.

Each answer is a speculative question: if the stream falls silent, another replica gets a
request for the entries from there on, and the first answer decides which of them goes on. If no
replica has the next entry intact, `LedgerReader.read` takes over; then streaming resumes.
"""

from collections.abc import Sequence
from typing import assert_never

from geolog.ledger.reading.ledger_reader import (
    EntriesMovedError,
    FetchedEntry,
    FetchedRun,
    LedgerReader,
)
from geolog.ledger.replicas.open_request import OpenRequest, Request
from geolog.ledger.replicas.speculative_question import Given
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import ReadAnswer
from geolog.protocol.read_stripes import AskRange, DropRange, Effect, ReadStripes
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import GeologError


class LedgerStream:
    """Entries `first` to `last` of one ledger, all of which must be acknowledged.

    Use it as a context manager; requests under way when the block ends are abandoned.
    """

    def __init__(
        self, reader: LedgerReader, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> None:
        assert first <= last
        self.record = record
        self.last = last
        self._reader = reader
        self._next = first
        self._replicas = reader.replicas
        self._stripes: ReadStripes | None = None  # Of the entries with the same members.
        self._asks: dict[int, AskRange] = {}
        self._asked: dict[int, OpenRequest] = {}  # Those of `_asks` that were sent.
        self._lacking: set[InstanceId] = set()  # Replicas that lacked an entry.

    def __repr__(self) -> str:
        return f"LedgerStream({self.record.ledger}, {self._next} to {self.last})"

    def __enter__(self) -> "LedgerStream":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def entry_next(self) -> EntryId:
        """The first entry that was not returned yet."""
        return self._next

    def close(self) -> None:
        """Abandon the requests under way."""
        self._stripes = None
        asked, self._asked = self._asked, {}
        self._asks.clear()
        for request in asked.values():
            request.close()

    async def read(self) -> list[FetchedEntry]:
        """Return the next entries, at least one, wherever they moved; the caller bounds it.

        May raise whatever `LedgerReader.read` raises; the stream can then be read again.
        """
        assert self._next <= self.last, "the stream was read to its end"
        fetched = await self._read_streamed()
        while not fetched:
            stripes = self._stripes
            last = self.last if stripes is None else stripes.head_last
            try:
                fetched = await self._reader.read(self.record, self._next, last)
            except EntriesMovedError as moved:
                self.record = moved.ledger
                self.close()
                self._lacking.clear()
            else:
                if stripes is not None:
                    stripes.on_read(len(fetched))
        self._next = EntryId(fetched[-1].entry + 1)
        return fetched

    async def _read_streamed(self) -> list[FetchedEntry]:
        """The next entries of a stream; empty if no replica that holds all of them has them."""
        if self.record.quorum.write_quorum < self.record.quorum.ensemble_size:
            return []  # No member holds all entries.
        stripes = self._ask_due(self._next)
        asked = None if stripes.head is None else self._asked.get(stripes.head)
        if asked is not None and asked.has_answers:
            fetched = self._take_at_once(stripes, asked)
            if fetched:
                return fetched
            stripes = self._ask_due(self._next)
        return await self._ask_and_wait(stripes)

    async def _ask_and_wait(self, stripes: ReadStripes) -> list[FetchedEntry]:
        """The next entries, from the head's replica, or from another one if it is late."""
        number = stripes.head
        ask = None if number is None else self._asks.get(number)
        if number is None or ask is None:
            return []  # All members lack entries.
        asked = self._asked.pop(number, None)  # The question closes it.
        members = self._lead_first(ask, asked)
        if not members:
            return []
        given = await self._replicas.next_of(
            members,
            self._request(self._next, stripes.head_last),
            answers_max=ask.answers_max,
            under_way=asked,
        )
        if not isinstance(given, Given):
            self._lacking.update(members[stage].instance for stage in given.negatives)
            stripes.on_failed()
            return []
        self._asked[number] = given.request
        if given.request.member != members[0]:
            stripes.on_overtaken(given.request.member.instance)
        return self._accepted(stripes, given.good, given.request, has_waited=True)

    def _take_at_once(self, stripes: ReadStripes, asked: OpenRequest) -> list[FetchedEntry]:
        """Entries that have come already, which need no question; empty if they are no use."""
        number = stripes.head
        assert number is not None
        try:
            run = asked.take(self._request(self._next, stripes.head_last))
        except GeologError as error:
            self._replicas.note_error(asked.member, error)
        else:
            if isinstance(run, FetchedRun):
                return self._accepted(stripes, run, asked, has_waited=False)
            self._lacking.add(asked.member.instance)
        self._drop(number)
        stripes.on_failed()
        return []

    def _accepted(
        self, stripes: ReadStripes, run: FetchedRun, request: OpenRequest, *, has_waited: bool
    ) -> list[FetchedEntry]:
        """Go on after these entries: with the same request, the next one, or elsewhere."""
        number = stripes.head
        assert number is not None
        entries = run.entries[: stripes.head_last - self._next + 1]
        is_whole = len(run.entries) == run.answered_count
        if not is_whole:
            self._lacking.add(request.member.instance)
        elif run.is_last:
            self._replicas.note_complete(request)
        effects = stripes.on_answer(
            len(entries),
            is_last=run.is_last or not is_whole,
            has_waited=has_waited,
            others_received=has_waited and self._are_others_received(stripes),
        )
        if run.is_last or not is_whole or stripes.head != number:
            self._drop(number)
        self._perform(effects)
        next_entry = EntryId(entries[-1].entry + 1)
        if next_entry <= self.last:
            self._ask_due(next_entry)
        return entries

    def _are_others_received(self, stripes: ReadStripes) -> bool:
        others = [self._asked.get(number) for number in stripes.numbers[1:]]
        return all(one is not None and one.is_received for one in others)

    # Requests.

    def _ask_due(self, first: EntryId) -> ReadStripes:
        """Send the requests that are due from `first` on, unless one would wait."""
        stripes = self._stripes
        if stripes is None or stripes.is_over:
            self.close()
            end = self.record.end_of_run(first, self.last)
            stripes = ReadStripes(first, end, entries_max=ENTRIES_PER_ANSWER_MAX)
            self._stripes = stripes
        good = self._good(self._members(first))
        self._perform(stripes.due(good, self._replicas.window_of))
        return stripes

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case AskRange(number):
                    self._drop(number)
                    self._asks[number] = effect
                    self._send(effect)
                case DropRange(number):
                    self._drop(number)
                case _:
                    assert_never(effect)

    def _send(self, ask: AskRange) -> None:
        """Send a request; if that would wait, the question for its first entry sends it."""
        ensemble = self.record.fragment_of(ask.first).ensemble
        member = next(one for one in ensemble if one.instance == ask.instance)
        request = self._replicas.ask_ahead(
            member,
            self._request(ask.first, EntryId(ask.first + ask.count - 1)),
            answers_max=ask.answers_max,
        )
        if request is None:
            self._replicas.reach_soon(member)
        else:
            self._asked[ask.number] = request

    def _drop(self, number: int) -> None:
        self._asks.pop(number, None)
        request = self._asked.pop(number, None)
        if request is not None:
            request.close()

    def _request(self, first: EntryId, last: EntryId) -> Request[ReadAnswer, FetchedRun]:
        count = min(last - first + 1, ENTRIES_PER_ANSWER_MAX)
        return self._reader.read_request(self.record, first, count)

    # Members.

    def _members(self, entry: EntryId) -> list[Member]:
        """The replicas of the entry, in order, without those that lacked one."""
        fragment = self.record.fragment_of(entry)
        slots = self._replicas.in_order(fragment, range(len(fragment.ensemble)))
        members = [fragment.ensemble[slot] for slot in slots]
        return [one for one in members if one.instance not in self._lacking]

    def _lead_first(self, ask: AskRange, asked: OpenRequest | None) -> list[Member]:
        """The replica that was asked, and then all others that could answer instead."""
        members = self._members(self._next)
        lead = [one for one in members if one.instance == ask.instance]
        if asked is not None:
            lead = [asked.member]  # Also if it lacked an earlier entry.
        return lead + [one for one in members if one not in lead]

    def _good(self, members: Sequence[Member]) -> list[InstanceId]:
        """Those that may be asked in turns: healthy, and no farther than the nearest."""
        if not members:
            return []
        nearest = members[0]
        near = [
            one
            for one in members
            if one.location.region == nearest.location.region
            and not self._replicas.is_demoted(one)
        ]
        return [one.instance for one in near] or [nearest.instance]
