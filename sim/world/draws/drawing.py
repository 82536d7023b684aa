"""The world that a seed draws: mild, harsh, or made for one purpose.

Each option is drawn from a random source of its own (`sim/world/chance.py`). Each seed turns on
a few faults only, because one fault may hide another, and draws how often they strike.
"""

from collections.abc import Iterable, Sequence

import attrs

from sim.world.apps.failing_over import (
    HOME_CUT_OFF,
    HOME_HEARS_LATE,
    HOME_LOST,
    HOME_LOST_AGAIN,
    LEASE_CLOCK,
)
from sim.world.chance import Draws
from sim.world.draws.clock_draws import FAR, STORE_CLOCK, draw_clocks
from sim.world.draws.cursor_draws import draw_cursors
from sim.world.draws.disk_draws import CREATED, UNREADABLE, draw_damage, draw_disks
from sim.world.draws.failover_draws import draw_failovers
from sim.world.draws.hand_over_draws import HAND_OVER, draw_hand_overs
from sim.world.draws.move_draws import AMBUSH_MOVE, draw_moves
from sim.world.draws.owner_draws import LOST_EARLY, draw_owners
from sim.world.draws.proxy_draws import DRAIN, draw_proxies
from sim.world.draws.relay_draws import STRUCK_WITH_RELAYS, draw_relays
from sim.world.draws.session_draws import STRUCK_WITH_SESSIONS, draw_sessions, draw_twins
from sim.world.draws.special_worlds import (
    RARE,
    SLOW_CLIENT,
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
_HEDGES = ("auto", "auto", "off", "20ms", "sla:100ms")
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
_WAITING_SHARE = 0.7
_OTHER_BYTES_SHARE = 0.3
_REPEATING_SHARE = 0.5
_REPEATS_SHARE = 0.3

_ONLY_IN_SPECIAL_WORLDS = (
    frozenset(
        {
            AMBUSH_MOVE,
            CREATED,
            DRAIN,
            FAR,
            HAND_OVER,
            HOME_CUT_OFF,
            HOME_HEARS_LATE,
            HOME_LOST,
            HOME_LOST_AGAIN,
            LEASE_CLOCK,
            LOST_EARLY,
            STORE_CLOCK,
            UNREADABLE,
        }
    )
    | STRUCK_WITH_RELAYS
    | STRUCK_WITH_SESSIONS
)
"""Faults that strike only in the worlds made for them."""

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
"""Faults that cause takeovers, or break things during one."""


def options_of_seed(seed: int, fault_kinds: tuple[str, ...]) -> Options:
    """The options of a seed: a world, which may then be changed into one made for a purpose."""
    draws = Draws(seed)
    drawn = draw_options(draws, fault_kinds)
    made = draw_owners(drawn, draws)
    made = draw_sessions(made, draws)
    made = draw_clocks(made, draws)
    made = draw_exchange(made, draws)
    made = draw_damage(made, draws)
    for draw in (draw_twins, draw_hand_overs, draw_relays, draw_proxies, draw_cursors):
        made = draw(made, draws) if made == drawn else made
    moved = draw_moves(made, draws)
    return draw_failovers(made, draws) if moved == made else moved


def draw_options(draws: Draws, fault_kinds: tuple[str, ...]) -> Options:
    """Draw a small world: defects already show with three to six nodes."""
    is_harsh = draws.happens("harsh", _HARSH_SHARE)
    drawn = (draw_harsh_options if is_harsh else _draw_mild_options)(draws, fault_kinds)
    drawn = attrs.evolve(drawn, stream=draw_stream_knobs(draws))
    if not draws.happens("steady", _STEADY_SHARE):
        return draw_disks(draw_dependent_knobs(_with_placement(drawn, draws), draws), draws)
    drawn = steady(drawn, draws)
    placed = _with_placement(drawn, draws)
    is_kept = leaves_a_choice(placed.shape.quorum)
    return draw_dependent_knobs(placed if is_kept else drawn, draws)


def draw_dependent_knobs(drawn: Options, draws: Draws) -> Options:
    """The same world, with the knobs that depend on others.

    Writers have little room where nodes do. Only named writers repeat records. They send other
    bytes only if they are never forgotten, because then the owner must know to refuse those.
    """
    knobs = drawn.knobs
    are_clients_slow = any(kind == SLOW_CLIENT for kind, _ in drawn.hazards.strikes_per_s)
    if knobs.is_room_tight and not are_clients_slow:
        # The window holds several records of mixed sizes, so a round must send more than that.
        knobs = attrs.evolve(
            knobs,
            writer_window_records=draws.choice("writer_window_records", (1, 2)),
            pipelined_max=max(10, knobs.pipelined_max),
        )
    if knobs.are_writers_named and not drawn.stream.may_forget_writers:
        knobs = attrs.evolve(knobs, other_bytes_share=_OTHER_BYTES_SHARE)
    if knobs.are_writers_named and draws.happens("repeats", _REPEATING_SHARE):
        knobs = attrs.evolve(knobs, repeats_share=_REPEATS_SHARE)
    return attrs.evolve(drawn, knobs=knobs)


def _with_placement(drawn: Options, draws: Draws) -> Options:
    shape = drawn.shape
    placement, quorum = draw_placement(draws, dict(shape.nodes_by_region), shape.quorum)
    return attrs.evolve(drawn, placement=placement, shape=attrs.evolve(shape, quorum=quorum))


def _draw_mild_options(draws: Draws, fault_kinds: tuple[str, ...]) -> Options:
    return Options(
        shape=_draw_shape(draws),
        knobs=Knobs(
            session_timeout_s=draws.choice("session_timeout_s", (2.0, 6.0)),
            segment_bytes=draws.choice("segment_bytes", (64 << 10, 64 << 10, 1 << 20)),
            journal_file_bytes=_draw_journal_file_bytes(draws),
            value_bytes_max=draws.choice("value_bytes_max", (20, 1000, 20_000)),
            pipelined_max=draws.choice("pipelined_max", (1, 4, 40)),
            pause_s_max=draws.choice("pause_s_max", (0.02, 0.2, 0.2)),
            appends_per_tenure=draws.choice("appends_per_tenure", (10, 40, 400)),
            rest_s_max=draws.choice("rest_s_max", (0.5, 5.0, 20.0)),
            spread_s_max=draws.choice("spread_s_max", (0.0, 0.0, 0.05)),
            is_upkeep_hasty=draws.happens("is_upkeep_hasty", _HASTY_SHARE),
            is_room_tight=draws.happens("is_room_tight", _TIGHT_SHARE),
            are_writers_named=draws.happens("are_writers_named", _NAMED_SHARE),
            disks_per_node=_draw_disks_per_node(draws),
            headers_share=_draw_headers_share(draws),
            hedge=draws.choice("hedge", _HEDGES),
        ),
        links=_draw_links(draws),
        hazards=_draw_hazards(draws, fault_kinds),
    )


def draw_harsh_options(draws: Draws, fault_kinds: tuple[str, ...]) -> Options:
    """Draw a world whose owners follow each other fast, and are struck meanwhile.

    Its stream is a plain one.
    """
    counts = _draw_harsh_counts(draws)
    drawn = Options(
        shape=WorldShape(
            nodes_by_region=tuple(counts.items()),
            quorum=_draw_harsh_quorum(draws, counts),
            writers_count=draws.choice("writers_count", (2, 3)),
            readers_count=1,
        ),
        knobs=Knobs(
            session_timeout_s=2.0,
            segment_bytes=64 << 10,
            journal_file_bytes=_draw_journal_file_bytes(draws),
            value_bytes_max=draws.choice("value_bytes_max", (20, 1000, 10_000)),
            pipelined_max=draws.choice("pipelined_max", (1, 4, 10, 10)),
            pause_s_max=draws.choice("pause_s_max", (0.02, 0.2)),
            appends_per_tenure=draws.choice("appends_per_tenure", (10, 40, 400)),
            rest_s_max=draws.choice("rest_s_max", (0.5, 2.0, 5.0)),
            spread_s_max=draws.choice("spread_s_max", (0.0, 0.01, 0.1)),
            is_upkeep_hasty=draws.happens("is_upkeep_hasty", _HASTY_SHARE),
            is_room_tight=draws.happens("is_room_tight", _TIGHT_SHARE),
            are_writers_named=draws.happens("are_writers_named", _NAMED_SHARE),
            disks_per_node=_draw_disks_per_node(draws),
            headers_share=_draw_headers_share(draws),
            hedge=draws.choice("hedge", _HEDGES),
        ),
        links=_draw_links(draws),
        hazards=_draw_harsh_hazards(draws, fault_kinds),
    )
    if draws.happens("slow clients", _SLOW_CLIENT_SHARE):
        return with_slow_clients(drawn)
    if draws.happens("members lacking", _LACKING_SHARE):
        return with_members_lacking(drawn, draws)
    if draws.happens("members replaced", _REPLACED_SHARE):
        return with_members_replaced(drawn, draws)
    return with_fences_at_risk(drawn) if draws.happens("fences", _FENCES_SHARE) else drawn


def _draw_harsh_counts(draws: Draws) -> dict[str, int]:
    regions = REGION_NAMES[: draws.choice("regions", (2, 3))]
    counts = dict.fromkeys(regions, 1)
    for number in range(draws.choice("nodes over", (0, 1, 2)) + 3 - len(regions)):
        counts[draws.choice(f"region of node {number}", regions)] += 1
    return counts


def _draw_harsh_quorum(draws: Draws, counts: dict[str, int]) -> QuorumConfig:
    """Draw a quorum, mostly one that leaves a spare node: without one no ensemble can change.

    Many of those stripe entries over different nodes: a takeover of such a ledger must fence
    several write sets.
    """
    quorums: Sequence[QuorumConfig] = possible_quorums(counts)
    spare = [one for one in quorums if one.ensemble_size < sum(counts.values())]
    if spare and draws.happens("spare nodes", _SPARE_SHARE):
        quorums = spare
    striped = [one for one in quorums if one.ensemble_size > one.write_quorum]
    is_striped = draws.happens("striped", _STRIPED_SHARE)
    return draws.choice("quorum", striped if striped and is_striped else quorums)


def _draw_harsh_hazards(draws: Draws, fault_kinds: Iterable[str]) -> Hazards:
    harsh = {*_AMBUSHES, *_TAKEOVER_FAULTS}
    others = set(fault_kinds) - harsh - RARE - _ONLY_IN_SPECIAL_WORLDS
    ambushes = draws.choice("ambushes", (0, 1, 2, 3, 3, 3))
    takeover_faults = draws.choice("takeover faults", (1, 1, 2))
    kinds = [
        *draws.sample("ambush", _AMBUSHES, ambushes),
        *draws.sample("takeover fault", _TAKEOVER_FAULTS, takeover_faults),
        *draws.sample("fault", others, draws.choice("faults", (0, 1, 2, 3))),
    ]
    return Hazards(
        chaos_s=draws.choice("chaos_s", (10.0, 20.0)),
        duration_s_max=draws.choice("duration_s_max", (1.0, 4.0, 8.0)),
        strikes_per_s=_draw_strikes(draws, kinds, (0.2, 0.5)),
        lies_in_wait=draws.happens("lies_in_wait", _WAITING_SHARE),
    )


def _draw_hazards(draws: Draws, fault_kinds: Iterable[str]) -> Hazards:
    usual = set(fault_kinds) - _ONLY_IN_SPECIAL_WORLDS
    kinds = draws.sample("fault", usual, draws.choice("faults", (0, 1, 2, 2, 3, 3, 4, 6)))
    return Hazards(
        chaos_s=draws.choice("chaos_s", (10.0, 20.0, 40.0)),
        duration_s_max=draws.choice("duration_s_max", (1.0, 4.0, 12.0)),
        strikes_per_s=_draw_strikes(draws, kinds, (0.1, 0.2, 0.5)),
    )


def _draw_strikes(
    draws: Draws, kinds: Iterable[str], rates_per_s: tuple[float, ...]
) -> tuple[tuple[str, float], ...]:
    return tuple(
        (kind, draws.choice(f"strikes of {kind}", rates_per_s)) for kind in sorted(kinds)
    )


def _draw_shape(draws: Draws) -> WorldShape:
    regions = REGION_NAMES[: draws.choice("regions", (2, 3, 3, 3))]
    per_region = (1, 2, 3) if len(regions) == 2 else (1, 2)
    counts = {name: draws.choice(f"nodes in {name}", per_region) for name in regions}
    return WorldShape(
        nodes_by_region=tuple(counts.items()),
        quorum=draws.choice("quorum", possible_quorums(counts)),
        writers_count=draws.choice("writers_count", (1, 2, 2, 3)),
        readers_count=draws.choice("readers_count", (1, 1, 2)),
    )


def _draw_journal_file_bytes(draws: Draws) -> int:
    return draws.choice("journal_file_bytes", (1 << 20, 1 << 20, 8 << 20))


def _draw_disks_per_node(draws: Draws) -> int:
    return draws.choice("disks_per_node", (1, 1, 1, 2))


def _draw_headers_share(draws: Draws) -> float:
    return draws.choice("headers_share", (0.0, 0.0, 0.3))


def _draw_links(draws: Draws) -> Links:
    return Links(
        latency_s_within=draws.choice("latency_s_within", (0.0001, 0.0005, 0.002)),
        latency_s_across=draws.choice("latency_s_across", (0.001, 0.02, 0.02, 0.1)),
        jitter=draws.choice("jitter", (0.0, 0.1, 1.0)),
        stall_chance=draws.choice("stall_chance", (0.0, 0.0, 0.001, 0.02)),
        sync_s=draws.choice("sync_s", (0.0002, 0.002, 0.02)),
    )
