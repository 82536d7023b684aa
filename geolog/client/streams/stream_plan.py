"""What a stream that is asked for comes to: its quorums and policy, why, and at what cost.

Nothing is promised that cannot be kept: the choice is tried on the nodes that there are.
"""

import difflib
import itertools
import random
from collections.abc import Sequence
from functools import partial

import attrs

from geolog.background import both
from geolog.ledger.node_pool import NodePool
from geolog.metadata.nodes import NodeRecord, list_known_nodes
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.seam import Metadata
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.membership import Member, Membership, MembershipConfig, NodeState
from topology.placement import Candidate
from topology.policy import PlacementRequest
from topology.quorum import Durability, QuorumConfig
from topology.stream_policy import (
    DEFAULT_LOCATION,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)
from topology.survive import Loss, plan_to_survive


@attrs.frozen(kw_only=True)
class StreamWanted:
    """What is asked for: either what to survive, or sizes; None is not given."""

    survive: str | None = None
    ensemble_size: int | None = None
    write_quorum: int | None = None
    ack_quorum: int | None = None
    min_regions: int | None = None
    durability: str = "regions"
    policy: str | None = None

    @property
    def sizes(self) -> tuple[int | None, ...]:
        """All sizes that may be given."""
        return (self.ensemble_size, self.write_quorum, self.ack_quorum, self.min_regions)


@attrs.frozen(kw_only=True)
class StreamPlan:
    """What it comes to, with the reasons for a person, a sentence each."""

    quorum: QuorumConfig
    placement: PlacementTerms
    survive: str = ""
    explanation: tuple[str, ...]


@attrs.frozen(kw_only=True)
class StreamPlanner:
    """Plans streams of one cluster, for a client that stands in a region."""

    metadata: Metadata
    cluster: str
    pool: NodePool
    region: str | None
    rng: random.Random
    metadata_regions: tuple[str, ...] | None
    """Where the servers of the metadata store stand, one name each; None if not known."""

    async def plan(self, wanted: StreamWanted) -> StreamPlan:
        """The plan. InvalidArgumentError, NotEnoughNodesError: with the nearest that can be."""
        durability = parse_durability(wanted.durability)
        kind = None if wanted.policy is None else parse_policy(wanted.policy)
        if wanted.survive is not None:
            return await self._plan_to_survive(wanted, durability, kind)
        terms = PlacementTerms(policy=kind or PolicyKind.REGION_AWARE)
        quorum = _quorum_given(wanted, durability, terms)
        terms.check(quorum)
        known = await list_known_nodes(self.metadata, self.cluster)
        self._try_on(await self.pool.nodes.resolved(known), terms, quorum)
        return StreamPlan(quorum=quorum, placement=terms, explanation=_explained(terms, quorum))

    async def _plan_to_survive(
        self, wanted: StreamWanted, durability: Durability, kind: PolicyKind | None
    ) -> StreamPlan:
        assert wanted.survive is not None
        if any(size is not None for size in wanted.sizes):
            raise InvalidArgumentError("give either what to survive, or the quorums, not both")
        loss = Loss.parse(wanted.survive)
        up, switches = await both(
            self.pool.live_nodes, partial(read_switches, self.metadata, self.cluster)
        )
        live = await self.pool.nodes.resolved(up)
        forbidden = switches.forbidden_regions
        candidates = [
            Candidate(one.instance, one.location)
            for one in live
            if one.is_writable and one.location.region not in forbidden
        ]
        try:
            found = plan_to_survive(wanted.survive, candidates, durability=durability)
        except NotEnoughNodesError as error:
            if not forbidden:
                raise
            raise NotEnoughNodesError(
                f"{error}. Placement is forbidden in {', '.join(sorted(forbidden))}"
                " (geolog region allow-placement)"
            ) from None
        if kind is not None and kind is not found.placement.policy:
            raise InvalidArgumentError(
                f"survive {str(loss)!r} is kept by policy {found.placement.policy.value!r}, not"
                f" by {kind.value!r}: leave the policy out, or give the quorum sizes"
            )
        majority = judge_majority(loss, self.metadata_regions)
        return StreamPlan(
            quorum=found.quorum,
            placement=found.placement,
            survive=str(loss),
            explanation=(*found.explanation, majority),
        )

    def _try_on(
        self, known: Sequence[NodeRecord], terms: PlacementTerms, quorum: QuorumConfig
    ) -> None:
        """Refuse what all nodes that ever joined, were they up, could not hold."""
        members = [
            Member(node=one.instance, location=one.location, state=NodeState.WRITABLE)
            for one in known
        ]
        local = self.pool.config.placement.standing(self.region)
        policy_of(terms, quorum, PlacementPlace(local=local)).new_ensemble(
            Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), members),
            PlacementRequest(
                ensemble_size=quorum.ensemble_size,
                write_quorum=quorum.write_quorum,
                ack_quorum=quorum.ack_quorum,
            ),
            self.rng,
        )


