"""Worlds with relays in which the home of the stream is lost, and fails over."""

import attrs

from sim.world.apps.failing_over import HOME_LOST
from sim.world.chance import Draws
from sim.world.draws.move_draws import AMBUSH_MOVE, moved
from sim.world.draws.relay_draws import with_matrix, with_relays
from sim.world.options import Options

_MATRIX_SHARE = 0.2
_MOVED_SHARE = 0.3
_EVICTING_SHARE = 0.1


def with_failovers(drawn: Options, draws: Draws) -> Options:
    """The same, with relays; the home is lost or cut off, and operators fail it over."""
    relayed = with_relays(drawn, draws)
    if draws.happens("matrix of failovers", _MATRIX_SHARE):
        relayed = with_matrix(relayed, draws)
    return failed_over(relayed, draws)


def failed_over(relayed: Options, draws: Draws) -> Options:
    """The same world with relays, in which the home is lost again and again, and fails over.

    In some it moves by plan as well.
    """
    made = moved(relayed, draws)
    knobs, strikes = made.knobs, dict(made.hazards.strikes_per_s)
    is_moved = draws.happens("moves between failovers", _MOVED_SHARE)
    is_evicting = draws.happens("evictions and failovers", _EVICTING_SHARE)
    return attrs.evolve(
        made,
        knobs=attrs.evolve(
            knobs,
            moves_rest_s_max=knobs.moves_rest_s_max if is_moved else None,
            relay_evict_bytes=knobs.relay_evict_bytes if is_evicting else None,
            rpo_max_bytes=None,
            rpo_max_s=None,
            failovers_rest_s_max=draws.choice("rest between failovers", (1.0, 4.0)),
            rescuers_count=draws.choice("rescuers", (1, 1, 2)),
            failover_s_max=draws.choice("longest failover", (6.0, 20.0, 20.0)),
            failovers_dropped_share=draws.choice("failovers dropped", (0.0, 0.0, 0.3)),
            failovers_at_once_share=draws.choice("failovers at once", (0.0, 0.3)),
        ),
        hazards=attrs.evolve(
            made.hazards,
            duration_s_max=draws.choice("longest loss", (6.0, 12.0, 20.0)),
            strikes_per_s=tuple({**strikes, AMBUSH_MOVE: 0.1, HOME_LOST: 0.25}.items()),
        ),
    )
