"""Reading every replica of every entry of a stream, and reporting all defects.

Nodes read from their disks, past every cache that they can bypass, so that rot shows even if a
node still has good bytes in memory. This takes long, and meanwhile copies move and segments are
trimmed: before a copy is reported missing, the ledger's record is read again.

A ledger goes into the repair queue if a member answers that it lacks copies, or has damaged
ones. The copies of a member that does not answer are not verified; the member is named.

Rules: PROTOCOL C14.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import attrs
import trio
from crc32c import crc32c

from geolog.admin.extents import Extent
from geolog.background import all_of
from geolog.ledger.reading.ledger_reader import LedgerReader
from geolog.metadata.repair_queue import RepairReason
from geolog.metadata.seam import Freshness
from geolog.protocol.copying import final_extents
from geolog.protocol.entry_numbering import EntryNumbering
from geolog.protocol.ids import EntryId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from geolog.protocol.messages import Answer, ReadAnswer
from geolog.wire.entry import EntryHeader, decode_entry
from topology.errors import DamagedBytesError, GeologError
from topology.quorum import AckRule

PROBLEMS_MAX = 100
"""Problems of each kind that are described in words; all are counted."""

_BATCH_ENTRIES = 64
"""Entries of one request."""

_ENTRIES_AT_ONCE = 4 * _BATCH_ENTRIES
"""Entries whose copies are read at once; over a WAN, a member is a round trip away."""

_TRIES = 3
"""A member is asked so often before it counts as silent: a busy one may be late once."""

_TRY_PAUSE_S = 1.0

Enqueue = Callable[[LedgerId, RepairReason], Awaitable[None]]
"""Puts a ledger into the repair queue."""

LatestLedger = Callable[[LedgerRecord, Freshness], Awaitable[LedgerRecord | None]]
"""The ledger's current record; None if it is gone. UnavailableError."""


@attrs.define
class NodeVerified:
    """The copies that one node has."""

    copies_good: int = 0
    copies_damaged: int = 0
    copies_missing: int = 0
    """Copies that it should have but has not, including those it may have lost to damage."""
    copies_under_way: int = 0
    """Copies that never came, of entries in a ledger that is still written: they may come."""
    bytes_read: int = 0
    """Bytes of good copies, read from its disk."""


@attrs.define
class VerifyReport:
    """Outcome of a verification; `is_good` unless a copy or an entry has a defect."""

    stream: str
    segments: int = 0
    entries: int = 0
    records: int = 0
    copies_expected: int = 0
    copies_good: int = 0
    damaged: int = 0
    """Copies that do not match their checksums."""
    unequal: int = 0
    """Entries whose intact copies differ."""
    gaps: int = 0
    """Places where sequences do not continue."""
    without_ack_set: int = 0
    """Entries whose good copies are not an ack set."""
    under_replicated: int = 0
    """Entries with fewer good copies than the write quorum."""
    mirrored: int = 0
    """Entries of mirrors that were compared with the home's."""
    mirrors_unequal: int = 0
    """Entries of mirrors that differ from the home's, or that the home does not have."""
    mirrors_behind: list[str] = attrs.field(factory=list)
    """Mirrors that lacked records of the home, and how many: no fault, if they come yet."""
    full_copies: bool = False
    bytes_read: int = 0
    """Bytes of intact copies, read from the disks of their nodes."""
    nodes: dict[str, NodeVerified] = attrs.field(factory=dict)
    """The copies of each member, by node id."""
    silent_nodes: list[str] = attrs.field(factory=list)
    """Members that did not answer; their copies were not verified."""
    silent_mirrors: list[str] = attrs.field(factory=list)
    """Mirrors that were not compared with their home to the end, and why."""
    ledgers_queued: list[int] = attrs.field(factory=list)
    """Ledgers that were put into the repair queue."""
    problems: list[str] = attrs.field(factory=list)
    """Of copies, in words."""
    problems_untold: int = 0
    """How many more there are."""
    mirror_problems: list[str] = attrs.field(factory=list)
    """Entries of mirrors that are not those of the home, in words."""

    @property
    def is_good(self) -> bool:
        """Whether no operator action is needed."""
        faults = self.damaged + self.unequal + self.gaps + self.without_ack_set
        faults += self.mirrors_unequal + len(self.silent_mirrors)
        return faults == 0 and not (self.full_copies and self.under_replicated)

    @property
    def reasons(self) -> list[str]:
        """The reasons why it is not good, at most a fixed number; empty if it is."""
        told = [*self.problems, *self.mirror_problems, *self.silent_mirrors]
        if self.full_copies and self.under_replicated:
            told.append(f"{self.under_replicated} entries have too few good copies")
        return [*told, *self.next_steps]

    @property
    def next_steps(self) -> list[str]:
        """The commands that fix it, and what could not be verified."""
        steps = []
        if self.silent_nodes:
            silent = ", ".join(self.silent_nodes)
            steps.append(
                f"{silent} did not answer: start the nodes that are down, then verify again"
            )
        if self.ledgers_queued:
            count = len(self.ledgers_queued)
            what = "1 ledger is" if count == 1 else f"{count:,} ledgers are"
            steps.append(f"{what} in the repair queue: run `geolog ledger repair --queue`")
        return steps

    def tell(self, problem: str) -> None:
        """Describe a problem of copies in words, up to a maximum number."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_untold += 1

    def tell_mirror(self, defects: Sequence[str]) -> None:
        """Describe entries that are not those of the home, up to a maximum number."""
        self.mirrors_unequal += len(defects)
        self.mirror_problems += defects[: PROBLEMS_MAX - len(self.mirror_problems)]


@attrs.frozen
class _Copy:
    """A member's answer for one entry, without its bytes: answers are many and large."""

    slot: int
    answer: Answer
    header: EntryHeader | None = None
    """None unless the copy is intact."""
    crc: int = 0
    """Checksum of the whole entry, if the copy is intact."""
    length: int = 0
    """Length of the whole entry, if the copy is intact."""


