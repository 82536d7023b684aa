"""A run of a ledger's entries as a stream: the next are on their way while the caller works.

Theory of operation. One replica is asked for many entries at once, and gives them in several
answers, entry after entry. When the last of these has come the next question goes out before
the caller gets its entries. Nothing but the connection's own task is needed for that: answers
wait in the question until they are taken, and there are never more than were asked for: as many
as the way to that replica is found to hold. What
goes wrong (a replica that is silent, lacks an entry, or has it damaged) is left to
`LedgerReader.read`, which goes from replica to replica; then one is streamed from again.
"""

from contextlib import ExitStack

import attrs
import trio

from geolog.ledger.nodes.connection import PendingQuestion
from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.reading.ledger_reader import EntriesMovedError, FetchedEntry, LedgerReader
from geolog.protocol.ids import NO_EPOCH, EntryId, InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import Read, ReadAnswer
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import GeologError


@attrs.frozen
class _Asked:
    """A question that is open at one replica."""

    question: PendingQuestion
    member: Member


class LedgerStream:
    """Entries `first` to `last` of one ledger, all of which must be acknowledged.

    A context manager: what is under way when the block ends is not waited for.
    """

    def __init__(
        self, reader: LedgerReader, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> None:
        assert first <= last
        self.record = record
        self.last = last
        self._reader = reader
        self._next = first
        self._asked: _Asked | None = None
        self._lacking: set[InstanceId] = set()  # Replicas that did not have what they should.
        self._under_way = ExitStack()

    def __repr__(self) -> str:
        return f"LedgerStream({self.record.ledger}, {self._next} to {self.last})"

    def __enter__(self) -> "LedgerStream":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def entry_next(self) -> EntryId:
        """The first entry that was not given yet."""
        return self._next

    def close(self) -> None:
        """Wait for nothing more."""
        self._asked = None
        self._under_way.close()

    async def read(self) -> list[FetchedEntry]:
        """The next entries, at least one, wherever they have moved. The caller bounds the wait.

        Otherwise raises what `LedgerReader.read` raises; the stream can be read again then.
        """
        assert self._next <= self.last, "it was read to its end"
        fetched = await self._read_streamed()
        while not fetched:
            try:
                fetched = await self._reader.read(self.record, self._next, self.last)
            except EntriesMovedError as moved:
                self.record = moved.ledger
                self._lacking.clear()
        self._next = EntryId(fetched[-1].entry + 1)
        return fetched

    async def _read_streamed(self) -> list[FetchedEntry]:
        """What the replica that is asked says next; nothing if it fails, or none is asked."""
        asked = self._asked or await self._ask(self._next)
        if asked is None:
            return []
        answer = None
        with trio.move_on_after(self._reader.config.replica_timeout_s):
            try:
                answer = await asked.question.answer(ReadAnswer)
            except GeologError:
                answer = None
        if answer is None or answer.first != self._next:
            self._reader.note_failed(asked.member)
            self.close()
            return []
        fetched = self._reader.intact_prefix(self.record, asked.member, self._next, answer)
        if not fetched or len(fetched) < len(answer.entries):
            self._lacking.add(asked.member.instance)
            self.close()
        elif answer.is_last:
            self._note_pace(asked)
            self.close()
            await self._ask_ahead(EntryId(fetched[-1].entry + 1))
        return fetched

    def _note_pace(self, asked: _Asked) -> None:
        question = asked.question
        self._reader.windows[asked.member.instance].on_answered(
            delay_s=question.first_answer_s - question.asked_s,
            took_s=question.waiting_since_s - question.first_answer_s,
            count=question.answers_count,
        )

    async def _ask_ahead(self, first: EntryId) -> None:
        """Ask for what comes then, unless that takes a wait."""
        if first <= self.last:
            with trio.move_on_after(0):
                await self._ask(first)

    async def _ask(self, first: EntryId) -> _Asked | None:
        """Ask the nearest replica that holds all entries; None if there is none to be had."""
        member = self._nearest(first)
        if member is None:
            return None
        reader, ledger = self._reader, self.record.ledger
        count = self.record.end_of_run(first, self.last) - first + 1
        answers_max = reader.windows[member.instance].answers
        with trio.move_on_after(reader.config.replica_timeout_s):
            try:
                link = reader.pool.link(member.instance, LinkUse.READING)
                connection = await link.wait_connection()
                question = self._under_way.enter_context(
                    connection.asking(
                        lambda request: Read(
                            request,
                            ledger,
                            first,
                            min(count, ENTRIES_PER_ANSWER_MAX),
                            reader.config.batch_bytes,
                            answers_max,
                            NO_EPOCH,
                            member.instance,
                        ),
                        answers_max=answers_max,
                    )
                )
            except GeologError:
                reader.note_failed(member)
                return None
            self._asked = _Asked(question, member)
            return self._asked
        reader.note_failed(member)
        return None

    def _nearest(self, first: EntryId) -> Member | None:
        if self.record.quorum.write_quorum < self.record.quorum.ensemble_size:
            return None  # No member holds all entries.
        fragment = self.record.fragment_of(first)
        slots = self._reader.in_order(fragment, range(len(fragment.ensemble)))
        members = (fragment.ensemble[slot] for slot in slots)
        return next((one for one in members if one.instance not in self._lacking), None)
