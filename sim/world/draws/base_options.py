"""The base world: three nodes in three regions, a writer and a reader, no faults.

A test that needs a certain world evolves it from this one, and so states only the differences.
"""

from sim.world.options import Hazards, Knobs, Links, Options, WorldShape
from topology.quorum import QuorumConfig

BASE = Options(
    shape=WorldShape(
        nodes_by_region=(("us-east", 1), ("eu-west", 1), ("ap-northeast", 1)),
        quorum=QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2),
        writers_count=1,
        readers_count=1,
    ),
    knobs=Knobs(
        session_timeout_s=6.0,
        segment_bytes=64 << 10,
        journal_file_bytes=1 << 20,
        value_bytes_max=20,
        pipelined_max=1,
        pause_s_max=0.2,
        appends_per_tenure=10,
        rest_s_max=0.5,
    ),
    links=Links(
        latency_s_within=0.0005,
        latency_s_across=0.01,
        jitter=0.0,
        stall_chance=0.0,
        sync_s=0.002,
    ),
    hazards=Hazards(chaos_s=1.0, duration_s_max=1.0, strikes_per_s=()),
)
