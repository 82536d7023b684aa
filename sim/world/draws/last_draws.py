"""What a seed draws behind all else, so that whatever it drew before stays as it was."""

from random import Random

import attrs

from sim.world.draws.clock_draws import FAR, STORE_CLOCK
from sim.world.draws.damage_draws import UNREADABLE
from sim.world.draws.owner_draws import LOST_EARLY
from sim.world.draws.session_draws import STRUCK_WITH_SESSIONS
from sim.world.options import Options

_CREATED = "ambush-create"
_SLOW_CLIENT = "ambush-answers"
_BEGINNING_SHARE = 0.05
_APART_SHARE = 0.05
_OTHER_BYTES_SHARE = 0.3
_REPEATING_SHARE = 0.5
_REPEATS_SHARE = 0.3

STRUCK_LAST = (
    frozenset({_CREATED, LOST_EARLY, FAR, STORE_CLOCK, UNREADABLE}) | STRUCK_WITH_SESSIONS
)
"""Faults drawn here, or with owners, clocks, damage or sessions, and nowhere else."""


def draw_last(drawn: Options, rng: Random) -> Options:
    """The same world, with what is drawn last of its parts."""
    disks_per_node, window_records = rng.choice((1, 1, 1, 2)), rng.choice((1, 2))
    knobs = attrs.evolve(drawn.knobs, disks_per_node=disks_per_node)
    are_clients_slow = any(kind == _SLOW_CLIENT for kind, _ in drawn.hazards.strikes_per_s)
    if knobs.is_room_tight and not are_clients_slow:
        # Of records of many sizes such a window holds some, and a run is of more than that.
        run = max(10, knobs.pipelined_max)
        knobs = attrs.evolve(knobs, writer_window_records=window_records, pipelined_max=run)
    if knobs.are_writers_named and not drawn.stream.may_forget_writers:
        knobs = attrs.evolve(knobs, other_bytes_share=_OTHER_BYTES_SHARE)
    knobs = attrs.evolve(knobs, headers_share=rng.choice((0.0, 0.0, 0.3)))
    return with_repeats(attrs.evolve(drawn, knobs=knobs))


def with_repeats(drawn: Options) -> Options:
    """The same world, in which named writers may send again what was answered, at any time.

    Drawn by what the world is, so that nothing else moves.
    """
    is_repeating = Random(f"{drawn}/repeats").random() < _REPEATING_SHARE
    share = _REPEATS_SHARE if drawn.knobs.are_writers_named and is_repeating else 0.0
    return attrs.evolve(drawn, knobs=attrs.evolve(drawn.knobs, repeats_share=share))


def draw_last_strikes(drawn: Options, rng: Random) -> Options:
    """The same world, or one that is made for one thing of what disks do."""
    drawn_share = rng.random()
    if drawn_share < _BEGINNING_SHARE:
        return with_files_begun(drawn)
    if drawn_share < _BEGINNING_SHARE + _APART_SHARE:
        return with_disks_apart(drawn)
    return drawn


def with_files_begun(drawn: Options) -> Options:
    """The same where journal files are soon full, and nodes lose power as they begin the next.

    Syncs take as long as a good part of an append, so that an answer may come before one ends.
    """
    return attrs.evolve(
        drawn,
        knobs=attrs.evolve(
            drawn.knobs,
            segment_bytes=1 << 20,
            journal_file_bytes=1 << 20,
            value_bytes_max=20_000,
            pipelined_max=10,
            pause_s_max=0.02,
            spread_s_max=0.0,
            appends_per_tenure=400,
            rest_s_max=0.5,
        ),
        links=attrs.evolve(drawn.links, latency_s_across=0.001, stall_chance=0.0, sync_s=0.02),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=1.0,
            strikes_per_s=((_CREATED, 2.0),),
            lies_in_wait=False,
        ),
    )


def with_disks_apart(drawn: Options) -> Options:
    """The same where nodes have two disks, of which one is slow, and write to both at once."""
    partitions = max(3, drawn.stream.partitions)
    return attrs.evolve(
        drawn,
        stream=attrs.evolve(drawn.stream, partitions=partitions, keyed_share=1.0),
        knobs=attrs.evolve(
            drawn.knobs,
            disks_per_node=2,
            pipelined_max=40,
            value_bytes_max=1000,
            pause_s_max=0.02,
            appends_per_tenure=400,
            rest_s_max=0.5,
        ),
        hazards=attrs.evolve(
            drawn.hazards,
            duration_s_max=4.0,
            strikes_per_s=(("power-loss-node", 0.1), ("slow-disk", 1.0)),
            lies_in_wait=False,
        ),
    )
