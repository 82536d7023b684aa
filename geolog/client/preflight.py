"""What would be at risk while some nodes are away, or if they were lost.

Judged by metadata alone, and by which nodes are up: of each ledger whether its writer could
still gather ack sets, whether it could be fenced and recovered, and whether each entry would
have a copy elsewhere. A ledger in the repair queue has entries with fewer copies than it should
have, nobody knows where without asking; its other copies are not counted on.
"""

from collections.abc import Collection, Iterator, Sequence

import attrs

from geolog.client.cluster_access import ClusterAccess
from geolog.client.node_lookup import node_named
from geolog.metadata.nodes import list_known_nodes
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState


@attrs.frozen(kw_only=True)
class Risk:
    """One thing that would not hold without the nodes that were named."""

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
    """What was found."""

    nodes: list[str]
    ledgers: int
    """Ledgers that have one of these nodes as a member."""
    risks: list[Risk]

    @property
    def is_safe(self) -> bool:
        """Whether nothing would be at risk."""
        return not self.risks


async def preflight(access: ClusterAccess, node_ids: Sequence[str]) -> PreflightReport:
    """Say what would be at risk without these nodes. UnknownNodeError names the nearest id."""
    known = await list_known_nodes(access.metadata, access.cluster)
    leaving = {node_named(node_id, known).instance for node_id in node_ids}
    live = {node.instance for node in await access.pool.live_nodes()}
    queued = {item.record.ledger for item in await access.repair_queue.list()}
    ledgers = await access.catalog.with_member(leaving)
    return judge(node_ids, leaving, live, queued, ledgers)


def judge(
    node_ids: Sequence[str],
    leaving: Collection[InstanceId],
    live: Collection[InstanceId],
    queued: Collection[LedgerId],
    ledgers: Sequence[LedgerRecord],
) -> PreflightReport:
    """The same, of what was read."""
    risks = [
        risk
        for record in ledgers
        for risk in _Look(record, leaving, live, record.ledger in queued).risks()
    ]
    return PreflightReport(nodes=list(node_ids), ledgers=len(ledgers), risks=risks)


@attrs.frozen
class _Look:
    """One ledger, as it is now and as it would be."""

    record: LedgerRecord
    leaving: Collection[InstanceId]
    live: Collection[InstanceId]
    is_queued: bool

    def risks(self) -> Iterator[Risk]:
        """All that would not hold."""
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
                f"{left}, and some entries would find no ack set"
                " until its writer gives the slots to other nodes",
                is_so_now=not rule.acks_all(now),
            )
        if not rule.blocks_all(then):
            yield self._risk(
                "recovery",
                f"{left}: should its writer end too, nobody could fence and close it",
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
        elif self.is_queued:
            yield self._risk(
                "reads",
                f"entries of fragment {index} may have no other copy: the ledger is in the"
                " repair queue (`geolog ledger repair --queue`)",
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
