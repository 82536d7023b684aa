"""Seeds that once broke a law, with the options they drew then; each defect is fixed."""

import attrs
import pytest

from sim.histories.run import run_seed
from sim.world.draws.base_options import BASE
from sim.world.options import Hazards, WorldShape
from sim.world.placement_knobs import PlacementKnobs
from sim.world.stream_knobs import StreamKnobs
from topology.quorum import QuorumConfig
from topology.stream_policy import PolicyKind

KEPT = {
    "a follower was told of a gap that lay before its start": (
        3000084,
        attrs.evolve(
            BASE,
            shape=WorldShape(
                nodes_by_region=(("us-east", 2), ("eu-west", 2), ("ap-northeast", 2)),
                quorum=QuorumConfig(
                    ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=1
                ),
                writers_count=1,
                readers_count=2,
            ),
            knobs=attrs.evolve(
                BASE.knobs,
                session_timeout_s=2.0,
                segment_bytes=65536,
                journal_file_bytes=1 << 20,
                value_bytes_max=20000,
                pipelined_max=40,
                pause_s_max=0.1,
                appends_per_tenure=400,
                rest_s_max=0.5,
                spread_s_max=0.05,
                are_writers_named=True,
                member_away_s=2.0,
                other_bytes_share=0.3,
                headers_share=0.3,
            ),
            links=attrs.evolve(
                BASE.links,
                latency_s_within=0.002,
                latency_s_across=0.02,
                jitter=0.1,
                sync_s=0.002,
            ),
            hazards=Hazards(
                chaos_s=20.0,
                duration_s_max=60.0,
                strikes_per_s=(("ambush-member", 0.5), ("power-loss-node", 0.05)),
                lies_in_wait=False,
            ),
            stream=StreamKnobs(
                partitions=2,
                partitions_added=1,
                segment_age_s=3600.0,
                retention_s=10.0,
                retention_bytes=200000,
                retention_every_s=1.0,
                truncation_rest_s_max=1.0,
                keyed_share=1.0,
                expecting_share=0.2,
                placed_share=0.3,
            ),
            placement=PlacementKnobs(
                policy=PolicyKind.RACK_AWARE,
                survive="1 node",
                repair_rest_s_max=2.0,
                repair_s_max=20.0,
            ),
        ),
    ),
    "an owner deposed during its takeover mistook a trim by others for damage": (
        100218,
        attrs.evolve(
            BASE,
            shape=WorldShape(
                nodes_by_region=(("us-east", 1), ("eu-west", 2)),
                quorum=QuorumConfig(
                    ensemble_size=3, write_quorum=3, ack_quorum=3, min_regions=2
                ),
                writers_count=3,
                readers_count=1,
            ),
            knobs=attrs.evolve(
                BASE.knobs,
                session_timeout_s=2.0,
                journal_file_bytes=8 << 20,
                value_bytes_max=1000,
                pause_s_max=0.02,
            ),
            links=attrs.evolve(BASE.links, latency_s_across=0.02, jitter=0.1, sync_s=0.0002),
            hazards=Hazards(
                chaos_s=20.0,
                duration_s_max=8.0,
                strikes_per_s=(("pause-process", 0.2), ("power-loss-node", 0.5)),
                lies_in_wait=True,
            ),
            stream=StreamKnobs(
                segment_age_s=1.0,
                retention_s=3.0,
                retention_every_s=1.0,
                truncation_rest_s_max=1.0,
                keyed_share=1.0,
                placed_share=0.3,
                reader_rest_s_max=1.0,
            ),
        ),
    ),
    "the end of a stream was read from a segment that was trimmed meanwhile": (
        100412,
        attrs.evolve(
            BASE,
            shape=WorldShape(
                nodes_by_region=(("us-east", 2), ("eu-west", 3)),
                quorum=QuorumConfig(
                    ensemble_size=4, write_quorum=4, ack_quorum=4, min_regions=1
                ),
                writers_count=3,
                readers_count=1,
            ),
            knobs=attrs.evolve(
                BASE.knobs,
                session_timeout_s=2.0,
                value_bytes_max=1000,
                pipelined_max=40,
                appends_per_tenure=40,
            ),
            links=attrs.evolve(
                BASE.links,
                latency_s_within=0.0001,
                latency_s_across=0.001,
                jitter=0.1,
                stall_chance=0.02,
                sync_s=0.0002,
            ),
            hazards=Hazards(
                chaos_s=10.0,
                duration_s_max=12.0,
                strikes_per_s=(("kill-node", 0.2), ("wrong-disk", 0.5)),
            ),
            stream=StreamKnobs(
                retention_s=10.0,
                retention_bytes=2000,
                retention_every_s=1.0,
                truncation_rest_s_max=1.0,
                answers="received",
                keyed_share=1.0,
                placed_share=0.3,
                reader_rest_s_max=0.1,
            ),
        ),
    ),
    "a partition added during the seal of its stream was born unsealed": (
        100063,
        attrs.evolve(
            BASE,
            shape=attrs.evolve(
                BASE.shape,
                nodes_by_region=(("us-east", 2), ("eu-west", 1), ("ap-northeast", 1)),
                quorum=QuorumConfig(
                    ensemble_size=4, write_quorum=3, ack_quorum=3, min_regions=2
                ),
            ),
            knobs=attrs.evolve(
                BASE.knobs,
                pipelined_max=40,
                appends_per_tenure=400,
                rest_s_max=20.0,
                is_upkeep_hasty=True,
                is_room_tight=True,
                are_writers_named=True,
            ),
            links=attrs.evolve(
                BASE.links, latency_s_within=0.0001, latency_s_across=0.1, jitter=0.1
            ),
            hazards=Hazards(chaos_s=10.0, duration_s_max=4.0, strikes_per_s=()),
            stream=StreamKnobs(
                partitions=2,
                partitions_added=2,
                segment_age_s=1.0,
                retention_bytes=2000,
                retention_every_s=5.0,
                truncation_rest_s_max=4.0,
                seal_after_s_max=20.0,
                has_transactions=True,
                placed_share=0.6,
            ),
        ),
    ),
    "the end of a deleted stream was read from a segment of its successor": (
        33,
        attrs.evolve(
            BASE,
            shape=WorldShape(
                nodes_by_region=(("us-east", 2), ("eu-west", 2), ("ap-northeast", 1)),
                quorum=QuorumConfig(ensemble_size=5, write_quorum=5, ack_quorum=2),
                writers_count=2,
                readers_count=2,
            ),
            knobs=attrs.evolve(BASE.knobs, value_bytes_max=1000, rest_s_max=20.0),
            links=attrs.evolve(
                BASE.links, latency_s_across=0.001, jitter=1.0, stall_chance=0.02, sync_s=0.02
            ),
            hazards=Hazards(
                chaos_s=10.0, duration_s_max=1.0, strikes_per_s=(("isolate-region", 0.5),)
            ),
            stream=StreamKnobs(
                partitions=2,
                retention_every_s=5.0,
                answers="received",
                keyed_share=1.0,
                has_transactions=True,
                placed_share=0.3,
                reader_rest_s_max=0.1,
                writer_retention_s=2.0,
                deletion_rest_s_max=2.0,
            ),
            placement=PlacementKnobs(
                policy=PolicyKind.ZONE_AWARE, repair_rest_s_max=0.5, repair_s_max=20.0
            ),
        ),
    ),
}
"""By the defect."""


@pytest.mark.parametrize("what", KEPT)
def test_a_seed_that_once_broke_a_law_keeps_all_laws(what: str) -> None:
    seed, options = KEPT[what]
    assert run_seed(seed, options=options).violations == []
