"""The cost of losing a rack or region: members to replace, bytes to copy, and the time."""

from collections import Counter

import attrs

from sim.scale.spread import Tally
from topology.location import Location
from topology.membership import Membership


@attrs.frozen(kw_only=True)
class LossCost:
    """The cost of repairing a loss. All remaining nodes take part."""

    what: str
    nodes: int
    fragments_hurt: int
    """Members of fragments to be replaced: one for each lost copy."""
    fragments_hurt_share: float
    """The same as a share of all members of all fragments."""
    bytes_to_copy: int
    seconds: float
    """At the given bandwidth of each remaining node, which sends and receives at once."""


@attrs.frozen(kw_only=True)
class RepairConfig:
    """The assumptions of the model."""

    bytes_per_fragment: int = 64 << 20
    """The bytes that one member holds of one fragment."""
    node_bytes_per_s: float = 50e6
    """The part of a node's bandwidth that repair may take."""


def losses(tally: Tally, members: Membership, config: RepairConfig) -> list[LossCost]:
    """The cost of the worst rack and of the worst region."""
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
