"""Worlds with relays in which the home of the stream moves by plan, in the middle of faults."""

import attrs

from sim.world.chance import Draws
from sim.world.draws.proxy_draws import with_proxies
from sim.world.draws.relay_draws import bounded, partly_local, with_matrix, with_relays
from sim.world.options import Options

AMBUSH_MOVE = "ambush-move"

_SHARE = 0.5
_PROXIED_SHARE = 0.4
_MATRIX_SHARE = 0.3
_BOUNDED_SHARE = 0.15
_CURSOR_SHARE = 0.4
_LOCAL_SHARE = 0.3
_NAMED_SHARE = 0.6
_PROXIED_REGIONS = 2


def draw_moves(drawn: Options, draws: Draws) -> Options:
    """The same world, or, if it has relays, one in which the home moves."""
    is_relayed = drawn.shape.relays_per_region > 0
    if not (is_relayed and draws.happens("moves", _SHARE)):
        return drawn
    return leaving_some(moved(drawn, draws), draws)


def leaving_some(made: Options, draws: Draws) -> Options:
    """The same world with a home that moves or is lost; in some, records stay where it was."""
    has_local = draws.happens("local-only records of moved homes", _LOCAL_SHARE)
    return partly_local(made, draws, "share of records left behind") if has_local else made


def with_local_only_moves(drawn: Options, draws: Draws) -> Options:
    """A world whose home moves and leaves local-only records behind."""
    return partly_local(with_moves(drawn, draws), draws)


def with_moves(drawn: Options, draws: Draws) -> Options:
    """The same, with relays, and operators who move the home from region to region.

    Writers are in all regions, mostly numbered; those that are not at home are refused. Faults
    wait for the steps of a move.
    """
    relayed = with_relays(drawn, draws)
    if draws.happens("matrix of moves", _MATRIX_SHARE):
        relayed = with_matrix(relayed, draws)
    if draws.happens("bound on loss of moves", _BOUNDED_SHARE):
        relayed = bounded(relayed, draws)
    return moved(relayed, draws)


def moved(relayed: Options, draws: Draws) -> Options:
    """The same world with relays, in which the home moves."""
    relayed = (
        _proxied(relayed) if draws.happens("moves by proxies", _PROXIED_SHARE) else relayed
    )
    has_cursor = draws.happens("cursor over moves", _CURSOR_SHARE)
    are_named = draws.happens("numbered over moves", _NAMED_SHARE)
    shape, knobs = relayed.shape, relayed.knobs
    return attrs.evolve(
        relayed,
        shape=attrs.evolve(shape, writers_count=max(len(shape.regions), shape.writers_count)),
        stream=attrs.evolve(
            relayed.stream,
            partitions=1 if relayed.stream.partitions_added else relayed.stream.partitions,
            cursor_readers=2 if has_cursor else 0,
            is_cursor_shared=draws.happens("shared over moves", 0.5),
        ),
        knobs=attrs.evolve(
            knobs,
            is_target_wiped=False,
            local_only_share=0.0,
            are_writers_named=are_named,
            repeats_share=0.3 if are_named else 0.0,
            moves_rest_s_max=draws.choice("rest between moves", (1.0, 3.0, 6.0)),
            movers_count=draws.choice("movers", (1, 1, 2)),
            move_s_max=draws.choice("longest move", (3.0, 8.0, 8.0)),
            moves_dropped_share=draws.choice("moves dropped", (0.0, 0.0, 0.3)),
        ),
        hazards=attrs.evolve(
            relayed.hazards,
            strikes_per_s=(*relayed.hazards.strikes_per_s, (AMBUSH_MOVE, 0.3)),
        ),
    )


def _proxied(relayed: Options) -> Options:
    """The same, with two regions, each with write proxies."""
    shape = relayed.shape
    nodes = shape.nodes_by_region[:_PROXIED_REGIONS]
    return with_proxies(
        attrs.evolve(relayed, shape=attrs.evolve(shape, nodes_by_region=nodes)), per_region=2
    )
