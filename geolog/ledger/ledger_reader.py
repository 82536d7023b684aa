"""Reading a ledger's entries in order, from the nearest replica that has them intact.

At or below the LAC, or the end of a CLOSED ledger, there is no negative answer: an entry is
read, or it is unavailable for now, or all its replicas, proven intact, say that it is not
there: lost.
"""

import random
from collections.abc import Callable, Sequence

import attrs
import trio

from geolog.ledger.node_pool import NodePool
from geolog.protocol.ids import NO_ENTRY, NO_EPOCH, EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, Member
from geolog.protocol.messages import Answer, Probe, ProbeAnswer, Read, ReadAnswer
from geolog.wire.entry import Entry, EntryHeader, decode_entry
from topology.errors import DamagedBytesError, DataLostError, GeologError, UnavailableError


@attrs.frozen(kw_only=True)
class LedgerReadConfig:
    """Bounds of reading."""

    batch_entries: int = 256
    """Entries asked for at a time."""

    batch_bytes: int = 2 * 1024 * 1024
    """Bytes asked for at a time."""

    replica_timeout_s: float = 2.0
    """How long one replica may take before the next one is asked."""

    retry_delay_s: float = 0.2
    """Pause after all replicas failed, before they are asked again."""


@attrs.frozen
class FetchedEntry:
    """An intact entry, and who served it."""

    entry: EntryId
    decoded: Entry
    served_by: Member


@attrs.frozen
class TailView:
    """What a probe found at the tail of a ledger that may still be written.

    `lac`: the highest that any member knows. `end`: no entry from here on was ever acknowledged
    (of its write set a blocking set says ABSENT); None when too few members answered, or when
    it lies behind what was asked. `held_to`: up to here there is surely no end, as all was
    asked and some member has the last.
    """

    lac: EntryId
    end: EntryId | None
    held_to: EntryId
    is_fenced: bool
    silent_count: int


