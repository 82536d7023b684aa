"""Reads a ledger's entries in order, from the nearest replica that has them intact.

At or below the LAC, or the end of a CLOSED ledger, an entry is never simply absent: it is read,
or is unavailable for now, or all its replicas, proven intact, say that it is not there. In the
last case it has moved or is lost. The ledger's record, read for certain after the replicas
answered, decides which. While metadata does not answer, the entry is unavailable.

Rules: PROTOCOL R8 and R9.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import attrs
import trio

from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.reading.shared_answers import SharedAnswers
from geolog.ledger.replicas.entry_check import checked_entry
from geolog.ledger.replicas.replicas import Replicas, SilentMemberError
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import Answer, ProbeAnswer, ReadAnswer
from geolog.protocol.tail_view import TailView, first_probed, tail_view
from geolog.wire.entry import Entry
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import DamagedBytesError, DataLostError, GeologError, UnavailableError

RecordNow = Callable[[LedgerId], Awaitable[LedgerRecord]]
"""Reads a ledger's record for certain. NoSuchLedgerError, UnavailableError."""


class EntriesMovedError(UnavailableError):
    """Entries have moved to other nodes since the record was read; `ledger` is the new one."""

    def __init__(self, ledger: LedgerRecord) -> None:
        super().__init__(f"entries of ledger {ledger.ledger} have moved to other nodes")
        self.ledger = ledger


@attrs.frozen(kw_only=True)
class LedgerReadConfig:
    """Limits of reading."""

    batch_entries: int = 256
    """Entries per request."""

    batch_bytes: int = 1024 * 1024
    """Bytes of one answer, unless a single entry is larger."""

    replica_timeout_s: float = 2.0
    """How long to wait for one replica before trying the next."""

    retry_delay_s: float = 0.2
    """Pause before trying again after all replicas failed."""


@attrs.frozen
class FetchedEntry:
    """An intact entry, and the member that served it."""

    entry: EntryId
    decoded: Entry
    served_by: Member


@attrs.frozen
class Followed:
    """A member's answer to a follower: its LAC, and its intact entries up to that LAC."""

    lac: EntryId
    entries: list[FetchedEntry]
    is_fenced: bool


