"""Local-node placement: the one node at the client's location."""

import random
from collections.abc import Collection, Sequence

import attrs

from topology.errors import InvalidArgumentError, InvalidConfigError, NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership
from topology.policies.ring_policy import slot_of
from topology.policy import NodeReplacement, Placement, PlacementRequest
from topology.replacement import Replacement
from topology.ring.window_rule import Adherence


@attrs.frozen(kw_only=True)
class LocalNode:
    """One copy, next to the client. For data that need not outlive its machine."""

    local_location: Location | None
    """The client's location; if only its region is known, any node of that region is local."""

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """The local node; InvalidArgumentError for an ensemble of more than one."""
        if request.ensemble_size > 1:
            raise InvalidArgumentError(
                f"ensemble_size must be 1 for policy 'local_node', got {request.ensemble_size}"
            )
        if self.local_location is None:
            raise InvalidConfigError(
                "policy 'local_node' needs local_location: the client's location is unknown"
            )
        here = [
            node.node
            for node in members.writable.nodes()
            if self._is_here(node.location) and node.node not in request.exclude
        ]
        if not here:
            raise NotEnoughNodesError(
                "no node is up, writable and allowed at the client's location,"
                f" {self.local_location}"
            )
        return Placement((rng.choice(here),), Adherence.STRICT)

    def _is_here(self, location: Location) -> bool:
        local = self.local_location
        assert local is not None
        if not local.is_rack_known:
            return location.region == local.region
        return location == local

    def replace_node(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,  # noqa: ARG002
    ) -> NodeReplacement:
        """Never possible: no other node is local."""
        slot_of(ensemble, node)
        raise NotEnoughNodesError(
            f"node {node!r} cannot be replaced: policy 'local_node' has no other node"
        )

    def replace_slots(
        self,
        members: Membership,  # noqa: ARG002
        request: PlacementRequest,  # noqa: ARG002
        ensemble: Sequence[str],
        slots: Collection[int],  # noqa: ARG002
        rng: random.Random,  # noqa: ARG002
    ) -> Replacement:
        """Never possible: no other node is local."""
        raise NotEnoughNodesError(
            f"node {ensemble[0]!r} cannot be replaced: policy 'local_node' has no other node"
        )

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,  # noqa: ARG002
    ) -> Placement:
        """The ensemble as it is, if it adheres; there is no other node to repair it with."""
        found = self.adherence(members, ensemble, request.write_quorum, request.ack_quorum)
        return Placement(() if found is Adherence.FAIL else tuple(ensemble), found)

    def adherence(
        self,
        members: Membership,  # noqa: ARG002
        ensemble: Sequence[str],
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
    ) -> Adherence:
        """STRICT for an ensemble of one node."""
        return Adherence.STRICT if len(ensemble) == 1 else Adherence.FAIL

    def is_acked_adhering(
        self,
        members: Membership,  # noqa: ARG002
        acked: Collection[str],  # noqa: ARG002
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
    ) -> bool:
        """Always."""
        return True
