"""Planning a new stream: its quorums and policy, the reasons for them, and what they cost.

The plan is tried on the nodes that exist, so no promise is made that cannot be kept.

Rules: PROTOCOL H4 and P8.
"""

import itertools
import random
from collections.abc import Collection, Iterable, Sequence
from functools import partial

import attrs

from geolog.background import both
from geolog.catalog.stream_settings import StreamSettings, check_policy, check_relay
from geolog.ledger.nodes.node_pool import NodePool
from geolog.metadata.nodes import NodeRecord, list_known_nodes
from geolog.metadata.placement_switches import read_switches
from geolog.metadata.seam import Metadata
from geolog.protocol.stream_state import StreamMode, StreamName, StreamRecord
from topology.errors import InvalidArgumentError, NotEnoughNodesError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.placement import Candidate
from topology.policy import Placement, PlacementRequest
from topology.promise import promise_broken
from topology.quorum import QuorumConfig, ack_quorum_smallest
from topology.region_survival import (
    ONE_REGION,
    SizesGiven,
    complete_sizes,
    why_not_without_a_region,
)
from topology.stream_policy import (
    DEFAULT_LOCATION,
    PlacementPlace,
    PlacementTerms,
    PolicyKind,
    policy_of,
)
from topology.survive import Loss, plan_to_survive


@attrs.frozen(kw_only=True)
class StreamPlan:
    """The quorums and the policy of a new stream, and the reasons for them."""

    quorum: QuorumConfig
    placement: PlacementTerms
    survive: str = ""
    explanation: tuple[str, ...]
    """The reasons, one sentence each."""
    region_loss_why_not: str = ""
    """The reason why the stream does not survive losing a region; empty if it does."""

    def record(
        self, name: StreamName, settings: StreamSettings, *, life: str, created_us: int
    ) -> StreamRecord:
        """The stream's record as metadata will hold it."""
        return StreamRecord(
            name=name,
            life=life,
            created_us=created_us,
            mode=settings.mode,
            quorum=self.quorum,
            placement=self.placement,
            survive=self.survive,
            partitions=settings.partitions,
            segment_bytes=settings.segment_bytes,
            segment_age_s=settings.segment_age_s,
            retention_s=settings.retention_s,
            retention_bytes=settings.retention_bytes,
            writer_retention_s=settings.writer_retention_s,
            relay_to=settings.relay_to,
            relay_evict_bytes=settings.relay_evict_bytes,
            rpo_max_s=settings.rpo_max_s,
            rpo_max_bytes=settings.rpo_max_bytes,
            rpo_targets=settings.rpo_targets,
            isolation_lease_s=settings.isolation_lease_s,
        )


