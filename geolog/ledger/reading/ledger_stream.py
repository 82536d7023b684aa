"""Streams a run of a ledger's entries: the next ones are in flight while the caller works.

Theory of operation. One request asks one replica for many entries, which come in several
answers, in entry order. When the last answer has come, the next request goes out before the
caller gets its entries. This needs no task besides the connection's own: answers wait in the
request until they are taken. There are never more answers than requested, and the read window
sizes requests by the replica's bandwidth and delay. If a replica is silent, lacks an entry or
has it damaged, `LedgerReader.read` takes over and goes from replica to replica; then streaming
resumes.
"""

import trio

from geolog.ledger.reading.ledger_reader import EntriesMovedError, FetchedEntry, LedgerReader
from geolog.ledger.replicas.replicas import StreamedRead
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import LedgerRecord, Member
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
        self._asked: StreamedRead | None = None
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
        """Abandon the request under way."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.close()

    async def read(self) -> list[FetchedEntry]:
        """Return the next entries, at least one, wherever they moved; the caller bounds it.

        May raise whatever `LedgerReader.read` raises; the stream can then be read again.
        """
        assert self._next <= self.last, "the stream was read to its end"
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
        """The replica's next entries; empty if it fails, or if no replica holds all entries."""
        asked = self._asked or await self._ask(self._next)
        if asked is None:
            return []
        try:
            answer = await asked.answer()
        except GeologError:
            answer = None
        if answer is None or answer.first != self._next:
            self._replicas.note_failed(asked.member)
            self.close()
            return []
        fetched = self._reader.intact_prefix(self.record, asked.member, self._next, answer)
        if not fetched or len(fetched) < len(answer.entries):
            self._lacking.add(asked.member.instance)
            self.close()
        elif answer.is_last:
            asked.note_complete()
            self.close()
            await self._ask_ahead(EntryId(fetched[-1].entry + 1))
        return fetched

    async def _ask_ahead(self, first: EntryId) -> None:
        """Request the entries that follow, unless that would wait."""
        if first <= self.last:
            with trio.move_on_after(0):
                await self._ask(first)

    async def _ask(self, first: EntryId) -> StreamedRead | None:
        """Ask the nearest replica that holds all entries; None if there is none."""
        member = self._nearest(first)
        if member is None:
            return None
        count = self.record.end_of_run(first, self.last) - first + 1
        try:
            self._asked = await self._replicas.start_read(
                self.record.ledger,
                member,
                first,
                min(count, ENTRIES_PER_ANSWER_MAX),
                bytes_max=self._reader.config.batch_bytes,
            )
        except GeologError:
            self._replicas.note_failed(member)
            return None
        return self._asked

    def _nearest(self, first: EntryId) -> Member | None:
        if self.record.quorum.write_quorum < self.record.quorum.ensemble_size:
            return None  # No member holds all entries.
        fragment = self.record.fragment_of(first)
        slots = self._replicas.in_order(fragment, range(len(fragment.ensemble)))
        members = (fragment.ensemble[slot] for slot in slots)
        return next((one for one in members if one.instance not in self._lacking), None)
