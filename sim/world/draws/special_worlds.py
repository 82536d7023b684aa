"""Worlds made for one purpose that other worlds hardly ever serve.

Each is another world plus what it takes: spare nodes and long absences, so that the choice of
members can be judged; members that lack acknowledged entries; slow clients.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import attrs

from sim.world.chance import Draws
from sim.world.options import Options, WorldShape
from sim.world.placement_knobs import PlacementKnobs
from topology.placement import Adherence, adherence_of, arrange_regions
from topology.quorum import QuorumConfig

SLOW_CLIENT = "ambush-answers"
_LACKING = "ambush-lack"
_MEMBER_GONE = "ambush-member"
_COPIED = "ambush-copy"
_FENCE_RECORD = "ambush-fence-record"
_FULL = "disk-full"

RARE = frozenset({SLOW_CLIENT, _LACKING, _MEMBER_GONE, _COPIED, _FENCE_RECORD})
"""Faults that are drawn often in these worlds, and in mild worlds like any other."""

_STEADY_NODES = {"us-east": 2, "eu-west": 2, "ap-northeast": 2}
_STEADY_ENSEMBLE_MAX = 4
"""Leaves two spare nodes: a member that goes can be replaced by either."""

_ENDINGS = ("kill-client", "power-loss-node", "power-loss-region")
"""Faults that end processes, and do nothing else."""


def steady(drawn: Options, draws: Draws) -> Options:
    """The same, but with spare nodes, none of them slow or out of reach; a few of them end.

    Those that end stay away. A process that chooses nodes there can be held to the best choice
    that there was (law 21).
    """
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            nodes_by_region=tuple(_STEADY_NODES.items()),
            quorum=draws.choice("steady quorum", _steady_quorums()),
            writers_count=1,
        ),
        stream=attrs.evolve(drawn.stream, segment_age_s=3600.0),
        knobs=attrs.evolve(
            drawn.knobs,
            session_timeout_s=2.0,
            is_room_tight=False,
            appends_per_tenure=400,
            pause_s_max=0.1,
            rest_s_max=0.5,
            member_away_s=2.0,
        ),
        links=attrs.evolve(drawn.links, stall_chance=0.0),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=20.0,
            duration_s_max=60.0,
            strikes_per_s=((_MEMBER_GONE, 0.5), (draws.choice("ending", _ENDINGS), 0.05)),
        ),
    )


@cache
def _steady_quorums() -> list[QuorumConfig]:
    fit = [one for one in possible_quorums(_STEADY_NODES) if _can_be_strict(one)]
    return [one for one in fit if leaves_a_choice(one)]


def leaves_a_choice(quorum: QuorumConfig) -> bool:
    """Whether a steady world has several copies, and spare nodes when a member is gone."""
    return quorum.write_quorum > 1 and quorum.ensemble_size <= _STEADY_ENSEMBLE_MAX


def _can_be_strict(quorum: QuorumConfig) -> bool:
    ring = arrange_regions(quorum, _STEADY_NODES)
    return ring is not None and adherence_of(quorum, ring) is Adherence.STRICT


def with_members_lacking(drawn: Options, draws: Draws) -> Options:
    """The same, but strikes wait for entries acknowledged before all members have them."""
    quorums = possible_quorums(dict(drawn.shape.nodes_by_region))
    fit = [one for one in quorums if one.ack_quorum < one.write_quorum]
    shape = _with_one_of(fit, drawn.shape, draws)
    return _struck_too(attrs.evolve(drawn, shape=shape), _LACKING, 0.5)


def with_slow_clients(drawn: Options) -> Options:
    """The same, but nodes have little room and many requests, and clients take answers slowly.

    One node gets many requests only where each member has all entries, and ledgers are long.
    """
    quorum = attrs.evolve(drawn.shape.quorum, ensemble_size=drawn.shape.quorum.write_quorum)
    can_be_placed = arrange_regions(quorum, dict(drawn.shape.nodes_by_region)) is not None
    tight = attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, quorum=quorum) if can_be_placed else drawn.shape,
        knobs=attrs.evolve(
            drawn.knobs,
            segment_bytes=1 << 20,
            value_bytes_max=4000,
            pipelined_max=2,
            pause_s_max=0.02,
            spread_s_max=0.0,
            appends_per_tenure=400,
            is_room_tight=True,
        ),
    )
    return _struck_too(tight, SLOW_CLIENT, 1.0)


def with_members_replaced(drawn: Options, draws: Draws) -> Options:
    """The same, but members and disks are replaced, and upkeep soon looks at old data.

    Ledgers get several fragments, some members are in one of them alone, and nodes that receive
    copies end meanwhile.
    """
    counts = dict(drawn.shape.nodes_by_region)
    fit = [
        one
        for one in possible_quorums(counts)
        if one.ensemble_size < sum(counts.values()) and one.ack_quorum < one.write_quorum
    ]
    shape = _with_one_of(fit, drawn.shape, draws)
    drawn = attrs.evolve(
        drawn,
        shape=shape,
        knobs=attrs.evolve(
            drawn.knobs,
            appends_per_tenure=400,
            pause_s_max=0.2,
            is_upkeep_hasty=True,
            member_away_s=0.5,
        ),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=(("replaced-disk", 0.3),)),
    )
    return _struck_too(_struck_too(drawn, _MEMBER_GONE, 0.5), _COPIED, 1.0)


def with_lone_members(drawn: Options) -> Options:
    """The same, but no other node can stand in for the only one of its region, and members go.

    Every acknowledgement needs both regions, and the region with spare nodes is the larger.
    """
    large, small = drawn.shape.regions[:2]
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            nodes_by_region=((large, 3), (small, 1)),
            quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2),
            writers_count=1,
        ),
        knobs=attrs.evolve(drawn.knobs, appends_per_tenure=400, member_away_s=0.5),
        hazards=attrs.evolve(drawn.hazards, strikes_per_s=((_MEMBER_GONE, 1.0),)),
    )


def with_placement_tended(drawn: Options, draws: Draws) -> Options:
    """A steady world of short ledgers whose operators forbid regions and repair placement.

    Entries are acknowledged before all have them, and nodes that were away lack them.
    """
    world = steady(drawn, draws)
    quorum = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)
    return attrs.evolve(
        world,
        shape=attrs.evolve(world.shape, quorum=quorum),
        knobs=attrs.evolve(world.knobs, appends_per_tenure=10, pause_s_max=0.02),
        placement=PlacementKnobs(
            switch_rest_s_max=1.0, repair_rest_s_max=0.5, repair_s_max=20.0
        ),
        hazards=attrs.evolve(world.hazards, duration_s_max=3.0),
    )


def with_fences_at_risk(drawn: Options) -> Options:
    """The same, but nodes that must fence are full, or lose the record of a fence."""
    strikes = {**dict(drawn.hazards.strikes_per_s), _FENCE_RECORD: 1.0, _FULL: 1.0}
    hazards = attrs.evolve(drawn.hazards, strikes_per_s=tuple(strikes.items()))
    return attrs.evolve(drawn, hazards=hazards)


def _struck_too(drawn: Options, kind: str, strikes_per_s: float) -> Options:
    strikes = (*drawn.hazards.strikes_per_s, (kind, strikes_per_s))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, strikes_per_s=strikes))


def _with_one_of(
    quorums: Sequence[QuorumConfig], shape: WorldShape, draws: Draws
) -> WorldShape:
    if not quorums:
        return shape
    return attrs.evolve(shape, quorum=draws.choice("quorum of the special world", quorums))


def possible_quorums(counts: Mapping[str, int]) -> tuple[QuorumConfig, ...]:
    """All quorums that such nodes can hold, except those of a single copy."""
    return _possible_quorums(tuple(counts.items()))


@cache  # Few shapes are drawn, and each takes a search.
def _possible_quorums(nodes_by_region: tuple[tuple[str, int], ...]) -> tuple[QuorumConfig, ...]:
    counts = dict(nodes_by_region)
    every = _quorums_of(nodes_count=sum(counts.values()), regions_count=len(counts))
    return tuple(one for one in every if arrange_regions(one, counts) is not None)


def _quorums_of(*, nodes_count: int, regions_count: int) -> Iterator[QuorumConfig]:
    for write in range(2, nodes_count + 1):
        for min_regions in range(1, min(regions_count, write) + 1):
            for ack in range(max(2, min_regions), write + 1):
                for ensemble in range(write, nodes_count + 1):
                    yield QuorumConfig(
                        ensemble_size=ensemble,
                        write_quorum=write,
                        ack_quorum=ack,
                        min_regions=min_regions,
                    )