def parse_policy(text: str) -> PolicyKind:
    """A policy by its name; InvalidArgumentError names the nearest."""
    names = [kind.value for kind in PolicyKind]
    if text not in names:
        nearest = difflib.get_close_matches(text.lower(), names, 1, 0.0)[0]
        raise InvalidArgumentError(
            f"policy {text!r} is not known; the nearest is {nearest!r}, all are"
            f" {', '.join(names)}"
        )
    return PolicyKind(text)


def parse_durability(text: str) -> Durability:
    """A kind of durability by its name; InvalidArgumentError lists them."""
    try:
        return Durability(text)
    except ValueError:
        raise InvalidArgumentError(
            f"durability {text!r} is not known; it is 'regions' or 'count'"
        ) from None


def judge_majority(loss: Loss, regions: Sequence[str] | None) -> str:
    """Whether the metadata store outlives the loss too, as a sentence. NotEnoughNodesError."""
    if loss.kind != "region":
        return "the metadata store is not part of this promise: it names no region"
    if regions is None:
        return (
            "whether ZooKeeper keeps a majority without any"
            f" {loss.domains} region{'s' if loss.domains > 1 else ''} was not judged: where its"
            " servers stand is not known (zookeeper_regions)"
        )
    names = sorted(set(regions))
    for lost in itertools.combinations(names, min(loss.domains, len(names))):
        left = sum(region not in lost for region in regions)
        if 2 * left <= len(regions):
            raise NotEnoughNodesError(
                f"to survive the loss of {loss}, ZooKeeper must keep a majority; without"
                f" {' and '.join(lost)} {left} of its {len(regions)} servers are left: spread"
                f" them over {2 * loss.domains + 1} regions or more, or ask for what spares"
                " regions, as '1 rack'"
            )
    return f"ZooKeeper keeps a majority of its {len(regions)} servers without them, too"


def _quorum_given(
    wanted: StreamWanted, durability: Durability, terms: PlacementTerms
) -> QuorumConfig:
    """The quorums with what was not given filled in: E 3, W = E, A a majority of W, m 1."""
    usual = 1 if terms.policy is PolicyKind.LOCAL_NODE else 3
    ensemble_size = usual if wanted.ensemble_size is None else wanted.ensemble_size
    write_quorum = ensemble_size if wanted.write_quorum is None else wanted.write_quorum
    ack_quorum = write_quorum // 2 + 1 if wanted.ack_quorum is None else wanted.ack_quorum
    return QuorumConfig(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        min_regions=1 if wanted.min_regions is None else wanted.min_regions,
        durability=durability,
    )


def _explained(terms: PlacementTerms, quorum: QuorumConfig) -> tuple[str, ...]:
    """What quorums that were given mean."""
    write, ack, m = quorum.write_quorum, quorum.ack_quorum, quorum.min_regions
    copies = f"{write} copies of every entry" if write > 1 else "one copy of every entry"
    waits = f"an append waits for {ack} of them" if write > 1 else "an append waits for it"
    across = ""
    if m > 1:
        nearest = "nearest other region" if m == 2 else f"{m - 1}-th nearest other region"
        across = f", in at least {m} regions: about one round trip to the {nearest}"
    return (
        f"{copies}, on ensembles of {quorum.ensemble_size}, as was asked for",
        waits + across,
        _PLACED[terms.policy],
    )


_PLACED = {
    PolicyKind.DEFAULT: "nodes are chosen at random, whatever fails together",
    PolicyKind.LOCAL_NODE: "the one node stands where the writer does, and is lost with it",
    PolicyKind.RACK_AWARE: "copies lie on racks of their own as far as there are enough, those"
    " of the writer's region first",
    PolicyKind.REGION_AWARE: "copies are shared equally over the regions that are up",
    PolicyKind.ZONE_AWARE: "copies are shared over zones, which are the regions, and over"
    " upgrade domains, which are the racks, within each",
}
