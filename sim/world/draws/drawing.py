"""What a seed draws: mild worlds, harsh ones, and some that are made for one thing.

Each seed turns only some hazards on, so that one that hides another is sometimes away, and
draws how hard the others strike.
"""

from random import Random

import attrs

from sim.world.draws.clock_draws import draw_clocks, draw_store_clocks
from sim.world.draws.damage_draws import draw_damage
from sim.world.draws.last_draws import STRUCK_LAST, draw_last, draw_last_strikes
from sim.world.draws.owner_draws import draw_owners
from sim.world.draws.session_draws import draw_sessions
from sim.world.draws.special_worlds import (
    RARE,
    leaves_a_choice,
    possible_quorums,
    steady,
    with_fences_at_risk,
    with_members_lacking,
    with_members_replaced,
    with_slow_clients,
)
from sim.world.exchange import draw_exchange
from sim.world.options import Hazards, Knobs, Links, Options, WorldShape
from sim.world.placement_knobs import draw_placement
from sim.world.stream_knobs import draw_stream_knobs
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
_REPLACED_SHARE = 0.15
_FENCES_SHARE = 0.15

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


def options_of_seed(seed: int, fault_kinds: tuple[str, ...]) -> Options:
    """What a seed draws; what was thought of later, from a random source of its own."""
    drawn = draw_options(Random(f"{seed}/options"), fault_kinds)
    drawn = draw_owners(drawn, Random(f"{seed}/owners"))
    drawn = draw_sessions(drawn, Random(f"{seed}/sessions"))
    drawn = draw_clocks(drawn, Random(f"{seed}/clocks"))
    drawn = draw_store_clocks(drawn, Random(f"{seed}/clock of the store"))
    drawn = draw_exchange(drawn, Random(f"{seed}/exchange of regions"))
    return draw_damage(drawn, Random(f"{seed}/damage"))


def draw_options(rng: Random, fault_kinds: tuple[str, ...]) -> Options:
    """Draw a small world: what breaks at all breaks with three to six nodes."""
    is_harsh = rng.random() < _HARSH_SHARE
    drawn = (draw_harsh_options if is_harsh else _draw_mild_options)(rng, fault_kinds)
    drawn = attrs.evolve(drawn, stream=draw_stream_knobs(rng))
    if rng.random() >= _STEADY_SHARE:
        return draw_last_strikes(draw_last(_with_placement(drawn, rng), rng), rng)
    drawn = steady(drawn, rng)
    placed = _with_placement(drawn, rng)
    return draw_last(placed if leaves_a_choice(placed.shape.quorum) else drawn, rng)


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
    others = sorted(set(fault_kinds) - {*_AMBUSHES, *_TAKEOVER_FAULTS, *RARE, *STRUCK_LAST})
    kinds = rng.sample(_AMBUSHES, rng.choice((0, 1, 2, 3, 3, 3)))
    kinds += rng.sample(_TAKEOVER_FAULTS, rng.choice((1, 1, 2)))
    kinds += rng.sample(others, rng.choice((0, 1, 2, 3)))
    drawn = Options(
        shape=WorldShape(
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
    if rng.random() < _LACKING_SHARE:
        return with_members_lacking(drawn, rng)
    if rng.random() < _REPLACED_SHARE:
        return with_members_replaced(drawn, rng)
    return with_fences_at_risk(drawn) if rng.random() < _FENCES_SHARE else drawn


def _draw_harsh_quorum(rng: Random, counts: dict[str, int]) -> QuorumConfig:
    """Mostly one that leaves a node over: without one no ensemble can change.

    Of those often one by which entries lie on different nodes: whoever takes such a ledger over
    must fence several write sets.
    """
    quorums = list(possible_quorums(counts))
    spare = [one for one in quorums if one.ensemble_size < sum(counts.values())]
    if spare and rng.random() < _SPARE_SHARE:
        quorums = spare
    striped = [one for one in quorums if one.ensemble_size > one.write_quorum]
    is_striped = rng.random() < _STRIPED_SHARE
    return rng.choice(striped if striped and is_striped else quorums)


def _draw_shape(rng: Random) -> WorldShape:
    regions_count = rng.choice((2, 3, 3, 3))
    per_region_max = 3 if regions_count == 2 else 2
    counts = {name: rng.randint(1, per_region_max) for name in REGION_NAMES[:regions_count]}
    return WorldShape(
        nodes_by_region=tuple(counts.items()),
        quorum=rng.choice(list(possible_quorums(counts))),
        writers_count=rng.choice((1, 2, 2, 3)),
        readers_count=rng.choice((1, 1, 2)),
    )


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
    fault_kinds = tuple(kind for kind in fault_kinds if kind not in STRUCK_LAST)
    count = min(len(fault_kinds), rng.choice((0, 1, 2, 2, 3, 3, 4, 6)))
    return Hazards(
        chaos_s=rng.choice((10.0, 20.0, 40.0)),
        duration_s_max=rng.choice((1.0, 4.0, 12.0)),
        strikes_per_s=tuple(
            (kind, rng.choice((0.1, 0.2, 0.5)))
            for kind in sorted(rng.sample(fault_kinds, count))
        ),
    )
