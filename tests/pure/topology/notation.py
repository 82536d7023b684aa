"""Quorums on one line, for tests."""

from topology.quorum import Durability, QuorumConfig


def quorum_of(text: str) -> QuorumConfig:
    """`E/W/A m2`, or `E/W/A m2 count`."""
    sizes, regions, *kind = text.split()
    ensemble, write, ack = (int(size) for size in sizes.split("/"))
    return QuorumConfig(
        ensemble_size=ensemble,
        write_quorum=write,
        ack_quorum=ack,
        min_regions=int(regions[1:]),
        durability=Durability(kind[0]) if kind else Durability.REGIONS,
    )
