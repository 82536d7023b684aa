"""What a seed draws before its history begins: the world's shape, its knobs, its hazards.

Each seed turns only some hazards on, so that one that hides another is sometimes away, and
draws how hard the others strike. The options are values: the trace begins with them.
"""

from collections.abc import Iterator
from random import Random

import attrs

from sim.world.placement_knobs import UNTOUCHED, PlacementKnobs, draw_placement
from sim.world.stream_knobs import PLAIN, StreamKnobs, draw_stream_knobs
from topology.placement import Adherence, adherence_of, arrange_regions
from topology.quorum import QuorumConfig

REGION_NAMES = ("us-east", "eu-west", "ap-northeast", "sa-east", "af-south")


_HARSH_SHARE = 0.5
_HASTY_SHARE = 0.3
_TIGHT_SHARE = 0.2
_NAMED_SHARE = 0.4
_SPARE_SHARE = 0.6
_STRIPED_SHARE = 0.3
_STEADY_SHARE = 0.15
_SLOW_CLIENT_SHARE = 0.15
_LACKING_SHARE = 0.3

_AMBUSHES = (
    "ambush-add",
    "ambush-append",
    "ambush-fence",
    "ambush-rest",
    "ambush-send",
    "ambush-succession",
    "ambush-takeover",
    "ambush-walk",
)

_SLOW_CLIENT = "ambush-answers"
"""Strikes in worlds of its own: it is for nodes of little room, which are asked for much."""

_LACKING = "ambush-lack"
"""Strikes beside the others, so that it is met often."""

_TAKEOVER_FAULTS = (
    "cut-link",
    "cut-writer",
    "isolate-host",
    "kill-client",
    "kill-node",
    "pause-process",
    "power-loss-all",
    "power-loss-node",
    "reset-connection",
    "slow-disk",
    "slow-host",
    "zombie-writer",
)
"""What makes owners follow each other, and breaks things just then."""

_ENDINGS = ("kill-client", "power-loss-node", "power-loss-region")
"""What ends processes, beside `kill-node`, and does nothing else."""

_STEADY_NODES = (2, 2, 2)


@attrs.frozen(kw_only=True)
class Shape:
    """Who is in the world."""

    nodes_by_region: tuple[tuple[str, int], ...]
    """How many storage nodes each region has."""
    quorum: QuorumConfig
    """Of the one stream that all use."""
    writers_count: int
    """Processes that append; more than one take the stream from each other."""
    readers_count: int
    """Processes that read and follow."""

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions' names."""
        return tuple(name for name, _ in self.nodes_by_region)


@attrs.frozen(kw_only=True)
class Knobs:
    """How the parts are set, and what the applications do."""

    session_timeout_s: float
    segment_bytes: int
    journal_file_bytes: int
    value_bytes_max: int
    pipelined_max: int
    """Appends that a writer sends before it waits for their answers."""
    pause_s_max: float
    """Longest rest of a writer between two such runs."""
    appends_per_tenure: int
    """Appends of a writer before it gives the stream back."""
    rest_s_max: float
    """Longest rest of a writer before it takes the stream again."""
    spread_s_max: float = 0.0
    """Longest rest before an append of a run, while those before it wait for answers."""
    is_upkeep_hasty: bool = False
    """Whether nodes look for garbage, compact and scrub all the time."""
    is_room_tight: bool = False
    """Whether nodes have room for a few questions and answers at a time."""
    are_writers_named: bool = False
    """Whether writers number their records, and send what was not answered again."""


@attrs.frozen(kw_only=True)
class Links:
    """How far things are from each other, and how steady the way is."""

    latency_s_within: float
    """One way, in one region."""
    latency_s_across: float
    """One way at most, between regions; drawn for each pair."""
    jitter: float
    """Share of the latency that may come on top."""
    stall_chance: float
    """Chance that a piece is lost and sent again, which takes a while."""
    sync_s: float
    """How long a sync of a disk takes, most of the time."""


@attrs.frozen(kw_only=True)
class Hazards:
    """What strikes, and how often: `strikes_per_s` by kind of fault, in simulated time."""

    chaos_s: float
    """How long faults strike before they stop."""
    duration_s_max: float
    """Longest time that one of them lasts."""
    strikes_per_s: tuple[tuple[str, float], ...]
    lies_in_wait: bool = False
    """Whether a strike waits for the next change of a ledger's record: that is where fences,
    reads of recovery, changes of the ensemble and closes follow each other closely."""


@attrs.frozen(kw_only=True)
class Options:
    """All that is drawn before a history begins."""

    shape: Shape
    knobs: Knobs
    links: Links
    hazards: Hazards
    stream: StreamKnobs = PLAIN
    placement: PlacementKnobs = UNTOUCHED


