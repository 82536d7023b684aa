"""The interface of every placement policy: its questions and answers.

Rules: PROTOCOL P11.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from topology.errors import InvalidArgumentError
from topology.json_values import Json
from topology.membership import Membership
from topology.replacement import Replacement
from topology.ring.window_rule import Adherence


@attrs.frozen
class Placement:
    """The chosen nodes, in ring order, and how well they adhere."""

    nodes: tuple[str, ...]
    adherence: Adherence
    is_undecided: bool = False
    """Whether a better-adhering choice may exist: the search for one was cut off."""


@attrs.frozen
class NodeReplacement:
    """The node that takes a slot, and how well the ensemble adheres then."""

    node: str
    adherence: Adherence


@attrs.frozen(kw_only=True)
class PlacementRequest:
    """A request for an ensemble: its sizes, E >= W >= A >= 1, and nodes to exclude."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    exclude: frozenset[str] = frozenset()
    custom_metadata: Mapping[str, Json] = attrs.field(factory=dict)
    """The caller's knowledge of the ledger. Our policies ignore it; another may use it."""
    now_s: float = 0.0
    leaving: frozenset[str] = frozenset()
    """Members to replace in a repair, however well the ensemble adheres."""
    wanted: Adherence = Adherence.SOFT
    """Adherence that a repair must reach, at least."""

    def __attrs_post_init__(self) -> None:
        check_sizes(self.ensemble_size, self.write_quorum, self.ack_quorum)


def check_sizes(ensemble_size: int, write_quorum: int, ack_quorum: int) -> None:
    """InvalidArgumentError unless E >= W >= A >= 1."""
    if ack_quorum < 1:
        raise InvalidArgumentError(f"ack_quorum must be >= 1, got {ack_quorum}")
    if write_quorum < ack_quorum:
        raise InvalidArgumentError(
            f"ack_quorum {ack_quorum} exceeds write_quorum {write_quorum}: no entry has that"
            " many copies; the smallest ack quorum is 1"
        )
    if ensemble_size < write_quorum:
        raise InvalidArgumentError(
            f"write_quorum {write_quorum} exceeds ensemble_size {ensemble_size}; the smallest"
            f" ensemble that can hold it is {write_quorum}"
        )


class PlacementPolicy(Protocol):
    """Chooses where entries are placed, from one snapshot and a given source of chance.

    Errors: `NotEnoughNodesError` names what is missing; `InvalidArgumentError`, what no policy
    can do; `PlacementUndecidedError`, that a search was cut off.
    """

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """E distinct writable nodes, in ring order."""

    def replace_node(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,
    ) -> NodeReplacement:
        """A node outside the ensemble for the slot of one inside it."""

    def replace_slots(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slots: Collection[int],
        rng: random.Random,
    ) -> Replacement:
        """Nodes outside the ensemble for as many of these slots as possible, judged together.

        Members count at their locations, whatever their state. NotEnoughNodesError when not a
        single slot can be given to another node.
        """

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,
    ) -> Placement:
        """The ensemble with the fewest changes that make it adhere; empty when none do.

        It adheres as well as `wanted`, and without those that are `leaving`.
        """

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """How well an ensemble adheres now. Nodes that cannot be written to do not count."""

    def is_acked_adhering(
        self,
        members: Membership,
        acked: Collection[str],
        write_quorum: int,
        ack_quorum: int,
    ) -> bool:
        """Whether nodes that acknowledged an entry span the required fault domains."""