class LedgerReader:
    """Reads ledgers; one reader serves any number of them."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        rng: random.Random,
        config: LedgerReadConfig,
        record_now: RecordNow,
    ) -> None:
        self.config = config
        self._record_now = record_now
        self._rng = rng
        self.replicas = replicas.within(config.replica_timeout_s)
        self._following: SharedAnswers[tuple[LedgerId, EntryId, InstanceId], Followed | None]
        self._following = SharedAnswers()
        self.damaged_count = 0

    async def read(
        self, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        """Read at least one entry starting at `first`, none above `last`; the caller bounds it.

        All of `first` to `last` must be acknowledged. Tries again while `first` is merely
        unavailable. DataLostError if `first` is provably on no replica; EntriesMovedError or
        NoSuchLedgerError if the record is out of date.
        """
        assert first <= last
        while True:
            fetched = await self._read_spread(record, first, last)
            if not fetched:
                fetched = await self._read_once(record, first, last)
            if fetched:
                return fetched
            await trio.sleep(self.config.retry_delay_s * self._rng.uniform(0.5, 1.5))

    async def read_one(self, record: LedgerRecord, entry: EntryId) -> FetchedEntry:
        """Read one entry, wherever the ledger has moved since its record was read."""
        while True:
            try:
                return (await self.read(record, entry, entry))[0]
            except EntriesMovedError as moved:
                record = moved.ledger

    async def _read_once(
        self, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        fragment = record.fragment_of(first)
        rule = fragment.rule(record.quorum)
        slots = rule.write_set(first)
        count = self._count_asked(record, first, last)
        absent = 0

        async def ask(member: Member) -> list[FetchedEntry] | None:
            nonlocal absent
            answer = await self._ask(record.ledger, member, first, count)
            fetched = self.intact_prefix(record, member, first, answer)
            if fetched:
                self.replicas.forgive(member)
                return fetched
            absent += bool(answer.entries) and answer.entries[0].answer is Answer.ABSENT
            return None

        fetched = await self.replicas.first_of(fragment, slots, ask)
        if fetched is not None:
            return fetched
        if absent == len(slots):
            await self._check_not_lost(record, first, absent)
        return []

    async def _check_not_lost(
        self, record: LedgerRecord, entry: EntryId, absent_count: int
    ) -> None:
        """Decide, after all replicas said ABSENT, whether the entry has moved or is lost.

        It is lost only if the record is still the one that was read before they were asked,
        because then they were its replicas throughout. If metadata does not answer, nothing is
        decided.
        """
        try:
            latest = await self._record_now(record.ledger)
        except GeologError as error:
            if not error.retriable:
                raise
            return
        if latest.fragments != record.fragments:
            raise EntriesMovedError(latest)
        raise DataLostError(
            f"entry {entry} of ledger {record.ledger} was acknowledged, but none of its"
            f" {absent_count} replicas has it: restore a node's disk, or report data loss"
        )

    async def _read_spread(
        self, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        """Read concurrently from members that together hold the entries, if none holds all.

        Returns nothing if one member holds all, or if the first entry does not come.
        """
        quorum = record.quorum
        if quorum.write_quorum == quorum.ensemble_size:
            return []
        fragment = record.fragment_of(first)
        count = self._count_asked(record, first, last)

        async def ask(member: Member) -> ReadAnswer:
            try:
                return await self._ask(record.ledger, member, first, count)
            except GeologError:
                self.replicas.note_failed(member)
                raise

        slots = self._that_hold(record, first, count)
        answers = await self.replicas.all_of(fragment, slots, ask)
        found: dict[EntryId, FetchedEntry] = {}
        for slot, answer in answers.items():
            found.update(self._intact(record, fragment.ensemble[slot], first, answer))
        end = first
        while end in found:
            end = EntryId(end + 1)
        return [found[EntryId(entry)] for entry in range(first, end)]

    def _that_hold(self, record: LedgerRecord, first: EntryId, count: int) -> list[int]:
        """A few members, nearest first, so that each entry is at one of them."""
        fragment = record.fragment_of(first)
        rule = fragment.rule(record.quorum)
        size = record.quorum.ensemble_size
        lacking = [rule.write_mask(entry) for entry in range(first, first + min(count, size))]
        chosen = []
        for slot in self.replicas.in_order(fragment, range(size)):
            left = [mask for mask in lacking if not mask >> slot & 1]
            if len(left) < len(lacking):
                chosen.append(slot)
            lacking = left
        return chosen

    def _count_asked(self, record: LedgerRecord, first: EntryId, last: EntryId) -> int:
        """Number of entries for one request; all have the same ensemble."""
        end = record.end_of_run(first, last)
        return min(end - first + 1, self.config.batch_entries, ENTRIES_PER_ANSWER_MAX)

    async def _ask(
        self, ledger: LedgerId, member: Member, first: EntryId, count: int
    ) -> ReadAnswer:
        return await self.replicas.read(
            ledger, member, first, count, bytes_max=self.config.batch_bytes
        )

    def intact_prefix(
        self, record: LedgerRecord, member: Member, first: EntryId, answer: ReadAnswer
    ) -> list[FetchedEntry]:
        """The intact entries of an answer, up to the first that is missing or damaged."""
        fetched: list[FetchedEntry] = []
        for entry, found in self._intact(record, member, first, answer):
            if entry != first + len(fetched):
                break
            fetched.append(found)
        return fetched

    def _intact(
        self, record: LedgerRecord, member: Member, first: EntryId, answer: ReadAnswer
    ) -> Iterator[tuple[EntryId, FetchedEntry]]:
        numbering = record.numbering
        for place, one in enumerate(answer.entries):
            if one.answer is not Answer.HAVE:
                continue
            entry = EntryId(first + place)
            try:
                decoded = checked_entry(one.body, numbering, entry)
            except DamagedBytesError:
                self.damaged_count += 1  # Another replica must serve it.
                continue
            yield entry, FetchedEntry(entry, decoded, member)

    async def read_replica(
        self, record: LedgerRecord, slot: int, first: EntryId, count: int
    ) -> ReadAnswer:
        """One member's answers for these entries, read from its disk; for verification."""
        member = record.fragment_of(first).ensemble[slot]
        try:
            return await self.replicas.read(
                record.ledger,
                member,
                first,
                count,
                bytes_max=self.config.batch_bytes,
                is_from_disk=True,
            )
        except SilentMemberError:
            raise UnavailableError(f"node {member.node_id} does not answer") from None

    async def follow(
        self, record: LedgerRecord, first: EntryId, *, wait_s: float
    ) -> Followed | None:
        """Wait at the nearest member until it knows `first` is acknowledged, or for `wait_s`.

        None if that member fails: the next call tries another. No entries if the time is over,
        the ledger is fenced there, or the member lacks them intact. Callers that wait at the
        same entry share one request, so they may wait for less than they asked for.
        """
        fragment = record.fragments[-1]
        (slot, *_) = self.replicas.in_order(fragment, range(len(fragment.ensemble)))
        member = fragment.ensemble[slot]
        return await self._following.ask(
            (record.ledger, first, member.instance),
            lambda: self._follow_at(record, member, first, wait_s),
        )

    async def _follow_at(
        self, record: LedgerRecord, member: Member, first: EntryId, wait_s: float
    ) -> Followed | None:
        try:
            answer = await self.replicas.follow(
                record.ledger,
                member,
                first,
                self.config.batch_entries,
                bytes_max=self.config.batch_bytes,
                wait_s=wait_s,
            )
        except GeologError:
            self.replicas.note_failed(member)
            return None
        entries = self.intact_prefix(record, member, first, answer)
        return Followed(answer.lac, entries, answer.is_fenced)

    async def lac_nearby(self, record: LedgerRecord) -> EntryId | None:
        """The LAC that the nearest member knows; None if no member answers."""
        fragment = record.fragments[-1]
        return await self.replicas.first_of(
            fragment, range(len(fragment.ensemble)), partial(self._ask_lac, record.ledger)
        )

    async def lac_anywhere(self, record: LedgerRecord) -> EntryId | None:
        """The highest LAC among members that answer soon, in case the nearest is cut off."""
        fragment = record.fragments[-1]
        found = await self.replicas.all_of(
            fragment,
            range(len(fragment.ensemble)),
            partial(self._ask_lac, record.ledger),
            is_soon=True,
        )
        return max(found.values(), default=None)

    async def _ask_lac(self, ledger: LedgerId, member: Member) -> EntryId:
        probed = await self.replicas.probe(ledger, member, EntryId(0), 0, use=LinkUse.READING)
        return probed.lac

    async def probe_tail(self, record: LedgerRecord, above: EntryId) -> TailView:
        """Ask all members of the last fragment which entries above `above` they have."""
        fragment = record.fragments[-1]
        first = first_probed(record, above)
        count = self.config.batch_entries

        async def ask(member: Member) -> ProbeAnswer:
            return await self.replicas.probe(
                record.ledger, member, first, count, use=LinkUse.READING
            )

        answers = await self.replicas.all_of(fragment, range(len(fragment.ensemble)), ask)
        return tail_view(record, above, count, answers)