def draw_options(rng: Random, fault_kinds: tuple[str, ...]) -> Options:
    """Draw a small world: what breaks at all breaks with three to six nodes."""
    is_harsh = rng.random() < _HARSH_SHARE
    drawn = (draw_harsh_options if is_harsh else _draw_mild_options)(rng, fault_kinds)
    drawn = attrs.evolve(drawn, stream=draw_stream_knobs(rng))
    if rng.random() < _STEADY_SHARE:
        drawn = steady(drawn, rng)
    return _with_placement(drawn, rng)


def steady(drawn: Options, rng: Random) -> Options:
    """The same with nodes over, of which none is slow or out of reach: some end, at most.

    Whoever chooses nodes there can be held to the best choice that there was (law 21).
    """
    counts = dict(zip(REGION_NAMES, _STEADY_NODES, strict=False))
    fit = [one for one in _possible_quorums(counts) if _leaves_a_choice(one, counts)]
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape, nodes_by_region=tuple(counts.items()), quorum=rng.choice(fit)
        ),
        knobs=attrs.evolve(drawn.knobs, is_room_tight=False, rest_s_max=0.5),
        links=attrs.evolve(drawn.links, stall_chance=0.0),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=30.0,
            duration_s_max=30.0,  # Who is gone for long is replaced.
            strikes_per_s=(("kill-node", 1.0), (rng.choice(_ENDINGS), 0.1)),
        ),
    )


def _leaves_a_choice(quorum: QuorumConfig, counts: dict[str, int]) -> bool:
    """Whether an ensemble leaves nodes over, and can be STRICT."""
    ring = arrange_regions(quorum, counts)
    is_strict = ring is not None and adherence_of(quorum, ring) is Adherence.STRICT
    return is_strict and quorum.ensemble_size < sum(counts.values())


def _with_placement(drawn: Options, rng: Random) -> Options:
    shape = drawn.shape
    placement, quorum = draw_placement(rng, dict(shape.nodes_by_region), shape.quorum)
    return attrs.evolve(drawn, placement=placement, shape=attrs.evolve(shape, quorum=quorum))


def _draw_mild_options(rng: Random, fault_kinds: tuple[str, ...]) -> Options:
    return Options(
        shape=_draw_shape(rng),
        knobs=_draw_knobs(rng),
        links=_draw_links(rng),
        hazards=_draw_hazards(rng, fault_kinds),
    )


def draw_harsh_options(rng: Random, fault_kinds: tuple[str, ...]) -> Options:
    """Draw a world whose owners follow each other fast, and are struck as they do.

    Its stream is a plain one.
    """
    regions_count = rng.choice((2, 3))
    counts = dict.fromkeys(REGION_NAMES[:regions_count], 1)
    for _ in range(rng.choice((0, 1, 2)) + 3 - regions_count):
        counts[rng.choice(REGION_NAMES[:regions_count])] += 1
    others = sorted(set(fault_kinds) - {*_AMBUSHES, *_TAKEOVER_FAULTS, _SLOW_CLIENT, _LACKING})
    kinds = rng.sample(_AMBUSHES, rng.choice((0, 1, 2, 3, 3, 3)))
    kinds += rng.sample(_TAKEOVER_FAULTS, rng.choice((1, 1, 2)))
    kinds += rng.sample(others, rng.choice((0, 1, 2, 3)))
    drawn = Options(
        shape=Shape(
            nodes_by_region=tuple(counts.items()),
            quorum=_draw_harsh_quorum(rng, counts),
            writers_count=rng.choice((2, 3)),
            readers_count=1,
        ),
        knobs=Knobs(
            session_timeout_s=2.0,
            segment_bytes=64 << 10,
            journal_file_bytes=rng.choice((1 << 20, 1 << 20, 8 << 20)),
            value_bytes_max=rng.choice((20, 1000, 10_000)),
            pipelined_max=rng.choice((1, 4, 10, 10)),
            pause_s_max=rng.choice((0.02, 0.2)),
            appends_per_tenure=rng.choice((10, 40, 400)),
            rest_s_max=rng.choice((0.5, 2.0, 5.0)),
            spread_s_max=rng.choice((0.0, 0.01, 0.1)),
            is_upkeep_hasty=rng.random() < _HASTY_SHARE,
            is_room_tight=rng.random() < _TIGHT_SHARE,
            are_writers_named=rng.random() < _NAMED_SHARE,
        ),
        links=_draw_links(rng),
        hazards=Hazards(
            chaos_s=rng.choice((10.0, 20.0)),
            duration_s_max=rng.choice((1.0, 4.0, 8.0)),
            strikes_per_s=tuple((kind, rng.choice((0.2, 0.5))) for kind in sorted(kinds)),
            lies_in_wait=rng.random() < 0.7,
        ),
    )
    if rng.random() < _SLOW_CLIENT_SHARE:
        return with_slow_clients(drawn)
    return with_members_lacking(drawn, rng) if rng.random() < _LACKING_SHARE else drawn


