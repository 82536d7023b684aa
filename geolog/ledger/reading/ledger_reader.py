"""Reads a ledger's entries in order, from the nearest replica that has them intact.

At or below the LAC, or the end of a CLOSED ledger, an entry is never simply absent: it is read,
or is unavailable for now, or all its replicas, proven intact, say that it is not there. In the
last case it has moved or is lost. The ledger's record, read for certain after the replicas
answered, decides which. While metadata does not answer, the entry is unavailable.

Rules: PROTOCOL R8 and R9.
"""

import copy
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import attrs
import trio

from geolog.ledger.nodes.node_pool import LinkUse
from geolog.ledger.replicas.entry_check import checked_entry
from geolog.ledger.replicas.open_request import Request
from geolog.ledger.replicas.replica_order import SilentMemberError
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.replicas.speculative_question import Given
from geolog.protocol.hedge_policy import HedgePolicy
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import LedgerRecord, Member
from geolog.protocol.messages import Answer, ProbeAnswer, ReadAnswer
from geolog.protocol.speculation import AnswerWorth
from geolog.protocol.tail_view import TailView, first_probed, tail_view
from geolog.wire.entry import Entry
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import DamagedBytesError, DataLostError, GeologError, UnavailableError

REPORTED_MAX = 1024
"""Damaged ledgers that were reported and are remembered; beyond that all are reported again."""

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
    is_hedged: bool = False
    """Whether an extra request, to a further replica, was answered first."""


@attrs.frozen
class FetchedRun:
    """The intact entries that begin an answer."""

    entries: list[FetchedEntry]
    is_last: bool
    """Whether it is the last answer to its request."""
    answered_count: int
    """Entries in the answer: more if one of them is missing or damaged."""


def _worth_without_entries(answer: ReadAnswer) -> AnswerWorth:
    """The worth of an answer without an intact first entry."""
    if not answer.entries:
        return AnswerWorth.ERROR
    match answer.entries[0].answer:
        case Answer.ABSENT:
            return AnswerWorth.NEGATIVE
        case Answer.HAVE | Answer.CORRUPT:
            return AnswerWorth.DAMAGED
        case Answer.UNKNOWN:
            return AnswerWorth.ERROR


class LedgerReader:
    """Reads ledgers; one reader serves any number of them."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        rng: random.Random,
        config: LedgerReadConfig,
        record_now: RecordNow,
        report_damaged: Callable[[LedgerId], None] | None = None,
    ) -> None:
        """report_damaged: puts a ledger into the repair queue."""
        self.config = config
        self._report_damaged = report_damaged
        self._reported: set[tuple[LedgerId, InstanceId]] = set()
        self._record_now = record_now
        self._rng = rng
        self.replicas = replicas.within(config.replica_timeout_s)
        self.damaged_count = 0

    def hedged_by(self, policy: HedgePolicy) -> "LedgerReader":
        """The same reader, under this hedge policy."""
        other = copy.copy(self)
        other.replicas = self.replicas.hedged_by(policy)
        return other

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
        request = self.read_request(record, first, self._count_asked(record, first, last))
        given = await self.replicas.first_of(fragment, slots, request)
        if isinstance(given, Given):
            return given.good.entries
        if len(given.negatives) == len(slots):
            await self._check_not_lost(record, first, len(slots))
        return []

    def read_request(
        self, record: LedgerRecord, first: EntryId, count: int
    ) -> Request[ReadAnswer, FetchedRun]:
        """The question for entries from `first`, which only intact ones answer."""

        def judge(
            member: Member,
            answer: ReadAnswer,
            is_hedged: bool,  # noqa: FBT001 - A callback.
        ) -> FetchedRun | AnswerWorth:
            if answer.first != first:
                return AnswerWorth.ERROR
            entries = self.intact_prefix(record, member, first, answer, is_hedged=is_hedged)
            if not entries:
                return _worth_without_entries(answer)
            self.replicas.note_bytes(sum(len(one.body) for one in answer.entries))
            return FetchedRun(entries, answer.is_last, len(answer.entries))

        return self.replicas.read_request(
            record.ledger, first, count, bytes_max=self.config.batch_bytes, judge=judge
        )

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

        Returns nothing if one member holds all, or if the first entry does not come. A member
        that is late is not waited for: its entries are read one by one, from others.
        """
        quorum = record.quorum
        if quorum.write_quorum == quorum.ensemble_size:
            return []
        fragment = record.fragment_of(first)
        count = self._count_asked(record, first, last)

        async def ask(member: Member) -> ReadAnswer:
            try:
                return await self._ask(record.ledger, member, first, count)
            except GeologError as error:
                self.replicas.note_error(member, error)
                raise

        slots = self._that_hold(record, first, count)
        answers = await self.replicas.all_of(fragment, slots, ask, is_usual=True)
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
        self,
        record: LedgerRecord,
        member: Member,
        first: EntryId,
        answer: ReadAnswer,
        *,
        is_hedged: bool = False,
    ) -> list[FetchedEntry]:
        """The intact entries of an answer, up to the first that is missing or damaged."""
        fetched: list[FetchedEntry] = []
        for entry, found in self._intact(record, member, first, answer, is_hedged=is_hedged):
            if entry != first + len(fetched):
                break
            fetched.append(found)
        return fetched

    def _intact(
        self,
        record: LedgerRecord,
        member: Member,
        first: EntryId,
        answer: ReadAnswer,
        *,
        is_hedged: bool = False,
    ) -> Iterator[tuple[EntryId, FetchedEntry]]:
        numbering = record.numbering
        for place, one in enumerate(answer.entries):
            if one.answer is not Answer.HAVE:
                if one.answer is Answer.CORRUPT:
                    self._note_damaged(record.ledger, member)
                continue
            entry = EntryId(first + place)
            try:
                decoded = checked_entry(one.body, numbering, entry)
            except DamagedBytesError:
                self._note_damaged(record.ledger, member)  # Another replica must serve it.
                continue
            yield entry, FetchedEntry(entry, decoded, member, is_hedged)

    def _note_damaged(self, ledger: LedgerId, member: Member) -> None:
        """Count a damaged copy, and report its ledger once for each member."""
        self.damaged_count += 1
        self.replicas.note_damaged(member)
        found = (ledger, member.instance)
        if self._report_damaged is not None and found not in self._reported:
            if len(self._reported) >= REPORTED_MAX:
                self._reported.clear()
            self._reported.add(found)
            self._report_damaged(ledger)

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

    async def lac_nearby(self, record: LedgerRecord) -> EntryId | None:
        """The LAC that the nearest member knows; None if no member answers."""
        fragment = record.fragments[-1]
        return await self.replicas.lac(record.ledger, fragment, range(len(fragment.ensemble)))

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
        """Ask all members of the last fragment which entries above `above` they have.

        Once their answers prove an end, the others are waited for only as long as is usual for
        them: more answers can put the end further down, but none is needed (R2).
        """
        fragment = record.fragments[-1]
        first = first_probed(record, above)
        count = self.config.batch_entries

        async def ask(member: Member) -> ProbeAnswer:
            return await self.replicas.probe(
                record.ledger, member, first, count, use=LinkUse.READING
            )

        answers = await self.replicas.all_of(
            fragment,
            range(len(fragment.ensemble)),
            ask,
            is_enough=lambda found: tail_view(record, above, count, found).end is not None,
        )
        return tail_view(record, above, count, answers)