@attrs.frozen
class _Run:
    """The answers of the members of one fragment for entries in a row."""

    fragment: Fragment
    copies: dict[EntryId, list[_Copy]]
    silent: set[int] = attrs.field(factory=set)
    """Slots of members that did not answer."""


async def in_groups(extents: AsyncIterator[Extent]) -> AsyncGenerator[list[Extent], None]:
    """Extents in order, small ones together: as many as can be read at once."""
    group: list[Extent] = []
    entries_count = 0
    async for extent in extents:
        count = min(extent.last + 1, _ENTRIES_AT_ONCE)
        if group and entries_count + count > _ENTRIES_AT_ONCE:
            yield group
            group, entries_count = [], 0
        group.append(extent)
        entries_count += count
    if group:
        yield group


class StreamVerifier:
    """Verifies one stream, ledger by ledger."""

    def __init__(
        self,
        stream: str,
        reader: LedgerReader,
        *,
        latest: LatestLedger,
        enqueue: Enqueue,
        full_copies: bool,
        progress: Callable[[int], None] | None,
    ) -> None:
        """`progress` is told how many records were verified."""
        self.report = VerifyReport(stream, full_copies=full_copies)
        self._reader = reader
        self._latest = latest
        self._enqueue = enqueue
        self._progress = progress
        self._sequence_next: int | None = None
        self._down: set[str] = set()  # Nodes that never answered one of their requests.

    async def verify_ledgers(self, extents: Sequence[Extent]) -> None:
        """Verify the segments after the previous one, as far as they are not trimmed.

        The first entries of all of them are read at once.
        """
        begun = await all_of(
            [partial(self._read, one.ledger, EntryId(0), one.last) for one in extents]
        )
        for extent, run in zip(extents, begun, strict=True):
            await self._verify(extent, run)

    async def _verify(self, extent: Extent, begun: _Run) -> None:
        """Verify one segment, of which these entries were read already."""
        record, last = extent.ledger, extent.last
        if extent.sequence_due is not None:
            self._sequence_next = extent.sequence_due
        self.report.segments += 1
        found_wrong: dict[RepairReason, None] = {}
        first = EntryId(0)
        while first <= last:
            run = begun if first == 0 and record is extent.ledger else None
            run = run or await self._read(record, first, last)
            fragment, copies = run.fragment, run.copies
            rule = fragment.rule(record.quorum)
            if any(_lacks_copies(rule, entry, found) for entry, found in copies.items()):
                are_safe = all(_is_safe(rule, entry, found) for entry, found in copies.items())
                freshness = Freshness.LATEST if are_safe else Freshness.CERTAIN
                latest = await self._latest(record, freshness)
                if latest is None:
                    self._sequence_next = None
                    break
                if latest.fragments != record.fragments:
                    record = latest
                    continue
            self._note_silent(fragment, run.silent)
            # In a fragment that is still written, missing copies are the writer's business.
            final_to = max((each.last for each in final_extents(record)), default=-1)
            for entry, found in copies.items():
                of_write_set = _of_write_set(rule, entry, found)
                is_final = entry <= final_to
                self._judge(rule, extent, fragment, entry, of_write_set)
                for copy in of_write_set:
                    node_id = fragment.ensemble[copy.slot].node_id
                    self._count(node_id, copy, is_final=is_final)
                for why in _to_repair(of_write_set, is_final=is_final):
                    found_wrong[why] = None
            first = EntryId(first + len(copies))
            if self._progress is not None:
                self._progress(self.report.records)
        if found_wrong:
            self.report.ledgers_queued.append(record.ledger)
        for why in found_wrong:
            await self._enqueue(record.ledger, why)

    def _note_silent(self, fragment: Fragment, silent: set[int]) -> None:
        for slot in sorted(silent):
            node_id = fragment.ensemble[slot].node_id
            if node_id not in self.report.silent_nodes:
                self.report.silent_nodes.append(node_id)

    async def _read(self, record: LedgerRecord, first: EntryId, last: EntryId) -> _Run:
        """Read all copies of entries from `first` on; of no more than can be read at once."""
        if first > last:
            return _Run(record.fragment_of(first), {})
        fragment = record.fragment_of(first)
        count = min(record.end_of_run(first, last) - first + 1, _ENTRIES_AT_ONCE)
        run = _Run(fragment, {EntryId(first + place): [] for place in range(count)})
        async with trio.open_nursery() as nursery:
            for slot in range(len(fragment.ensemble)):
                for begin in range(first, first + count, _BATCH_ENTRIES):
                    end = min(begin + _BATCH_ENTRIES, first + count)
                    nursery.start_soon(self._collect, record, slot, begin, end, run)
        return run

    async def _collect(
        self, record: LedgerRecord, slot: int, begin: int, end: int, run: _Run
    ) -> None:
        """Ask one member for its copies, in as many requests as needed."""
        asked = EntryId(begin)
        while asked < end:
            answer = await self._ask(record, slot, asked, end - asked)
            if answer is None:
                run.silent.add(slot)  # Its copies are not known now.
                return
            for one in answer.entries:
                if asked < end:
                    run.copies[asked].append(_copy_of(slot, one.answer, one.body))
                asked = EntryId(asked + 1)

    async def _ask(
        self, record: LedgerRecord, slot: int, first: EntryId, count: int
    ) -> ReadAnswer | None:
        """One answer of a member; None if it does not answer."""
        node_id = record.fragment_of(first).ensemble[slot].node_id
        for tries_left in reversed(range(1 if node_id in self._down else _TRIES)):
            try:
                answer = await self._reader.read_replica(record, slot, first, count)
            except GeologError:
                if tries_left:
                    await trio.sleep(_TRY_PAUSE_S)
            else:
                self._down.discard(node_id)
                return answer
        self._down.add(node_id)
        return None

    def _judge(
        self,
        rule: AckRule,
        extent: Extent,
        fragment: Fragment,
        entry: EntryId,
        of_write_set: list[_Copy],
    ) -> None:
        report, numbering = self.report, extent.segment.numbering
        place = f"segment {numbering.segment} entry {numbering.in_segment(entry)}"
        where = f"{extent.partition} {place}"
        good = [copy for copy in of_write_set if copy.header is not None]
        report.entries += 1
        report.copies_expected += rule.config.write_quorum
        report.copies_good += len(good)
        damaged = [copy for copy in of_write_set if copy.answer is Answer.CORRUPT]
        if damaged:
            report.damaged += len(damaged)
            report.tell(f"{where}: {_copies(len(damaged))} damaged at {_at(fragment, damaged)}")
        if not _is_safe(rule, entry, of_write_set):
            report.without_ack_set += 1
            why = _why_no_more(rule, fragment, entry, of_write_set)
            report.tell(f"{where}: {_copies(len(good))} good, too few for an ack set: {why}")
        if len(good) < rule.config.write_quorum:
            report.under_replicated += 1
        if any((copy.header, copy.crc) != (good[0].header, good[0].crc) for copy in good[1:]):
            report.unequal += 1
            report.tell(f"{where}: its copies differ")
        self._follow(numbering, entry, where, good)

    def _count(self, node_id: str, copy: _Copy, *, is_final: bool) -> None:
        node = self.report.nodes.setdefault(node_id, NodeVerified())
        is_lost, is_absent = copy.answer is Answer.UNKNOWN, copy.answer is Answer.ABSENT
        node.copies_good += copy.header is not None
        node.copies_damaged += copy.answer is Answer.CORRUPT
        node.copies_missing += is_lost or (is_absent and is_final)
        node.copies_under_way += is_absent and not is_final
        node.bytes_read += copy.length
        self.report.bytes_read += copy.length

    def _follow(
        self, numbering: EntryNumbering, entry: EntryId, where: str, good: list[_Copy]
    ) -> None:
        """Check that the right entry is here, and that sequences continue."""
        header = good[0].header if good else None
        if header is None:
            self._sequence_next = None
            return
        is_in_turn = self._sequence_next in (None, header.first_sequence)
        is_here = numbering.is_place_of(entry, header.segment, header.entry)
        if not is_here or not is_in_turn:
            self.report.gaps += 1
            self.report.tell(
                f"{where}: expected sequence {self._sequence_next}, found"
                f" {header.first_sequence} of segment {header.segment} entry {header.entry}"
            )
        self._sequence_next = header.next_sequence
        self.report.records += header.next_sequence - header.first_sequence