@attrs.frozen(kw_only=True)
class StreamPlanner:
    """Plans streams of one cluster, for a client in one region."""

    metadata: Metadata
    cluster: str
    pool: NodePool
    region: str | None
    rng: random.Random
    metadata_regions: tuple[str, ...] | None
    """The region of each server of the metadata store; None if not known."""

    async def plan(self, settings: StreamSettings) -> StreamPlan:
        """The plan. InvalidArgumentError, NotEnoughNodesError; both name what is possible."""
        if settings.policy is not None:
            check_policy(settings.policy, self.pool.nodes.own_policies)
        home = await self._home_of(settings)
        check_relay(settings.mode, home, settings.relay_to)
        if settings.survive is None:
            plan = await self._plan_around(settings, home)
        elif settings.has_sizes:
            raise InvalidArgumentError("give either `survive` or the quorum sizes, not both")
        else:
            plan = await self._plan_to_survive(settings, home)
        await self.check_targets(settings.relay_to, plan.quorum, plan.placement)
        if settings.relay_to:
            told = f"mirrored in {_named(settings.relay_to)}, after the append is acknowledged"
            plan = attrs.evolve(plan, explanation=(*plan.explanation, told))
        return plan

    async def check_regions(self, home: str, targets: Collection[str]) -> None:
        """InvalidArgumentError unless all of these are regions of the cluster."""
        known = await self._resolved_nodes()
        regions = {one.location.region for one in known}
        _check_home(home, regions)
        for target in sorted(targets):
            _check_target(target, regions)

    async def _resolved_nodes(self) -> Sequence[NodeRecord]:
        registered = await list_known_nodes(self.metadata, self.cluster)
        return await self.pool.nodes.resolved(registered)

    async def check_targets(
        self, targets: Collection[str], quorum: QuorumConfig, terms: PlacementTerms
    ) -> None:
        """Refuse targets that are not regions of the cluster, or cannot hold a mirror.

        InvalidArgumentError, NotEnoughNodesError.
        """
        if not targets:
            return
        known = await self._resolved_nodes()
        regions = {one.location.region for one in known}
        for target in sorted(targets):
            _check_target(target, regions)
            try:
                self._try_on(known, attrs.evolve(terms, region=target), quorum)
            except NotEnoughNodesError as error:
                raise NotEnoughNodesError(
                    f"{target} cannot hold a mirror, which has the stream's quorums: {error}"
                ) from None

    async def _home_of(self, settings: StreamSettings) -> str | None:
        """The home that was given, if there is such a region; else the caller's own.

        InvalidArgumentError, also for a home of a `global` stream, which has none.
        """
        if settings.mode is StreamMode.GLOBAL:
            if settings.home is not None:
                raise InvalidArgumentError(
                    f"a stream of mode 'global' has no home, got {settings.home!r}: leave the"
                    " home out, or use mode 'regional'"
                )
            return None
        home = self.region if settings.home is None else settings.home
        regions = sorted({one.location.region for one in await self._resolved_nodes()})
        if home is None:
            raise InvalidArgumentError(
                f"a stream of mode 'regional' needs a home region: one of {', '.join(regions)}"
            )
        _check_home(home, regions)
        return home

    async def _plan_around(self, settings: StreamSettings, home: str | None) -> StreamPlan:
        """Keep the sizes given; choose the others so that losing a region is survived."""
        usual = PolicyKind.REGION_AWARE if home is None else PolicyKind.RACK_AWARE
        named = settings.policy or PlacementTerms(policy=usual)
        terms = attrs.evolve(named, region=home)
        registered, switches = await both(
            partial(list_known_nodes, self.metadata, self.cluster),
            partial(read_switches, self.metadata, self.cluster),
        )
        known = await self.pool.nodes.resolved(registered)
        allowed = _members(
            one for one in known if one.location.region not in switches.forbidden_regions
        )
        given = settings.sizes
        derived = None if given.is_complete else complete_sizes(given, terms, allowed)
        quorum = derived or _usual_quorum(given, terms)
        terms.check(quorum)
        tried = self._try_on(known, terms, quorum)
        why_not = why_not_without_a_region(quorum, terms, allowed)
        if why_not and switches.forbidden_regions:
            why_not += f"; placement is forbidden in {_named(switches.forbidden_regions)}"
        outlives = "after losing any one region each entry has an ack set; nothing is lost"
        if not why_not:
            try:
                outlives += f"; {judge_majority(ONE_REGION, self.metadata_regions)}"
            except NotEnoughNodesError as error:
                why_not = str(error)
        told = f"does NOT survive losing a region: {why_not}" if why_not else outlives
        if terms.policy is PolicyKind.OWN:
            told = f"{why_not}; {_found_of(tried, known, quorum)}"
        return StreamPlan(
            quorum=quorum,
            placement=terms,
            survive="" if derived is None or why_not else str(ONE_REGION),
            explanation=(*_explained(terms, quorum), told),
            region_loss_why_not=why_not,
        )

    async def _plan_to_survive(self, settings: StreamSettings, home: str | None) -> StreamPlan:
        assert settings.survive is not None
        loss = Loss.parse(settings.survive, is_regional=home is not None)
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
            found = plan_to_survive(
                str(loss), candidates, durability=settings.durability, home=home
            )
        except NotEnoughNodesError as error:
            if not forbidden:
                raise
            raise NotEnoughNodesError(
                f"{error}. Placement is forbidden in {_named(forbidden)}"
                " (geolog region allow-placement)"
            ) from None
        wanted = settings.policy
        if wanted is not None and wanted.policy is not found.placement.policy:
            raise InvalidArgumentError(
                f"survive {str(loss)!r} needs policy {found.placement.name!r}, not"
                f" {wanted.name!r}; leave the policy out, or give the quorum sizes"
            )
        majority = judge_majority(loss, self.metadata_regions)
        return StreamPlan(
            quorum=found.quorum,
            placement=found.placement,
            survive=str(loss),
            explanation=(*found.explanation, majority),
            region_loss_why_not=(
                "" if loss.kind == "region" else f"the promise covers {str(loss)!r} only"
            ),
        )

    def _try_on(
        self, known: Sequence[NodeRecord], terms: PlacementTerms, quorum: QuorumConfig
    ) -> Placement:
        """Refuse a stream that even all known nodes together could not hold."""
        local = self.pool.config.placement.standing(self.region)
        place = PlacementPlace(local=local, own=self.pool.nodes.own_policies)
        return policy_of(terms, quorum, place).new_ensemble(
            Membership.of(MembershipConfig(default_location=DEFAULT_LOCATION), _members(known)),
            PlacementRequest(
                ensemble_size=quorum.ensemble_size,
                write_quorum=quorum.write_quorum,
                ack_quorum=quorum.ack_quorum,
            ),
            self.rng,
        )


def _check_home(home: str, regions: Collection[str]) -> None:
    if home not in regions:
        raise InvalidArgumentError(
            f"home {home!r} is not a region of this cluster; its regions are"
            f" {_named(regions) or 'none'}"
        )


