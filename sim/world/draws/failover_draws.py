"""Worlds with relays in which the home of the stream is lost, and fails over."""

import attrs

from sim.world.apps.failing_over import (
    HOME_CUT_OFF,
    HOME_HEARS_LATE,
    HOME_LOST,
    HOME_LOST_AGAIN,
    LEASE_CLOCK,
)
from sim.world.chance import Draws
from sim.world.draws.move_draws import AMBUSH_MOVE, leaving_some, moved
from sim.world.draws.relay_draws import CUT_REGIONS, partly_local, with_matrix, with_relays
from sim.world.options import Options

_REGIONS = ("us-east", "eu-west", "ap-northeast")
_MORE_REGIONS = (*_REGIONS, "sa-east", "af-south")
_SHARE = 0.5
_MATRIX_SHARE = 0.2
_MOVED_SHARE = 0.3
_EVICTING_SHARE = 0.1
_STOPPING_SHARE = 0.4

DRIFT_MAX = 0.015
"""Below the margin of leases, `geolog.protocol.isolation_lease.DRIFT`."""


def draw_failovers(drawn: Options, draws: Draws) -> Options:
    """The same world, or, if it has relays, one whose home fails over."""
    is_relayed = drawn.shape.relays_per_region > 0
    is_lost = is_relayed and draws.happens("fails over", _SHARE)
    return leaving_some(failed_over(drawn, draws), draws) if is_lost else drawn


def with_local_only_failovers(drawn: Options, draws: Draws) -> Options:
    """A world whose home is lost, and local-only records with it."""
    return partly_local(with_failovers(drawn, draws), draws)


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
            stops_when_isolated=draws.happens("stops when isolated", _STOPPING_SHARE),
            clock_drift_max=draws.choice("drift of clocks", (0.0, DRIFT_MAX)),
            are_pauses_sleep=draws.happens("pauses are sleep", 0.5),
            other_bytes_share=0.0,  # A number that was left behind may be used again.
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
            strikes_per_s=tuple(
                {**strikes, AMBUSH_MOVE: 0.1, HOME_LOST: 0.1, HOME_CUT_OFF: 0.2}.items()
            ),
        ),
    )


def with_homes_cut_off(options: Options, draws: Draws) -> Options:
    """A world of three regions whose home is cut off while writers append, and fails over.

    Little else happens, so most failovers leave records behind.
    """
    drawn = failed_over(with_relays(options, draws), draws)
    stream, shape = drawn.stream, drawn.shape
    copies = shape.quorum.write_quorum
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            shape,
            nodes_by_region=tuple((region, copies) for region in _REGIONS),
            writers_count=3,
            proxies_count=0,
            relays_per_region=1,
        ),
        stream=attrs.evolve(
            stream,
            partitions=1,
            partitions_added=0,
            seal_after_s_max=None,
            truncation_rest_s_max=None,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            moves_rest_s_max=None,
            relays_after_s=0.0,
            relay_evict_bytes=None,
            stops_when_isolated=False,
            appends_per_tenure=400,
            pause_s_max=0.6,
            pipelined_max=4,
            value_bytes_max=20,
            is_upkeep_hasty=False,
            failovers_rest_s_max=1.0,
            rescuers_count=1,
            failover_s_max=20.0,
            failovers_dropped_share=0.0,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=14.0,
            strikes_per_s=((HOME_CUT_OFF, 0.5), (CUT_REGIONS, 0.1)),
        ),
    )


def with_homes_that_stop(options: Options, draws: Draws) -> Options:
    """The same, and the home takes no appends while it is cut off; clocks drift and sleep."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs,
            stops_when_isolated=True,
            clock_drift_max=DRIFT_MAX,
            are_pauses_sleep=True,
            pause_s_max=0.2,
            # Leases that outlive the search for a home that is gone.
            session_timeout_s=draws.choice("session of homes that stop", (4.0, 12.0)),
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            strikes_per_s=(
                (HOME_CUT_OFF, 0.35),
                (HOME_LOST, 0.15),
                ("pause-process", 0.3),
                ("zombie-writer", 0.2),
            ),
        ),
    )


def with_homes_that_hear_late(options: Options, draws: Draws) -> Options:
    """The same, and a home that is cut off hears late what it asked metadata just before.

    It is cut off for longer than a lease and what a failover takes before.
    """
    drawn = with_homes_that_stop(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(drawn.knobs, session_timeout_s=12.0),
        hazards=attrs.evolve(
            drawn.hazards, duration_s_max=40.0, strikes_per_s=((HOME_HEARS_LATE, 0.5),)
        ),
    )


def with_leases_that_change(options: Options, draws: Draws) -> Options:
    """The same with long leases, which operators change just before they fail the stream over.

    A home that is cut off does not hear of it, and goes by the lease that it has. Clocks by
    which leases are kept jump ahead.
    """
    drawn = with_homes_that_stop(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(drawn.knobs, session_timeout_s=18.0, leases_changed_share=0.6),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=40.0,
            strikes_per_s=((HOME_CUT_OFF, 0.5), (LEASE_CLOCK, 1.0)),
        ),
    )


def with_many_regions(options: Options, draws: Draws) -> Options:
    """A world of four or five regions whose home moves by plan, and is lost again and again.

    Some mirrors are ahead of the new home, and some behind it; regions are away for long.
    """
    drawn = with_homes_cut_off(options, draws)
    copies = drawn.shape.quorum.write_quorum
    count = draws.choice("regions with copies", (4, 5))
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(
            drawn.shape,
            nodes_by_region=tuple((region, copies) for region in _MORE_REGIONS[:count]),
            writers_count=count,
        ),
        knobs=attrs.evolve(
            drawn.knobs,
            moves_rest_s_max=draws.choice("rest between moves of many", (2.0, 6.0)),
            movers_count=1,
            move_s_max=8.0,
            moves_dropped_share=0.0,
            rescuers_count=2,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            strikes_per_s=((HOME_CUT_OFF, 0.3), (HOME_LOST, 0.1), (CUT_REGIONS, 0.2)),
        ),
    )


def with_homes_lost_in_a_row(options: Options, draws: Draws) -> Options:
    """The same for long, and a new home is cut off while the one before it is still away.

    So a region comes back that has missed two failovers. Readers follow in all regions.
    """
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(
        drawn,
        shape=attrs.evolve(drawn.shape, readers_count=3),
        knobs=attrs.evolve(
            drawn.knobs,
            pause_s_max=0.3,
            segment_bytes=1 << 20,
            failovers_rest_s_max=0.5,
            rescuers_count=3,  # One of them is in the region that is left.
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            chaos_s=40.0,
            duration_s_max=90.0,  # Most are away until faults end.
            strikes_per_s=((HOME_CUT_OFF, 0.3), (HOME_LOST_AGAIN, 5.0)),
        ),
    )


def with_mirrors_begun_again(options: Options, draws: Draws) -> Options:
    """A world whose home moves and is lost, and operators begin mirrors again meanwhile."""
    drawn = with_homes_cut_off(options, draws)
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs,
            moves_rest_s_max=draws.choice("rest between moves and resyncs", (None, 2.0, 6.0)),
            resyncs_rest_s_max=draws.choice("rest between resyncs", (0.5, 2.0, 5.0)),
        ),
    )


def with_resyncs(options: Options, draws: Draws) -> Options:
    """The same; an operator who looked before a failover takes the new home for a mirror."""
    drawn = with_homes_cut_off(options, draws)
    knobs = attrs.evolve(drawn.knobs, resyncs_share=0.7, rescuers_count=1)
    return attrs.evolve(drawn, knobs=knobs)