def _copies(count: int) -> str:
    return "1 copy is" if count == 1 else f"{count} copies are"


def _at(fragment: Fragment, copies: Sequence[_Copy]) -> str:
    return ", ".join(fragment.ensemble[copy.slot].node_id for copy in copies)


def _why_no_more(
    rule: AckRule, fragment: Fragment, entry: EntryId, of_write_set: Sequence[_Copy]
) -> str:
    """The members that should have the other copies, and their answers."""
    answered = {copy.slot for copy in of_write_set}
    silent = [
        fragment.ensemble[slot].node_id
        for slot in rule.write_set(entry)
        if slot not in answered
    ]
    whys = [f"{', '.join(silent)} did not answer"] if silent else []
    for answer, what in (
        (Answer.CORRUPT, "damaged at"),
        (Answer.UNKNOWN, "possibly lost to damage at"),
        (Answer.ABSENT, "missing at"),
    ):
        if said := [copy for copy in of_write_set if copy.answer is answer]:
            whys.append(f"{what} {_at(fragment, said)}")
    return "; ".join(whys) or "they are in too few regions"


def _to_repair(of_write_set: Sequence[_Copy], *, is_final: bool) -> list[RepairReason]:
    """The copies of an entry that answering members lack."""
    answers = {copy.answer for copy in of_write_set}
    whys = [RepairReason.DAMAGED] if Answer.CORRUPT in answers else []
    if is_final and answers & {Answer.ABSENT, Answer.UNKNOWN}:
        whys.append(RepairReason.COPIES_MISSING)
    return whys


def _of_write_set(rule: AckRule, entry: EntryId, found: list[_Copy]) -> list[_Copy]:
    mask = rule.write_mask(entry)
    return sorted((copy for copy in found if mask >> copy.slot & 1), key=lambda copy: copy.slot)


def _lacks_copies(rule: AckRule, entry: EntryId, found: list[_Copy]) -> bool:
    good = [copy for copy in _of_write_set(rule, entry, found) if copy.header is not None]
    return len(good) < rule.config.write_quorum


def _is_safe(rule: AckRule, entry: EntryId, found: list[_Copy]) -> bool:
    good = [copy for copy in _of_write_set(rule, entry, found) if copy.header is not None]
    return rule.is_ack(entry, sum(1 << copy.slot for copy in good))


def _copy_of(slot: int, answer: Answer, body: bytes | memoryview) -> _Copy:
    if answer is not Answer.HAVE:
        return _Copy(slot, answer)
    try:
        decoded = decode_entry(body)
        decoded.verify()
    except DamagedBytesError:
        return _Copy(slot, Answer.CORRUPT)
    return _Copy(slot, answer, decoded.header, crc32c(body), len(body))