def with_members_lacking(drawn: Options, rng: Random) -> Options:
    """The same where an entry is acknowledged before all have it, and strikes wait for that."""
    quorums = _possible_quorums(dict(drawn.shape.nodes_by_region))
    fit = [one for one in quorums if one.ack_quorum < one.write_quorum]
    shape = attrs.evolve(drawn.shape, quorum=rng.choice(fit)) if fit else drawn.shape
    return _struck_too(attrs.evolve(drawn, shape=shape), _LACKING, 0.5)


def _struck_too(drawn: Options, kind: str, strikes_per_s: float) -> Options:
    strikes = (*drawn.hazards.strikes_per_s, (kind, strikes_per_s))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, strikes_per_s=strikes))


def with_slow_clients(drawn: Options) -> Options:
    """The same where nodes have little room, are asked for much, and clients take it slowly.

    Much is asked of one node only where each member has all entries, and ledgers are long.
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
    return _struck_too(tight, _SLOW_CLIENT, 1.0)


def _draw_harsh_quorum(rng: Random, counts: dict[str, int]) -> QuorumConfig:
    """Mostly one that leaves a node over: without one no ensemble can change.

    Of those often one by which entries lie on different nodes: whoever takes such a ledger over
    must fence several write sets.
    """
    quorums = list(_possible_quorums(counts))
    spare = [one for one in quorums if one.ensemble_size < sum(counts.values())]
    if spare and rng.random() < _SPARE_SHARE:
        quorums = spare
    striped = [one for one in quorums if one.ensemble_size > one.write_quorum]
    is_striped = rng.random() < _STRIPED_SHARE
    return rng.choice(striped if striped and is_striped else quorums)


def _draw_shape(rng: Random) -> Shape:
    regions_count = rng.choice((2, 3, 3, 3))
    per_region_max = 3 if regions_count == 2 else 2
    counts = {name: rng.randint(1, per_region_max) for name in REGION_NAMES[:regions_count]}
    return Shape(
        nodes_by_region=tuple(counts.items()),
        quorum=rng.choice(list(_possible_quorums(counts))),
        writers_count=rng.choice((1, 2, 2, 3)),
        readers_count=rng.choice((1, 1, 2)),
    )


def _possible_quorums(counts: dict[str, int]) -> Iterator[QuorumConfig]:
    """All quorums that such nodes can hold, those of a single copy left out."""
    nodes_count = sum(counts.values())
    for write in range(2, nodes_count + 1):
        for min_regions in range(1, min(len(counts), write) + 1):
            for ack in range(max(2, min_regions), write + 1):
                for ensemble in range(write, nodes_count + 1):
                    quorum = QuorumConfig(
                        ensemble_size=ensemble,
                        write_quorum=write,
                        ack_quorum=ack,
                        min_regions=min_regions,
                    )
                    if arrange_regions(quorum, counts) is not None:
                        yield quorum


def _draw_knobs(rng: Random) -> Knobs:
    return Knobs(
        session_timeout_s=rng.choice((2.0, 6.0)),
        segment_bytes=rng.choice((64 << 10, 64 << 10, 1 << 20)),
        journal_file_bytes=rng.choice((1 << 20, 1 << 20, 8 << 20)),
        value_bytes_max=rng.choice((20, 1000, 20_000)),
        pipelined_max=rng.choice((1, 4, 40)),
        pause_s_max=rng.choice((0.02, 0.2, 0.2)),
        appends_per_tenure=rng.choice((10, 40, 400)),
        rest_s_max=rng.choice((0.5, 5.0, 20.0)),
        spread_s_max=rng.choice((0.0, 0.0, 0.05)),
        is_upkeep_hasty=rng.random() < _HASTY_SHARE,
        is_room_tight=rng.random() < _TIGHT_SHARE,
        are_writers_named=rng.random() < _NAMED_SHARE,
    )


def _draw_links(rng: Random) -> Links:
    return Links(
        latency_s_within=rng.choice((0.0001, 0.0005, 0.002)),
        latency_s_across=rng.choice((0.001, 0.02, 0.02, 0.1)),
        jitter=rng.choice((0.0, 0.1, 1.0)),
        stall_chance=rng.choice((0.0, 0.0, 0.001, 0.02)),
        sync_s=rng.choice((0.0002, 0.002, 0.02)),
    )


def _draw_hazards(rng: Random, fault_kinds: tuple[str, ...]) -> Hazards:
    count = min(len(fault_kinds), rng.choice((0, 1, 2, 2, 3, 3, 4, 6)))
    return Hazards(
        chaos_s=rng.choice((10.0, 20.0, 40.0)),
        duration_s_max=rng.choice((1.0, 4.0, 12.0)),
        strikes_per_s=tuple(
            (kind, rng.choice((0.1, 0.2, 0.5)))
            for kind in sorted(rng.sample(fault_kinds, count))
        ),
    )
