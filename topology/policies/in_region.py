"""Placement in one region: any policy, with the nodes of other regions left out.

A `regional` stream has all copies of an entry in its home region. Members that are elsewhere,
because they were moved, count as if they were down.

Rules: PROTOCOL P14.
"""

import random
from collections.abc import Collection, Sequence

import attrs

from topology.errors import NotEnoughNodesError
from topology.membership import Membership
from topology.policy import NodeReplacement, Placement, PlacementPolicy, PlacementRequest
from topology.replacement import Replacement
from topology.ring.window_rule import Adherence


@attrs.frozen
class InRegion:
    """Places as `policy` does, on the nodes of `region` alone."""

    policy: PlacementPolicy
    region: str

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E distinct writable nodes of the region, in ring order."""
        try:
            return self.policy.new_ensemble(members.only_in(self.region), request, rng)
        except NotEnoughNodesError as error:
            raise self._named(error) from None

    def replace_node(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,
    ) -> NodeReplacement:
        """Another node of the region for the slot of this one."""
        try:
            return self.policy.replace_node(
                members.only_in(self.region), request, ensemble, node, rng
            )
        except NotEnoughNodesError as error:
            raise self._named(error) from None

    def replace_slots(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slots: Collection[int],
        rng: random.Random,
    ) -> Replacement:
        """Other nodes of the region for as many of these slots as possible."""
        try:
            return self.policy.replace_slots(
                members.only_in(self.region), request, ensemble, slots, rng
            )
        except NotEnoughNodesError as error:
            raise self._named(error) from None

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,
    ) -> Placement:
        """The ensemble with the fewest changes that make it adhere, all of it in the region."""
        elsewhere = {one for one in ensemble if not self._is_home(members, one)}
        leaving = attrs.evolve(request, leaving=request.leaving | elsewhere)
        return self.policy.repair(members.only_in(self.region), leaving, ensemble, rng)

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """How well the members in the region adhere now."""
        return self.policy.adherence(
            members.only_in(self.region), ensemble, write_quorum, ack_quorum
        )

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,
        ack_quorum: int,
    ) -> bool:
        """Whether the acknowledging nodes of the region span the required fault domains."""
        at_home = [one for one in acked if self._is_home(members, one)]
        return self.policy.is_acked_adhering(
            members.only_in(self.region), at_home, write_quorum, ack_quorum
        )

    def _is_home(self, members: Membership, node: str) -> bool:
        return members.location_of(node).region == self.region

    def _named(self, error: NotEnoughNodesError) -> NotEnoughNodesError:
        return type(error)(f"in region {self.region}: {error}")
