"""Small worlds with relays: the faults of the relay matrix, in a third of the processor's time.

A large world spends most of its time on what is no relay's: entries of a stream that all nodes
have stored, a second stream, upkeep, and waits. Here a history has one writer and one reader,
as few nodes as its quorums need, short sessions, and faults that are as many in a third of the
time. All faults of relays and all settings of the stream are drawn as in a large world.
"""

import attrs

from sim.world.chance import Draws
from sim.world.draws.relay_draws import with_matrix, with_more_settings, with_relays
from sim.world.options import Options
from topology.quorum import QuorumConfig

CHAOS_S = 7.0
DURATION_S_MAX = 1.5
DENSER = 2.5
"""How much more often faults strike than in large worlds."""

_REGIONS = ("us-east", "eu-west", "ap-northeast")
_SESSION_S = 1.0
_SECOND_STREAM_SHARE = 0.15
_WIPED_SHARE = 0.05


def with_small_relays(drawn: Options, draws: Draws) -> Options:
    """A small world with relays, the faults of links, and changes of settings in some."""
    relayed = with_more_settings(with_matrix(with_relays(drawn, draws), draws), draws)
    return smaller(relayed, draws)


def smaller(relayed: Options, draws: Draws) -> Options:
    """The same world with relays, of the fewest processes, and in less time."""
    stream, knobs, hazards = relayed.stream, relayed.knobs, relayed.hazards
    copies = draws.choice("copies in a small world", (2, 2, 3))
    regions = _REGIONS[: draws.choice("regions of a small world", (2, 2, 2, 3))]
    has_second = draws.happens("second stream of a small world", _SECOND_STREAM_SHARE)
    is_wiped = draws.happens("target of a small world wiped", _WIPED_SHARE)
    seal_s = draws.choice("seal in a small world", (None, None, None, CHAOS_S))
    is_bounded_in_bytes = knobs.rpo_max_bytes is not None
    return attrs.evolve(
        relayed,
        shape=attrs.evolve(
            relayed.shape,
            nodes_by_region=tuple((region, copies) for region in regions),
            quorum=QuorumConfig(
                ensemble_size=copies, write_quorum=copies, ack_quorum=2, min_regions=1
            ),
            writers_count=1,
            readers_count=1,
            relays_per_region=2,
        ),
        stream=attrs.evolve(
            stream,
            partitions=draws.choice("partitions of a small world", (1, 1, 2)),
            partitions_added=0
            if is_bounded_in_bytes
            else draws.choice("partitions added to a small world", (0, 0, 1)),
            growth_rest_s_max=CHAOS_S / 2,
            truncation_rest_s_max=draws.choice(
                "truncations in a small world", (None, 0.3, 1.0)
            ),
            deletion_rest_s_max=2.0 if has_second else None,
            seal_after_s_max=None if is_wiped else seal_s,
        ),
        knobs=attrs.evolve(
            knobs,
            session_timeout_s=_SESSION_S,
            appends_per_tenure=draws.choice("tenures in a small world", (5, 20, 100)),
            pause_s_max=0.3,
            rest_s_max=0.5,
            relays_after_s=draws.choice("relays of a small world after", (0.0, 0.0, 2.0)),
            settings_rest_s_max=None if knobs.settings_rest_s_max is None else 1.0,
            is_target_wiped=is_wiped,
            is_upkeep_hasty=False,
            disks_per_node=1,
        ),
        links=attrs.evolve(
            relayed.links,
            latency_s_across=draws.choice("distance in a small world", (0.001, 0.02, 0.05)),
        ),
        hazards=attrs.evolve(
            hazards,
            chaos_s=CHAOS_S,
            duration_s_max=DURATION_S_MAX,
            strikes_per_s=tuple((kind, DENSER * rate) for kind, rate in hazards.strikes_per_s),
        ),
    )
