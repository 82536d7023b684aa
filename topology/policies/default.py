"""The default policy: any nodes, at random; by free space where weights are on."""

import random
from collections.abc import Collection, Sequence

import attrs

from topology.errors import NotEnoughNodesError
from topology.location import Location
from topology.membership import Membership
from topology.policies.ring_policy import RingPolicy
from topology.policy import Placement, PlacementRequest
from topology.ring.window_rule import Label, WindowRule
from topology.tree import Tree, TreeNode


@attrs.frozen(kw_only=True)
class AnyNode(RingPolicy):
    """All nodes are equal, so every ensemble adheres."""

    def _rule(self, write_quorum: int, ack_quorum: int) -> WindowRule:  # noqa: ARG002
        return WindowRule(write_quorum, (), ())

    def _label(self, location: Location) -> Label:  # noqa: ARG002 - All are alike.
        return ("any",)

    def _allowed(self, tree: Tree) -> Tree:
        return tree

    def _is_enforced(self) -> bool:
        return False

    def _nearness(
        self,
        ring: Sequence[Location | None],  # noqa: ARG002
        slot: int,  # noqa: ARG002
        gone: Location,  # noqa: ARG002
        node: TreeNode,  # noqa: ARG002
    ) -> tuple[int, ...]:
        return ()

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E nodes, wherever they are."""
        size = request.ensemble_size
        count = 0
        for tree in self.free(members, request):
            count = tree.count
            if count >= size:
                drawn = self.drawn(list(tree.nodes()), rng)
                nodes = tuple(next(drawn).node for _ in range(size))
                return Placement(
                    nodes,
                    self.adherence(members, nodes, request.write_quorum, request.ack_quorum),
                )
        raise NotEnoughNodesError(
            f"the ensemble needs {size} nodes that are up and not excluded; {count} are"
            f" available: {size - count} short"
        )

    def is_acked_adhering(
        self,
        members: Membership,  # noqa: ARG002
        acked: Collection[str],  # noqa: ARG002
        write_quorum: int,  # noqa: ARG002
        ack_quorum: int,  # noqa: ARG002
    ) -> bool:
        """Always."""
        return True
