"""What a lost rack or region means: fragments hurt, bytes to copy, and how long that takes."""

from collections import Counter

import attrs

from sim.scale.spread import Tally
from topology.location import Location
from topology.membership import Membership


@attrs.frozen(kw_only=True)
class LossCost:
    """The cost of making up for what was lost. All nodes that are left take part in it."""

    what: str
    nodes: int
    fragments_hurt: int
    """Members of fragments to be replaced: one for each copy that was there."""
    fragments_hurt_share: float
    """As a part of all members of all fragments."""
    bytes_to_copy: int
    seconds: float
    """At the bandwidth given for each node that is left, sending and receiving at once."""


@attrs.frozen(kw_only=True)
class RepairConfig:
    """What the model takes for granted."""

    bytes_per_fragment: int = 64 << 20
    """The bytes that one member holds of one fragment."""
    node_bytes_per_s: float = 50e6
    """What repair may take of a node's bandwidth."""


def losses(tally: Tally, members: Membership, config: RepairConfig) -> list[LossCost]:
    """The worst rack and the worst region to lose."""
    regions: Counter[str] = Counter()
    racks: Counter[Location] = Counter()
    sizes: Counter[str | Location] = Counter()
    for one in members.members.values():
        count = tally.by_node.get(one.node, 0)
        regions[one.location.region] += count
        racks[one.location] += count
        sizes.update((one.location.region, one.location))
    rack, rack_hurt = max(racks.items(), key=lambda item: (item[1], item[0]))
    region, region_hurt = max(regions.items(), key=lambda item: (item[1], item[0]))
    total = sum(tally.by_node.values())
    everyone = len(members.members)
    return [
        _loss(f"rack {rack}", sizes[rack], rack_hurt, total, everyone, config),
        _loss(f"region {region}", sizes[region], region_hurt, total, everyone, config),
    ]


def _loss(
    what: str, nodes: int, hurt: int, total: int, everyone: int, config: RepairConfig
) -> LossCost:
    bytes_to_copy = hurt * config.bytes_per_fragment
    left = everyone - nodes
    return LossCost(
        what=what,
        nodes=nodes,
        fragments_hurt=hurt,
        fragments_hurt_share=hurt / total if total else 0.0,
        bytes_to_copy=bytes_to_copy,
        seconds=bytes_to_copy / (left * config.node_bytes_per_s) if left else float("inf"),
    )
