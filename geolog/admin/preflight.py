"""Finding what would be at risk while some nodes are away, or if they were lost.

Judged from metadata and from which nodes are up. For each ledger: could its writer still gather
ack sets, could it be fenced and recovered, and would each entry have a copy elsewhere? A ledger
that is in the repair queue, or has a member in doubt, may lack copies that metadata does not
know of, so the members that would stay are asked.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.doubt import nodes_in_doubt
from geolog.admin.node_lookup import node_named
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.nodes import list_known_nodes
from geolog.protocol.copying import FragmentExtent, final_extents
from geolog.protocol.ids import EntryId, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import Answer
from geolog.wire.limits import ENTRIES_PER_ANSWER_MAX
from topology.errors import GeologError

_PROBE_S = 3.0


@attrs.frozen(kw_only=True)
class Risk:
    """One thing that would fail without the named nodes."""

    ledger: int
    stream: str
    state: str
    risk: str
    """appends, recovery or reads."""
    why: str
    is_so_now: bool
    """Whether it is at risk already, with these nodes up."""


@attrs.frozen(kw_only=True)
class PreflightReport:
    """Outcome of a preflight."""

    nodes: list[str]
    ledgers: int
    """Ledgers that have one of these nodes as a member."""
    risks: list[Risk]

    @property
    def is_safe(self) -> bool:
        """Whether nothing would be at risk."""
        return not self.risks


Unproven = Mapping[LedgerId, Mapping[int, int]]
"""By ledger and fragment, the number of entries that no remaining member reports."""


async def preflight(access: ClusterAccess, node_ids: Sequence[str]) -> PreflightReport:
    """Report the risks without these nodes. UnknownNodeError names the nearest id."""
    node_ids = list(dict.fromkeys(node_ids))
    known = await list_known_nodes(access.metadata, access.cluster)
    leaving = {node_named(node_id, known).instance for node_id in node_ids}
    live = {node.instance for node in await access.pool.live_nodes()}
    queued = {item.record.ledger for item in await access.repair_queue.list()}
    doubt_below = {
        node.instance: doubt.below
        for node, doubt in await nodes_in_doubt(access, timeout_s=_PROBE_S)
    }
    ledgers = await access.catalog.with_member(leaving)
    unproven = {
        record.ledger: await _unproven_in(access, record, leaving, live - leaving)
        for record in ledgers
        if record.ledger in queued or _is_in_doubt(record, doubt_below)
    }
    return judge(node_ids, leaving, live, unproven, ledgers)


def _is_in_doubt(record: LedgerRecord, doubt_below: Mapping[InstanceId, LedgerId]) -> bool:
    """Whether a member may have lost copies of it to damage."""
    return any(
        record.ledger < doubt_below.get(member.instance, LedgerId(0))
        for fragment in record.fragments
        for member in fragment.ensemble
    )


async def _unproven_in(
    access: ClusterAccess,
    record: LedgerRecord,
    leaving: set[InstanceId],
    staying: set[InstanceId],
) -> dict[int, int]:
    """For final fragments with a leaving member: entries that no remaining member reports."""
    replicas = access.replicas.within(_PROBE_S)
    found: dict[int, int] = {}
    for extent in final_extents(record):
        ensemble = extent.fragment.ensemble
        if not any(member.instance in leaving for member in ensemble):
            continue
        had: set[int] = set()
        for member in ensemble:
            if member.instance in staying:
                had |= await _had_by(replicas, record, extent, member)
        missing_count = extent.count - len(had)
        if missing_count:
            found[extent.index] = missing_count
    return found


async def _had_by(
    replicas: Replicas, record: LedgerRecord, extent: FragmentExtent, member: Member
) -> set[int]:
    had: set[int] = set()
    for first in range(extent.fragment.first_entry, extent.last + 1, ENTRIES_PER_ANSWER_MAX):
        count = min(extent.last - first + 1, ENTRIES_PER_ANSWER_MAX)
        try:
            probed = await replicas.probe(record.ledger, member, EntryId(first), count)
        except GeologError:
            return had  # Entries that it does not report do not count.
        had |= {
            first + place
            for place, answer in enumerate(probed.answers)
            if answer is Answer.HAVE
        }
    return had


def judge(
    node_ids: Sequence[str],
    leaving: Collection[InstanceId],
    live: Collection[InstanceId],
    unproven: Unproven,
    ledgers: Sequence[LedgerRecord],
) -> PreflightReport:
    """Judge records that were already read."""
    risks = [
        risk
        for record in ledgers
        for risk in _Look(record, leaving, live, unproven.get(record.ledger, {})).risks()
    ]
    return PreflightReport(nodes=list(node_ids), ledgers=len(ledgers), risks=risks)


@attrs.frozen
class _Look:
    """One ledger, now and without the nodes."""

    record: LedgerRecord
    leaving: Collection[InstanceId]
    live: Collection[InstanceId]
    unproven: Mapping[int, int]

    def risks(self) -> Iterator[Risk]:
        """Everything that would fail."""
        if self.record.state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
            yield from self._risks_of_tail(self.record.fragments[-1])
        for index, fragment in enumerate(self.record.fragments):
            if any(member.instance in self.leaving for member in fragment.ensemble):
                yield from self._risks_of_reads(index, fragment)

    def _risks_of_tail(self, fragment: Fragment) -> Iterator[Risk]:
        rule = fragment.rule(self.record.quorum)
        now, then = self._up_now(fragment), self._up_then(fragment)
        left = f"{then.bit_count()} of its {len(fragment.ensemble)} members would be up"
        if not rule.acks_all(then):
            yield self._risk(
                "appends",
                f"{left}, and some entries would have no ack set"
                " until the writer replaces the members",
                is_so_now=not rule.acks_all(now),
            )
        if not rule.blocks_all(then):
            yield self._risk(
                "recovery",
                f"{left}: if its writer ended too, nobody could fence and close it",
                is_so_now=not rule.blocks_all(now),
            )

    def _risks_of_reads(self, index: int, fragment: Fragment) -> Iterator[Risk]:
        masks = fragment.rule(self.record.quorum).write_masks()
        now, then = self._up_now(fragment), self._up_then(fragment)
        if any(not mask & then for mask in masks):
            yield self._risk(
                "reads",
                f"entries of fragment {index} would have no copy at a node that is up",
                is_so_now=any(not mask & now for mask in masks),
            )
        elif index in self.unproven:
            yield self._risk(
                "reads",
                f"{self.unproven[index]} entries of fragment {index} have no other copy now:"
                " `geolog ledger repair --queue` brings copies back",
                is_so_now=False,
            )

    def _up_now(self, fragment: Fragment) -> int:
        return sum(
            1 << slot
            for slot, member in enumerate(fragment.ensemble)
            if member.instance in self.live
        )

    def _up_then(self, fragment: Fragment) -> int:
        return sum(
            1 << slot
            for slot, member in enumerate(fragment.ensemble)
            if member.instance in self.live and member.instance not in self.leaving
        )

    def _risk(self, kind: str, why: str, *, is_so_now: bool) -> Risk:
        return Risk(
            ledger=self.record.ledger,
            stream=self.record.stream,
            state=self.record.state.value,
            risk=kind,
            why=why,
            is_so_now=is_so_now,
        )
