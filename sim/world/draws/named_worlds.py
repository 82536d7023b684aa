"""Worlds of one kind, by name: seeds that all draw relays, for one, or homes that move."""

from collections.abc import Callable

from sim.world.chance import Draws
from sim.world.draws.drawing import draw_options
from sim.world.draws.failover_draws import (
    with_failovers,
    with_homes_lost_in_a_row,
    with_homes_that_hear_late,
    with_homes_that_stop,
    with_leases_that_change,
    with_local_only_failovers,
    with_many_regions,
    with_mirrors_begun_again,
)
from sim.world.draws.move_draws import with_local_only_moves, with_moves
from sim.world.draws.relay_draws import (
    with_local_only,
    with_settings_changed,
    with_some_relays,
)
from sim.world.draws.small_relay_draws import with_small_relays
from sim.world.options import Options

WORLDS: dict[str, Callable[[Options, Draws], Options]] = {
    "relays": with_some_relays,
    "small-relays": with_small_relays,
    "local-only": with_local_only,
    "settings": with_settings_changed,
    "moves": with_moves,
    "local-only-moves": with_local_only_moves,
    "failovers": with_failovers,
    "local-only-failovers": with_local_only_failovers,
    "homes-that-stop": with_homes_that_stop,
    "homes-that-hear-late": with_homes_that_hear_late,
    "leases-that-change": with_leases_that_change,
    "many-regions": with_many_regions,
    "homes-lost-in-a-row": with_homes_lost_in_a_row,
    "mirrors-begun-again": with_mirrors_begun_again,
}


def options_of_world(world: str, seed: int, fault_kinds: tuple[str, ...]) -> Options:
    """The options that a seed draws among worlds of this kind."""
    draws = Draws(seed)
    return WORLDS[world](draw_options(draws, fault_kinds), draws)
