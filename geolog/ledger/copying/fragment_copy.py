"""Copies one fragment: performs the effects of one core after another.

Every byte is checked between reading and sending: the entry's checksums, and that it is the
requested entry. Bytes in flight are bounded, and so is the rate if one is set.

Rules: PROTOCOL C2.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import attrs
import trio

from geolog.ledger.copying.copy_target import CopyTarget
from geolog.ledger.copying.rate_limit import RateLimit
from geolog.ledger.nodes.connection import NodeConnection, NodeRefusedError
from geolog.ledger.replicas.entry_check import encoded_as_read
from geolog.ledger.replicas.replica_order import SilentMemberError
from geolog.ledger.replicas.replicas import Replicas
from geolog.protocol.copying import (
    CopyBatch,
    CopyEffect,
    Fetch,
    FetchRun,
    FragmentExtent,
    NoIntactCopy,
    runs_of,
)
from geolog.protocol.ids import EntryId
from geolog.protocol.ledger_state import LedgerRecord
from geolog.protocol.messages import Answer, Reason
from geolog.wire.entry import EncodedEntry
from topology.errors import DamagedBytesError, GeologError, UnavailableError
from topology.quorum import AckRule

LOST_NAMED_MAX = 100
"""Maximum lost entries that an outcome lists; all are counted."""


@attrs.frozen(kw_only=True)
class CopyConfig:
    """Limits of copying."""

    rate_bytes_per_s: float = math.inf
    """Bytes per second to copy or compare, over all ledgers; unlimited by default."""

    batch_entries: int = 1024
    """Entries to compare at a time."""

    run_entries: int = 64
    """Entries per request."""

    reads_at_once: int = 8
    """Concurrent requests; each holds the bytes of one answer in memory."""

    read_bytes: int = 512 * 1024
    """Bytes of one answer, unless a single entry is larger."""

    member_timeout_s: float = 5.0
    """How long a member may take to answer; then it counts as silent for this fragment."""


@attrs.define
class CopyOutcome:
    """Outcome of copying one fragment. Slots are its ensemble's, then the leaving members'."""

    copies_stored: int = 0
    bytes_stored: int = 0
    damaged_count: int = 0
    """Copies found damaged, at any member."""
    lost_count: int = 0
    """Entries for which all members answered and none has an intact copy."""
    lost: list[EntryId] = attrs.field(factory=list)
    unreachable_count: int = 0
    """Entries whose intact copies, if any, are at members that do not answer."""
    complaints: dict[int, str] = attrs.field(factory=dict)
    """Why a member does not answer, or why a target does not take all that it lacks."""
    never: set[int] = attrs.field(factory=set)
    """Members that will not take the entries later either."""

    def note(self, missing: NoIntactCopy) -> None:
        """Count an entry that could not be copied."""
        if missing.silent:
            self.unreachable_count += 1
            return
        self.lost_count += 1
        if self.lost_count <= LOST_NAMED_MAX:
            self.lost.append(missing.entry)

    def why_incomplete(self, slot: int) -> str | None:
        """Why a target may lack copies; None if it has all of its own entries."""
        if slot in self.complaints:
            return self.complaints[slot]
        if self.lost_count:
            return f"{self.lost_count} entries have no intact copy at any member"
        if self.unreachable_count:
            return f"{self.unreachable_count} entries are only at members that do not answer"
        return None


@attrs.frozen
class CopyMeans:
    """Resources shared by all fragments of a copier."""

    replicas: Replicas
    config: CopyConfig
    rate: RateLimit
    tell: Callable[[int, int, int], None]


class FragmentCopy:
    """Gives the targets (slots) the entries that they lack; `run` once, then `close`."""

    def __init__(
        self,
        record: LedgerRecord,
        extent: FragmentExtent,
        targets: Sequence[int],
        order: Sequence[int],
        means: CopyMeans,
    ) -> None:
        self._record = record
        self._numbering = record.numbering
        self._extent = extent
        self._members = (
            *extent.fragment.ensemble,
            *(member for _, member in extent.leaving),
        )
        self._rule = extent.fragment.rule(record.quorum)
        self._targets = targets
        self._order = order
        self._means = means
        self._outcome = CopyOutcome()
        self._silent: set[int] = set()  # Members that get no further requests or copies.
        self._sinks: dict[int, CopyTarget] = {}
        self._reads = trio.Semaphore(means.config.reads_at_once)

    def close(self) -> None:
        """Release all connections."""
        for sink in self._sinks.values():
            sink.close()

    async def run(self, *, is_deep: bool) -> CopyOutcome:
        """Copy batch by batch; `is_deep` also reads the targets' own copies."""
        for first, count in batches_of(self._extent, self._means.config.batch_entries):
            core = CopyBatch(
                self._rule,
                first=first,
                count=count,
                targets=sum(1 << slot for slot in self._targets),
                order=self._order,
                leaving=[slot for slot, _ in self._extent.leaving],
            )
            await self._ask_all(core, first, count, deep_at=self._targets if is_deep else ())
            effects = core.start()
            if effects:
                missing = await self._perform(core, effects)
                await self._look_again(first, count, missing)
            self._means.tell(count, 0, 0)
        return self._outcome

    # Asking.

    async def _ask_all(
        self, core: CopyBatch, first: EntryId, count: int, *, deep_at: Sequence[int]
    ) -> None:
        async def ask(slot: int) -> None:
            look = self._compare if slot in deep_at else self._probe
            answers = await look(slot, first, count)
            if answers is None:
                core.on_silence(slot)
                return
            core.on_answers(slot, answers)
            self._outcome.damaged_count += sum(
                answer is Answer.CORRUPT and self._is_of(slot, first + place)
                for place, answer in enumerate(answers)
            )

        async with trio.open_nursery() as nursery:
            for slot in range(len(self._members)):
                nursery.start_soon(ask, slot)

    async def _probe(self, slot: int, first: EntryId, count: int) -> Sequence[Answer] | None:
        """Ask the member which entries it has; None if it does not answer."""
        if slot in self._silent:
            return None
        try:
            probed = await self._means.replicas.probe(
                self._record.ledger, self._members[slot], first, count
            )
        except GeologError as error:
            self._silence(slot, error)
            return None
        return probed.answers

    async def _compare(self, slot: int, first: EntryId, count: int) -> Sequence[Answer] | None:
        """Read and check each of the member's copies; None if it does not answer."""
        answers: list[Answer] = []
        while len(answers) < count:
            entry = EntryId(first + len(answers))
            async with self._reads:
                found = await self._read(slot, entry, count - len(answers), is_from_disk=True)
            if found is None:
                return None
            answers += [answer for answer, _ in found]
            sizes = [encoded.length_bytes for _, encoded in found if encoded is not None]
            await self._means.rate.wait(sum(sizes))
        return answers

    async def _read(
        self, slot: int, first: EntryId, count: int, *, is_from_disk: bool = False
    ) -> list[tuple[Answer, EncodedEntry | None]] | None:
        """Some copies from `first`, checked; HAVE has its entry. None if unanswered."""
        if slot in self._silent:
            return None
        member = self._members[slot]
        try:
            answer = await self._means.replicas.read(
                self._record.ledger,
                member,
                first,
                count,
                bytes_max=self._means.config.read_bytes,
                is_from_disk=is_from_disk,
            )
            if not answer.entries:
                raise UnavailableError(f"node {member.node_id} answered a read without entries")
        except GeologError as error:
            self._silence(slot, error)
            return None
        return [
            self._checked(EntryId(first + place), one.answer, one.body)
            for place, one in enumerate(answer.entries[:count])
        ]

    def _checked(
        self, entry: EntryId, answer: Answer, body: bytes | memoryview
    ) -> tuple[Answer, EncodedEntry | None]:
        if answer is not Answer.HAVE:
            return answer, None
        try:
            encoded = encoded_as_read(body, self._numbering, entry)
        except DamagedBytesError:
            return Answer.CORRUPT, None
        return answer, encoded

    def _silence(self, slot: int, error: GeologError) -> None:
        self._silent.add(slot)
        self._outcome.complaints[slot] = str(error)
        if isinstance(error, NodeRefusedError) and error.reason is Reason.NO_SUCH_LEDGER:
            self._outcome.never.add(slot)  # Deleted there: it would know a ledger it never had.

    def _is_of(self, slot: int, entry: int) -> bool:
        size = len(self._extent.fragment.ensemble)
        if slot >= size:
            slot, _ = self._extent.leaving[slot - size]
        return bool(self._rule.write_mask(entry) >> slot & 1)

    # Copying.

    async def _perform(self, core: CopyBatch, effects: list[CopyEffect]) -> list[NoIntactCopy]:
        """Perform effects and those that follow, in at most as many rounds as members."""
        missing: list[NoIntactCopy] = []
        while effects:
            fetches = [effect for effect in effects if isinstance(effect, Fetch)]
            missing += [effect for effect in effects if isinstance(effect, NoIntactCopy)]
            for slot in sorted({slot for fetch in fetches for slot in fetch.to}):
                await self._make_known(slot)
            following: list[CopyEffect] = []
            async with trio.open_nursery() as nursery:
                for run in runs_of(fetches, count_max=self._means.config.run_entries):
                    await self._reads.acquire()
                    nursery.start_soon(self._fetch, core, run, following)
            effects = sorted(following, key=lambda effect: effect.entry)
        for one in missing:
            self._outcome.note(one)
        return missing

    async def _make_known(self, slot: int) -> None:
        """Make the ledger known to a target before its first copy."""
        if slot in self._silent or slot in self._sinks:
            return
        member = self._members[slot]

        async def greet(connection: NodeConnection) -> None:
            sink = self._sinks[slot] = CopyTarget(
                self._means.replicas.pool.link(member.instance),
                connection,
                self._record,
                slot,
                member,
                lac=self._extent.last,
            )
            await sink.make_known()

        try:
            await self._means.replicas.reach(member.instance, greet)
        except SilentMemberError:
            self._silence(slot, UnavailableError(f"node {member.node_id} does not answer"))
        except GeologError as error:
            self._silence(slot, error)

    async def _fetch(self, core: CopyBatch, run: FetchRun, following: list[CopyEffect]) -> None:
        """Read a run of entries and store them; what is missing here is fetched elsewhere."""
        try:
            entry, end = run.first, EntryId(run.first + run.count)
            while entry < end:
                found = await self._read(run.source, entry, end - entry)
                if found is None:
                    for left in range(entry, end):
                        following += core.on_failed_source(
                            EntryId(left), run.source, is_damaged=False
                        )
                    return
                await self._store_all(core, run, entry, found, following)
                entry = EntryId(entry + len(found))
        finally:
            self._reads.release()

    async def _store_all(
        self,
        core: CopyBatch,
        run: FetchRun,
        first: EntryId,
        found: list[tuple[Answer, EncodedEntry | None]],
        following: list[CopyEffect],
    ) -> None:
        async with trio.open_nursery() as nursery:
            for place, (answer, encoded) in enumerate(found):
                entry = EntryId(first + place)
                if encoded is not None:
                    nursery.start_soon(self._store, entry, encoded, run.to)
                    continue
                self._outcome.damaged_count += answer is Answer.CORRUPT
                following += core.on_failed_source(entry, run.source, is_damaged=True)

    async def _store(self, entry: EntryId, encoded: EncodedEntry, to: Sequence[int]) -> None:
        for slot in to:
            await self._means.rate.wait(encoded.length_bytes)
            if slot in self._silent:
                continue
            try:
                # A node that leaves it unanswered loses its connection, which ends this wait.
                await self._sinks[slot].store(entry, encoded)
            except NodeRefusedError as error:
                self._outcome.complaints[slot] = str(error)
                if error.reason is Reason.CONFLICT:
                    self._outcome.never.add(slot)
                else:
                    self._silent.add(slot)  # It would refuse the others too.
            except GeologError as error:
                self._silence(slot, error)
            else:
                self._outcome.copies_stored += 1
                self._outcome.bytes_stored += encoded.length_bytes
                self._means.tell(0, 1, encoded.length_bytes)

    async def _look_again(
        self, first: EntryId, count: int, missing: Sequence[NoIntactCopy]
    ) -> None:
        """Ask the targets whether they now have what was copied."""
        for slot in self._targets:
            answers = await self._probe(slot, first, count)
            if answers is None or slot in self._outcome.complaints:
                continue
            lacking_count = lacking_count_of(self._rule, slot, first, answers)
            lacking_count -= sum(slot in one.to for one in missing)
            if lacking_count > 0:
                self._outcome.complaints[slot] = (
                    f"{lacking_count} entries were copied there, but are still missing"
                )


def batches_of(extent: FragmentExtent, size: int) -> Iterator[tuple[EntryId, int]]:
    """The entries of a fragment in batches, each as first entry and count."""
    for first in range(extent.fragment.first_entry, extent.last + 1, size):
        yield EntryId(first), min(size, extent.last - first + 1)


def lacking_count_of(
    rule: AckRule, slot: int, first: EntryId, answers: Sequence[Answer]
) -> int:
    """Number of a member's own entries that it does not report."""
    return sum(
        answer is not Answer.HAVE and rule.write_mask(first + place) >> slot & 1
        for place, answer in enumerate(answers)
    )
