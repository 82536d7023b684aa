"""Counts of a policy's requests and answers."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from topology.errors import NotEnoughNodesError
from topology.membership import Membership
from topology.policy import NodeReplacement, Placement, PlacementPolicy, PlacementRequest
from topology.replacement import Replacement
from topology.ring.search import PlacementUndecidedError
from topology.ring.window_rule import Adherence

_T = TypeVar("_T")


@attrs.frozen
class PlacementStatistics:
    """How often each operation ended in which way: an adherence, or the kind of a refusal."""

    outcomes: Mapping[str, Mapping[str, int]]

    @classmethod
    def total(cls, several: Iterable["PlacementStatistics"]) -> "PlacementStatistics":
        """Totals over several policies; operations never requested are left out."""
        counts: dict[str, Counter[str]] = {}
        for one in several:
            for name, outcomes in one.outcomes.items():
                if outcomes:
                    counts.setdefault(name, Counter()).update(outcomes)
        return cls({name: dict(sorted(found.items())) for name, found in counts.items()})


class CountedPolicy:
    """A policy that counts its answers."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy
        self._outcomes: dict[str, Counter[str]] = {
            name: Counter()
            for name in (
                "new_ensemble",
                "replace_node",
                "replace_slots",
                "repair",
                "adherence",
            )
        }

    def statistics(self) -> PlacementStatistics:
        """A snapshot of the counts."""
        return PlacementStatistics(
            {name: dict(counts) for name, counts in self._outcomes.items()}
        )

    def new_ensemble(
        self, members: Membership, request: PlacementRequest, rng: random.Random
    ) -> Placement:
        """Same as the policy's."""
        placed = self._counting(
            "new_ensemble", lambda: self._policy.new_ensemble(members, request, rng)
        )
        self._outcomes["new_ensemble"][placed.adherence.value] += 1
        return placed

    def replace_node(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        node: str,
        rng: random.Random,
    ) -> NodeReplacement:
        """Same as the policy's."""
        found = self._counting(
            "replace_node",
            lambda: self._policy.replace_node(members, request, ensemble, node, rng),
        )
        self._outcomes["replace_node"][found.adherence.value] += 1
        return found

    def replace_slots(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        slots: Collection[int],
        rng: random.Random,
    ) -> Replacement:
        """Same as the policy's."""
        found = self._counting(
            "replace_slots",
            lambda: self._policy.replace_slots(members, request, ensemble, slots, rng),
        )
        self._outcomes["replace_slots"][found.adherence.value] += 1
        return found

    def repair(
        self,
        members: Membership,
        request: PlacementRequest,
        ensemble: Sequence[str],
        rng: random.Random,
    ) -> Placement:
        """Same as the policy's."""
        found = self._counting(
            "repair", lambda: self._policy.repair(members, request, ensemble, rng)
        )
        self._outcomes["repair"][found.adherence.value] += 1
        return found

    def adherence(
        self, members: Membership, ensemble: Sequence[str], write_quorum: int, ack_quorum: int
    ) -> Adherence:
        """Same as the policy's."""
        found = self._policy.adherence(members, ensemble, write_quorum, ack_quorum)
        self._outcomes["adherence"][found.value] += 1
        return found

    def is_acked_adhering(
        self, members: Membership, acked: Collection[str], write_quorum: int, ack_quorum: int
    ) -> bool:
        """Same as the policy's."""
        return self._policy.is_acked_adhering(members, acked, write_quorum, ack_quorum)

    def _counting(self, name: str, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except PlacementUndecidedError:
            self._outcomes[name]["undecided"] += 1
            raise
        except NotEnoughNodesError:
            self._outcomes[name]["not_enough_nodes"] += 1
            raise