class LedgerReader:
    """Reads ledgers from where it stands; one serves any number of ledgers."""

    def __init__(
        self,
        pool: NodePool,
        *,
        region: str | None,
        rng: random.Random,
        config: LedgerReadConfig,
    ) -> None:
        self._pool = pool
        self._region = region
        self._rng = rng
        self._config = config
        self._failed: dict[InstanceId, float] = {}  # When a replica last failed us.
        self.damaged_count = 0

    async def read(
        self, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        """Some entries from `first` on, at least one, none above `last`; the caller bounds it.

        All of `first` to `last` must be acknowledged. DataLostError when `first` is provably on
        no replica; waits and tries again while it is merely unavailable.
        """
        assert first <= last
        while True:
            fetched = await self._read_once(record, first, last)
            if fetched:
                return fetched
            await trio.sleep(self._config.retry_delay_s * self._rng.uniform(0.5, 1.5))

    async def _read_once(
        self, record: LedgerRecord, first: EntryId, last: EntryId
    ) -> list[FetchedEntry]:
        fragment = record.fragment_of(first)
        rule = fragment.rule(record.quorum)
        slots = rule.write_set(first)
        absent = 0
        for slot in self._in_order(fragment, slots):
            member = fragment.ensemble[slot]
            count = min(last - first + 1, self._config.batch_entries)
            with trio.move_on_after(self._config.replica_timeout_s) as patience:
                try:
                    answer = await self._ask(record.ledger, member, first, count)
                except GeologError:
                    self._failed[member.instance] = trio.current_time()
                    continue
                fetched = self._intact_prefix(record, member, first, answer)
                if fetched:
                    self._failed.pop(member.instance, None)
                    return fetched
                absent += answer.entries[0].answer is Answer.ABSENT
            if patience.cancelled_caught:
                self._failed[member.instance] = trio.current_time()
        if absent == len(slots):
            raise DataLostError(
                f"entry {first} of ledger {record.ledger} was acknowledged, and none of its"
                f" {absent} replicas has it: restore a node's disk, or report data loss"
            )
        return []

    def _in_order(self, fragment: Fragment, slots: Sequence[int]) -> list[int]:
        """The nearest first: this region, then the others; those that failed us lately last."""
        order = list(slots)
        self._rng.shuffle(order)
        now_s = trio.current_time()

        def rank(slot: int) -> tuple[bool, bool]:
            member = fragment.ensemble[slot]
            failed_s = self._failed.get(member.instance)
            is_suspect = failed_s is not None and now_s - failed_s < 5.0
            return is_suspect, member.location.region != self._region

        return sorted(order, key=rank)

    async def _ask(
        self, ledger: LedgerId, member: Member, first: EntryId, count: int
    ) -> ReadAnswer:
        connection = await self._pool.link(member.instance).wait_connection()
        return await connection.ask(
            lambda request: Read(
                request,
                ledger,
                first,
                count,
                self._config.batch_bytes,
                1,
                NO_EPOCH,
                member.instance,
            ),
            ReadAnswer,
        )

    def _intact_prefix(
        self, record: LedgerRecord, member: Member, first: EntryId, answer: ReadAnswer
    ) -> list[FetchedEntry]:
        fetched = []
        for place, one in enumerate(answer.entries):
            if one.answer is not Answer.HAVE:
                break
            entry = EntryId(first + place)
            try:
                decoded = decode_entry(one.body)
                decoded.verify()
                check_place(decoded.header, record, entry)
            except DamagedBytesError:
                self.damaged_count += 1  # Another replica's turn.
                break
            fetched.append(FetchedEntry(entry, decoded, member))
        return fetched

    async def read_replica(
        self, record: LedgerRecord, slot: int, first: EntryId, count: int
    ) -> ReadAnswer:
        """What one member says of these entries, as it says it; for verification."""
        member = record.fragment_of(first).ensemble[slot]
        with trio.move_on_after(self._config.replica_timeout_s):
            return await self._ask(record.ledger, member, first, count)
        raise UnavailableError(f"node {member.node_id} does not answer")

    async def lac_nearby(self, record: LedgerRecord) -> EntryId | None:
        """The LAC that the nearest member knows; None when no member answers."""
        fragment = record.fragments[-1]
        for slot in self._in_order(fragment, range(len(fragment.ensemble))):
            member = fragment.ensemble[slot]
            with trio.move_on_after(self._config.replica_timeout_s):
                try:
                    return await self._ask_lac(record.ledger, member)
                except GeologError:
                    self._failed[member.instance] = trio.current_time()
        return None

    async def lac_anywhere(self, record: LedgerRecord) -> EntryId | None:
        """The highest LAC among members that answer soon: the nearest may be cut off."""
        found: list[EntryId] = []

        async def ask(member: Member) -> None:
            try:
                found.append(await self._ask_lac(record.ledger, member))
            except GeologError:
                return

        with trio.move_on_after(self._config.replica_timeout_s / 4):
            async with trio.open_nursery() as nursery:
                for member in record.fragments[-1].ensemble:
                    nursery.start_soon(ask, member)
        return max(found, default=None)

    async def _ask_lac(self, ledger: LedgerId, member: Member) -> EntryId:
        connection = await self._pool.link(member.instance).wait_connection()
        question = _lac_question(ledger, member.instance)
        return (await connection.ask(question, ProbeAnswer)).lac

    async def probe_tail(self, record: LedgerRecord, above: EntryId) -> TailView:
        """Ask all members of the last fragment what they have above `above`."""
        fragment = record.fragments[-1]
        rule = fragment.rule(record.quorum)
        first = max(EntryId(above + 1), fragment.first_entry)
        answers: dict[int, ProbeAnswer] = {}
        count = self._config.batch_entries

        async def ask(slot: int) -> None:
            member = fragment.ensemble[slot]
            with trio.move_on_after(self._config.replica_timeout_s):
                try:
                    connection = await self._pool.link(member.instance).wait_connection()
                    answer = await connection.ask(
                        lambda request: Probe(
                            request, record.ledger, first, count, member.instance
                        ),
                        ProbeAnswer,
                    )
                except GeologError:
                    return  # It counts as silent.
                if len(answer.answers) == count:
                    answers[slot] = answer

        async with trio.open_nursery() as nursery:
            for slot in range(len(fragment.ensemble)):
                nursery.start_soon(ask, slot)
        lac = max((answer.lac for answer in answers.values()), default=NO_ENTRY)
        end = None
        for place in range(count):
            entry = EntryId(first + place)
            absent = sum(
                1 << slot
                for slot, answer in answers.items()
                if answer.answers[place] is Answer.ABSENT
            )
            if entry > lac and rule.is_block(entry, absent):
                end = entry
                break
        is_last_held = any(answer.answers[-1] is Answer.HAVE for answer in answers.values())
        return TailView(
            lac=lac,
            end=end,
            held_to=EntryId(first + count - 1) if end is None and is_last_held else above,
            is_fenced=any(answer.is_fenced for answer in answers.values()),
            silent_count=len(fragment.ensemble) - len(answers),
        )


def check_place(header: EntryHeader, record: LedgerRecord, entry: EntryId) -> None:
    """Check that an intact entry is the one asked for: a node may have mixed up its blocks."""
    if (header.segment, header.entry) != (record.segment, entry):
        raise DamagedBytesError(
            f"entry {entry} of segment {record.segment} was asked for, entry {header.entry} of"
            f" segment {header.segment} came"
        )


def _lac_question(ledger: LedgerId, instance: InstanceId) -> Callable[[int], Probe]:
    return lambda request: Probe(request, ledger, EntryId(0), 0, instance)
