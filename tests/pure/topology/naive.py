"""A second implementation of the quorum rules, with sets, too plain to be wrong."""

from topology.quorum import QuorumConfig


def naive_write_set(config: QuorumConfig, entry: int) -> set[int]:
    return {(entry + turn) % config.ensemble_size for turn in range(config.write_quorum)}


def naive_ack(config: QuorumConfig, layout: str, entry: int, slots: set[int]) -> bool:
    """Whether these slots, of which `layout` has the regions, make the entry durable."""
    counted = slots & naive_write_set(config, entry)
    regions = {layout[slot] for slot in counted}
    return len(counted) >= config.ack_quorum and len(regions) >= config.min_regions


def naive_block(config: QuorumConfig, layout: str, entry: int, slots: set[int]) -> bool:
    """Whether the rest of the write set is not an ack set."""
    return not naive_ack(config, layout, entry, naive_write_set(config, entry) - slots)
