"""The placement knobs: the stream's policy, and what operators do to placement.

Only policies that the world can satisfy are drawn: each is tried on all of its nodes.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import TypedDict

import attrs

from sim.world.chance import Draws
from topology.errors import GeologError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement import Candidate
from topology.policy import PlacementRequest
from topology.quorum import Durability, QuorumConfig
from topology.ring.window_rule import Adherence
from topology.stream_policy import (
    DEFAULT_LOCATION,
    OURS,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)
from topology.survive import plan_to_survive

LOSSES = ("1 node", "1 rack", "1 region", "1 region and 1 node", "2 regions")
"""The losses that a stream may be created to survive."""

_PLAIN_SHARE = 0.5
_SURVIVING_SHARE = 0.3
_COUNTED_SHARE = 0.3
_REGIONAL_SHARE = 0.5

_AT_HOME = (PolicyKind.DEFAULT, PolicyKind.RACK_AWARE)
"""The policies of which streams with a home are drawn."""


class StreamTerms(TypedDict, total=False):
    """The quorum and placement arguments of creating a stream."""

    survive: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int
    durability: str
    policy: str
    mode: str


@attrs.frozen(kw_only=True)
class PlacementKnobs:
    """Placement of the stream. By default it is region-aware, and nobody touches it."""

    policy: PolicyKind = PolicyKind.REGION_AWARE
    is_regional: bool = False
    """Whether the stream has its home in the first region."""
    survive: str | None = None
    """The loss given on creation, in place of quorums; the world's quorums are those it results
    in."""
    switch_rest_s_max: float | None = None
    """Longest rest of an operator who forbids and allows regions; None: nobody does."""
    repair_rest_s_max: float | None = None
    """Longest rest of an operator between two placement repairs; None: no repairs."""
    repair_s_max: float = 5.0
    """How long a repair may take, at most, before it is interrupted."""


UNTOUCHED = PlacementKnobs()


def terms_of(quorum: QuorumConfig, placement: PlacementKnobs) -> StreamTerms:
    """The arguments for these quorums, placed so; the home is the region of the caller."""
    return StreamTerms(
        mode="regional" if placement.is_regional else "global",
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
        min_regions=quorum.min_regions,
        durability=quorum.durability.value,
        policy=placement.policy.value,
    )


def draw_placement(
    draws: Draws, counts: Mapping[str, int], quorum: QuorumConfig
) -> tuple[PlacementKnobs, QuorumConfig]:
    """Draw the knobs, and the quorums that go with them, for a world with these nodes."""
    if draws.happens("untouched placement", _PLAIN_SHARE):
        return UNTOUCHED, quorum
    knobs = PlacementKnobs(
        switch_rest_s_max=draws.choice("switch_rest_s_max", (None, None, 1.0, 4.0)),
        repair_rest_s_max=draws.choice("repair_rest_s_max", (None, 0.5, 2.0)),
        repair_s_max=draws.choice("repair_s_max", (0.5, 5.0, 20.0)),
    )
    if draws.happens("surviving", _SURVIVING_SHARE):
        return _surviving(knobs, draws, counts, quorum)
    knobs = attrs.evolve(knobs, policy=draws.choice("policy", list(OURS)))
    is_counted = draws.happens("counted", _COUNTED_SHARE)
    durability = Durability.COUNT if is_counted else Durability.REGIONS
    if knobs.policy in _AT_HOME and draws.happens("regional", _REGIONAL_SHARE):
        home, count = next(iter(counts.items()))
        fit = list(_quorums_that_fit(knobs.policy, durability, {home: count}))
        if fit:
            at_home = attrs.evolve(knobs, is_regional=True)
            return at_home, draws.choice("quorum at home", fit)
    fit = list(_quorums_that_fit(knobs.policy, durability, counts))
    if not fit:
        return attrs.evolve(knobs, policy=PolicyKind.REGION_AWARE), quorum
    return knobs, draws.choice("quorum of the policy", fit)


def _surviving(
    knobs: PlacementKnobs, draws: Draws, counts: Mapping[str, int], quorum: QuorumConfig
) -> tuple[PlacementKnobs, QuorumConfig]:
    candidates = [Candidate(node, place) for node, place in places(counts)]
    for loss in draws.sample("survive", LOSSES, len(LOSSES)):
        try:
            plan = plan_to_survive(loss, candidates)
        except GeologError:
            continue  # The world is too small for it.
        policy = plan.placement.policy
        return attrs.evolve(knobs, policy=policy, survive=loss), plan.quorum
    return knobs, quorum


def _quorums_that_fit(
    kind: PolicyKind, durability: Durability, counts: Mapping[str, int]
) -> Iterator[QuorumConfig]:
    """All quorums the policy can satisfy here; a single copy only for `local_node`."""
    terms = PlacementTerms(policy=kind)
    copies_min = 1 if kind is PolicyKind.LOCAL_NODE else 2
    nodes_count = sum(counts.values())
    for ensemble in range(copies_min, nodes_count + 1):
        for write in range(copies_min, ensemble + 1):
            for ack in range(copies_min, write + 1):
                for min_regions in range(1, min(len(counts), ack) + 1):
                    try:
                        quorum = QuorumConfig(
                            ensemble_size=ensemble,
                            write_quorum=write,
                            ack_quorum=ack,
                            min_regions=min_regions,
                            durability=durability,
                        )
                        terms.check(quorum)
                        if _adherence_on_all(terms, quorum, counts) is not Adherence.FAIL:
                            yield quorum
                    except GeologError:
                        continue  # Creating such a stream would be refused.


def _adherence_on_all(
    terms: PlacementTerms, quorum: QuorumConfig, counts: Mapping[str, int]
) -> Adherence:
    nodes = places(counts)
    members = Membership.of(
        MembershipConfig(default_location=DEFAULT_LOCATION),
        [KnownNode(node=node, location=place, state=NodeUse.WRITABLE) for node, place in nodes],
    )
    request = PlacementRequest(
        ensemble_size=quorum.ensemble_size,
        write_quorum=quorum.write_quorum,
        ack_quorum=quorum.ack_quorum,
    )
    here = PlacementPlace(local=nodes[0][1])
    return policy_of(terms, quorum, here).new_ensemble(members, request, Random(0)).adherence


def places(counts: Mapping[str, int]) -> list[tuple[str, Location]]:
    """The nodes of a world with these counts by region, each on a rack of its own."""
    return [
        (f"{region}-{number}", Location(region, f"rack-{number}"))
        for region, count in counts.items()
        for number in range(1, count + 1)
    ]
