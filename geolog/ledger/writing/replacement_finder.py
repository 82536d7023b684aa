"""Finds nodes to replace lost members: chooses them, and makes the ledger known to them.

A node that refuses, or does not answer in time, is avoided for a while, and so is one that was
just replaced. Nodes that this process cannot reach are not chosen, whatever metadata says.
"""

import random
from collections.abc import Collection, Iterable
from functools import partial

import attrs
import trio

from geolog.ledger.nodes.cluster_nodes import ClusterSnapshot
from geolog.ledger.nodes.connection import NodeConnection
from geolog.ledger.nodes.node_choice import choose_nodes
from geolog.ledger.replicas.replicas import Replicas
from geolog.ledger.writing.greeting import greet_members
from geolog.ledger.writing.ledger_placement import with_members_of
from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, Member
from topology.errors import NotEnoughNodesError
from topology.own_policy import OwnPolicies
from topology.policy import PlacementRequest
from topology.replacement import Replacement
from topology.stream_policy import policy_of

AVOID_S = 30.0
"""How long a node that failed is chosen only if there is no other."""


@attrs.frozen
class ReplacementFound:
    """New members by slot; each knows the ledger over its connection."""

    members: dict[int, Member]
    connections: dict[InstanceId, NodeConnection]
    is_undecided: bool = False
    """Whether better ones may exist: the search for them hit its bound."""

    def fragment_of(self, record: LedgerRecord, *, first: EntryId) -> Fragment:
        """The last fragment with these members in it, beginning at entry `first`."""
        ensemble = tuple(
            self.members.get(slot, member)
            for slot, member in enumerate(record.fragments[-1].ensemble)
        )
        return Fragment(first, ensemble)


class ReplacementFinder:
    """Finds replacements for the ledgers of one partition, or for one recovery."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        region: str | None,
        rng: random.Random,
        patience_s: float,
    ) -> None:
        self._pool = replicas.pool
        self._region = region
        self._rng = rng
        self._replicas = replicas.within(patience_s)
        self._avoided_until_s: dict[InstanceId, float] = {}

    @property
    def own_policies(self) -> OwnPolicies:
        """The policies of other packages that this process knows."""
        return self._pool.nodes.own_policies

    def avoid(self, instances: Iterable[InstanceId]) -> None:
        """Choose these only if there is no other, for a while."""
        until_s = trio.current_time() + AVOID_S
        self._avoided_until_s.update(dict.fromkeys(instances, until_s))

    def avoided(self) -> set[InstanceId]:
        """Nodes to avoid now."""
        now_s = trio.current_time()
        self._avoided_until_s = {
            instance: until_s
            for instance, until_s in self._avoided_until_s.items()
            if until_s > now_s
        }
        return {*self._avoided_until_s, *self._pool.unreachable()}

    async def find(
        self, record: LedgerRecord, slots: Collection[int], *, is_recovery: bool = False
    ) -> ReplacementFound:
        """Find nodes for as many of the slots as possible, ready to be written to.

        NotEnoughNodesError if there is none; FencedError if the ledger was taken over;
        UnavailableError while metadata does not list the nodes.
        """
        failed: set[InstanceId] = set()
        while True:
            members, is_undecided = await self._choose(record, slots, failed)
            found = await greet_members(
                self._replicas, record, members.values(), is_recovery=is_recovery
            )
            now_failed = {member.instance for member in members.values()} - set(found)
            if not now_failed:
                return ReplacementFound(members, found, is_undecided)
            self.avoid(sorted(now_failed))
            failed |= now_failed

    async def _choose(
        self, record: LedgerRecord, slots: Collection[int], failed: set[InstanceId]
    ) -> tuple[dict[int, Member], bool]:
        seen = await self._pool.nodes.look(self._region)
        avoided = self.avoided()
        try:
            found = await self._replace(record, slots, seen, failed | avoided)
        except NotEnoughNodesError:
            if not avoided - failed:
                raise
            found = await self._replace(record, slots, seen, failed)
        members = {slot: seen.member(node) for slot, node in sorted(found.nodes.items())}
        return members, found.is_undecided

    async def _replace(
        self,
        record: LedgerRecord,
        slots: Collection[int],
        seen: ClusterSnapshot,
        excluded: set[InstanceId],
    ) -> Replacement:
        """Choose nodes for the slots; the ledger's members count where its record puts them."""
        quorum, fragment = record.quorum, record.fragments[-1]
        request = PlacementRequest(
            ensemble_size=quorum.ensemble_size,
            write_quorum=quorum.write_quorum,
            ack_quorum=quorum.ack_quorum,
            exclude=seen.excluded(excluded),
            now_s=seen.now_s,
        )
        replace_slots = partial(
            policy_of(record.placement, quorum, seen.place).replace_slots,
            with_members_of(fragment, seen.members),
            request,
            [member.instance for member in fragment.ensemble],
            slots,
        )
        return await choose_nodes(quorum.ensemble_size, replace_slots, self._rng)
