"""Description of one ledger: its metadata record and the copies its members report."""

from collections import Counter

import attrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.ledger.ledger_metadata import NoSuchLedgerError
from geolog.metadata.replaced_nodes import list_replaced_nodes
from geolog.protocol.ids import NO_ENTRY, EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.messages import Answer
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import GeologError

_PROBE_S = 3.0
_ASKED_AT_ONCE = 16


@attrs.frozen(kw_only=True)
class MemberDetails:
    """One member of one fragment."""

    fragment: int
    """Index of the fragment, from 0."""
    first_entry: int
    last_entry: int | None
    """None while the fragment can grow."""
    node_id: str
    instance: str
    location: str
    state: str
    """up, down, silent (up, but not answering), or replaced (its disk is given up for good)."""
    copies_expected: int
    """Entries of which it should have a copy, up to the last one known to be acknowledged."""
    copies: int | None
    """How many of these it reports intact; None if it does not answer."""
    corrupt: int | None
    unknown: int | None


@attrs.frozen(kw_only=True)
class LedgerDetails:
    """One ledger."""

    ledger: int
    stream: str
    segment: int
    state: str
    epoch: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int
    durability: str
    policy: str
    """The placement policy, frozen when the ledger was made."""
    last_entry: int | None
    """The last entry of a CLOSED ledger."""
    lac: int | None
    """If not CLOSED: the last entry that some member knows to be acknowledged; None if no
    member answers."""
    is_in_repair_queue: bool
    members: list[MemberDetails]


async def describe_ledger(access: ClusterAccess, ledger: LedgerId) -> LedgerDetails:
    """Describe a ledger. NoSuchLedgerError names the nearest id that exists."""
    record = await find_ledger(access, ledger)
    queue = await access.repair_queue.list()
    lac = None
    if record.state is not LedgerState.CLOSED:
        lac = await access.reader.lac_anywhere(record)
    quorum = record.quorum
    return LedgerDetails(
        ledger=record.ledger,
        stream=record.stream,
        segment=record.segment,
        state=record.state.value,
        epoch=record.epoch,
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        min_regions=quorum.min_regions,
        durability=quorum.durability.value,
        policy=str(record.placement),
        last_entry=record.last_entry,
        lac=lac,
        is_in_repair_queue=any(item.record.ledger == ledger for item in queue),
        members=await _members_of(access, record, lac),
    )


async def _members_of(
    access: ClusterAccess, record: LedgerRecord, lac: EntryId | None
) -> list[MemberDetails]:
    live = {node.instance for node in await access.pool.live_nodes()}
    replaced = {
        node.instance for node in await list_replaced_nodes(access.metadata, access.cluster)
    }
    end = record.last_entry if record.last_entry is not None else lac
    look = _Look(record, NO_ENTRY if end is None else end, live, replaced, access)
    places = [
        (number, slot)
        for number, fragment in enumerate(record.fragments)
        for slot in range(len(fragment.ensemble))
    ]
    found: dict[tuple[int, int], MemberDetails] = {}
    limit = trio.CapacityLimiter(_ASKED_AT_ONCE)

    async def describe(place: tuple[int, int]) -> None:
        async with limit:
            found[place] = await look.at(*place)

    async with trio.open_nursery() as nursery:
        for place in places:
            nursery.start_soon(describe, place)
    return [found[place] for place in places]


class _Look:
    """Asks the members of one ledger for their copies, up to its end as far as it is known."""

    def __init__(
        self,
        record: LedgerRecord,
        end: EntryId,
        live: set[InstanceId],
        replaced: set[InstanceId],
        access: ClusterAccess,
    ) -> None:
        self._record = record
        self._end = end
        self._live = live
        self._replaced = replaced
        self._replicas = access.replicas.within(_PROBE_S)

    async def at(self, number: int, slot: int) -> MemberDetails:
        """The member at that slot of that fragment, its state and its copies."""
        fragment = self._record.fragments[number]
        member = fragment.ensemble[slot]
        last = self._last_of(number)
        counts = None
        if member.instance in self._live:
            counts = await self._counts(fragment, slot, self._end if last is None else last)
        return MemberDetails(
            fragment=number,
            first_entry=fragment.first_entry,
            last_entry=last,
            node_id=member.node_id,
            instance=member.instance,
            location=str(member.location),
            state=self._state_of(member.instance, does_answer=counts is not None),
            copies_expected=self._expected(fragment, slot, self._end if last is None else last),
            copies=None if counts is None else counts[Answer.HAVE],
            corrupt=None if counts is None else counts[Answer.CORRUPT],
            unknown=None if counts is None else counts[Answer.UNKNOWN],
        )

    def _state_of(self, instance: InstanceId, *, does_answer: bool) -> str:
        if does_answer:
            return "up"
        if instance in self._live:
            return "silent"
        return "replaced" if instance in self._replaced else "down"

    def _last_of(self, number: int) -> EntryId | None:
        if number + 1 < len(self._record.fragments):
            return EntryId(self._record.fragments[number + 1].first_entry - 1)
        return self._record.last_entry

    def _expected(self, fragment: Fragment, slot: int, last: EntryId) -> int:
        rule = fragment.rule(self._record.quorum)
        entries = range(fragment.first_entry, last + 1)
        return sum(rule.write_mask(entry) >> slot & 1 for entry in entries)

    async def _counts(
        self, fragment: Fragment, slot: int, last: EntryId
    ) -> Counter[Answer] | None:
        """The member's answers for its own entries; None if it does not answer."""
        rule = fragment.rule(self._record.quorum)
        counts: Counter[Answer] = Counter()
        for first in range(fragment.first_entry, last + 1, ENTRIES_PER_ANSWER_MAX):
            count = min(last - first + 1, ENTRIES_PER_ANSWER_MAX)
            try:
                probed = await self._replicas.probe(
                    self._record.ledger, fragment.ensemble[slot], EntryId(first), count
                )
            except GeologError:
                return None
            counts.update(
                answer
                for place, answer in enumerate(probed.answers)
                if rule.write_mask(first + place) >> slot & 1
            )
        return counts


async def find_ledger(access: ClusterAccess, ledger: LedgerId) -> LedgerRecord:
    """The ledger's record. NoSuchLedgerError names the nearest id that exists."""
    try:
        return (await access.ledgers.read_latest(ledger)).record
    except NoSuchLedgerError:
        nearest = await _nearest_ledger(access, ledger)
        hint = "there are no ledgers yet" if nearest is None else f"the nearest is {nearest}"
        raise NoSuchLedgerError(
            f"ledger {ledger} does not exist, or was deleted; {hint}"
            " (`geolog segment ls STREAM` lists the ledgers of a stream)"
        ) from None


async def _nearest_ledger(access: ClusterAccess, ledger: LedgerId) -> LedgerId | None:
    buckets = await access.catalog.buckets()
    near = sorted(buckets, key=lambda bucket: abs(int(bucket) * 1000 + 500 - ledger))[:2]
    ids = [
        record.ledger for bucket in near for record in await access.catalog.records_in(bucket)
    ]
    return min(ids, key=lambda other: (abs(other - ledger), other), default=None)