def _check_target(target: str, regions: Collection[str]) -> None:
    if target not in regions:
        raise InvalidArgumentError(
            f"{target!r} is not a region of this cluster, so no stream can be relayed to it;"
            f" its regions are {_named(regions)}"
        )


def _members(nodes: Iterable[NodeRecord]) -> list[KnownNode]:
    """These nodes, as if all of them were up."""
    return [
        KnownNode(node=one.instance, location=one.location, state=NodeUse.WRITABLE)
        for one in nodes
    ]


def _found_of(placed: Placement, known: Sequence[NodeRecord], quorum: QuorumConfig) -> str:
    """Whether an ensemble of another package's policy survives losing a region, computed."""
    places: dict[str, Location] = {one.instance: one.location for one in known}
    ring = tuple(places[node] for node in placed.nodes)
    broken = promise_broken(ONE_REGION, quorum, ring)
    where = ", ".join(sorted({place.region for place in ring}))
    return f"the ensemble that it would choose now, in {where}, " + (
        f"does not survive that: {broken}" if broken else "does survive that"
    )


def _named(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def judge_majority(loss: Loss, regions: Sequence[str] | None) -> str:
    """Whether the metadata store survives the loss too, in a sentence. NotEnoughNodesError."""
    if loss.kind != "region":
        return "the metadata store is not covered: the promise names no region"
    if regions is None:
        return (
            "whether ZooKeeper keeps a majority after losing any"
            f" {loss.domains} region{'s' if loss.domains > 1 else ''} is unknown: set"
            " zookeeper_regions to the regions of its servers"
        )
    names = sorted(set(regions))
    for lost in itertools.combinations(names, min(loss.domains, len(names))):
        left = sum(region not in lost for region in regions)
        if 2 * left <= len(regions):
            raise NotEnoughNodesError(
                f"to survive {loss}, ZooKeeper must keep a majority; without"
                f" {' and '.join(lost)} it has {left} of {len(regions)} servers. Spread them"
                f" over {2 * loss.domains + 1} or more regions, or ask for a promise that names"
                " no region, e.g. '1 rack'"
            )
    return f"ZooKeeper keeps a majority of its {len(regions)} servers after that loss"


def _usual_quorum(wanted: SizesGiven, terms: PlacementTerms) -> QuorumConfig:
    """The sizes if none survives losing a region: E 3, W = E, A a majority, m 1."""
    usual = 1 if terms.policy is PolicyKind.LOCAL_NODE else 3
    least = max(size or 1 for size in (wanted.ack_quorum, wanted.min_regions))
    write_quorum = wanted.write_quorum
    ensemble_size = wanted.ensemble_size
    if ensemble_size is None:
        ensemble_size = max(usual, least) if write_quorum is None else write_quorum
    if write_quorum is None:
        write_quorum = ensemble_size
    min_regions = 1 if wanted.min_regions is None else wanted.min_regions
    ack_quorum = wanted.ack_quorum
    if ack_quorum is None:
        ack_quorum = max(
            write_quorum // 2 + 1,
            ack_quorum_smallest(write_quorum, min_regions, wanted.durability),
        )
    return QuorumConfig(
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        min_regions=min_regions,
        durability=wanted.durability,
    )


def _explained(terms: PlacementTerms, quorum: QuorumConfig) -> tuple[str, ...]:
    """The meaning of the given quorums, in sentences."""
    write, ack, m = quorum.write_quorum, quorum.ack_quorum, quorum.min_regions
    copies = f"{write} copies of every entry" if write > 1 else "one copy of every entry"
    waits = f"an append waits for {ack} of them" if write > 1 else "an append waits for it"
    across = ""
    if m > 1:
        nearest = "nearest other region" if m == 2 else f"{m - 1}-th nearest other region"
        across = f", in at least {m} regions: about one round trip to the {nearest}"
    return (
        f"{copies}, on ensembles of {quorum.ensemble_size}",
        waits + across,
        _placed_by(terms) if terms.region is None else f"all copies are in {terms.region}",
    )


def _placed_by(terms: PlacementTerms) -> str:
    if terms.policy is PolicyKind.OWN:
        return (
            f"copies are where policy {terms.own!r} of another package puts them: every process"
            " that writes the stream needs it"
        )
    return _PLACED[terms.policy]


_PLACED = {
    PolicyKind.DEFAULT: "nodes are chosen at random, regardless of regions and racks",
    PolicyKind.LOCAL_NODE: "the only copy is at the writer's location, and is lost with it",
    PolicyKind.RACK_AWARE: "copies are on different racks as far as there are enough, those of"
    " the writer's region first",
    PolicyKind.REGION_AWARE: "copies are spread evenly over the regions that are up",
    PolicyKind.ZONE_AWARE: "copies are spread over zones (regions), and within each zone over"
    " upgrade domains (racks)",
}
