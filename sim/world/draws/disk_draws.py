"""Worlds made for disks: new files, two disks, unreadable sectors, repeated damage."""

import attrs

from sim.world.chance import Draws
from sim.world.endings import ENDINGS
from sim.world.options import Options

CREATED = "ambush-create"
UNREADABLE = "unreadable-sector"
"""Each strikes in the worlds made for it, and in no others."""

_BEGINNING_SHARE = 0.05
_APART_SHARE = 0.05
_UNREADABLE_SHARE = 0.05
_TWICE_SHARE = 0.05


def draw_disks(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for new journal files or for two disks."""
    made = draws.one_of(
        "world made for disks",
        [(_BEGINNING_SHARE, with_files_begun), (_APART_SHARE, with_disks_apart)],
    )
    return made(drawn) if made else drawn


def draw_damage(drawn: Options, draws: Draws) -> Options:
    """The same world, or one made for damage.

    Worlds in which faults only end processes, or a region goes for good, stay as they are.
    """
    are_all_endings = ENDINGS.issuperset(kind for kind, _ in drawn.hazards.strikes_per_s)
    if are_all_endings or drawn.knobs.is_region_exchanged:
        return drawn
    made = draws.one_of(
        "world made for damage",
        [(_UNREADABLE_SHARE, with_unreadable_sectors), (_TWICE_SHARE, with_damage_twice)],
    )
    return made(drawn) if made else drawn


def with_files_begun(drawn: Options) -> Options:
    """The same, but journal files fill up soon, and nodes lose power as they begin the next.

    A sync takes a large part of an append's time, so an answer may come before a sync ends.
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
            strikes_per_s=((CREATED, 2.0),),
            lies_in_wait=False,
        ),
    )


def with_disks_apart(drawn: Options) -> Options:
    """The same, but nodes have two disks, one of them slow, and write to both at once."""
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


def with_unreadable_sectors(drawn: Options) -> Options:
    """The same, but some sectors of disks cannot be read."""
    strikes = (*drawn.hazards.strikes_per_s, (UNREADABLE, 2.0))
    return attrs.evolve(drawn, hazards=attrs.evolve(drawn.hazards, strikes_per_s=strikes))


def with_damage_twice(drawn: Options) -> Options:
    """The same, but at the end a file is damaged, repaired and settled, then damaged again.

    Upkeep is not hasty: hasty nodes would have compacted the file away by then. Segments are
    long: ledgers that were allocated ahead keep doubt from being settled, so there are few.
    """
    knobs = attrs.evolve(
        drawn.knobs, is_damaged_twice=True, is_upkeep_hasty=False, segment_bytes=1 << 20
    )
    return attrs.evolve(drawn, knobs=knobs)
