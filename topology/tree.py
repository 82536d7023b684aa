"""The nodes of a cluster by region and rack: a value; a change returns a new tree.

A change copies one rack, one region and the list of regions, so that snapshots of ten thousand
nodes share nearly everything. Frequently needed facts of a region (its racks in order, weights)
are computed once and kept with it.
"""

import random
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property

import attrs

from topology.draws import capped_weights, running_sums, shuffled, shuffled_by_weight
from topology.errors import InvalidArgumentError
from topology.location import Location


@attrs.frozen(order=True)
class TreeNode:
    """A node, its location, and its free space (0: unknown)."""

    node: str
    location: Location
    free_bytes: int = attrs.field(default=0, order=False)


@attrs.frozen
class Weighting:
    """Draw nodes by free space; one counts for at most this multiple of the median."""

    multiple_max: float


@attrs.frozen
class _WeighedRack:
    nodes: tuple[TreeNode, ...]
    weights_summed: tuple[float, ...]


@attrs.frozen(slots=False)
class Region:
    """The racks of a region, and the nodes in each, sorted."""

    racks: Mapping[str, tuple[TreeNode, ...]]

    @cached_property
    def count(self) -> int:
        """Number of its nodes."""
        return sum(len(nodes) for nodes in self.racks.values())

    @cached_property
    def rack_names(self) -> tuple[str, ...]:
        """Its racks, sorted."""
        return tuple(sorted(self.racks))

    @cached_property
    def _weighed(self) -> dict[float, tuple[dict[str, _WeighedRack], tuple[float, ...]]]:
        return {}

    def nodes(self) -> Iterator[TreeNode]:
        """All its nodes, by rack and name."""
        for rack in self.rack_names:
            yield from self.racks[rack]

    def deal(
        self, rng: random.Random, weighting: Weighting | None, first_rack: str | None = None
    ) -> Iterator[TreeNode]:
        """Its nodes at random, racks taking turns, `first_rack` first if it has nodes."""
        if weighting is None:
            order = _with_first(shuffled(self.rack_names, rng), first_rack, self.racks)
            piles = (shuffled(self.racks[rack], rng) for rack in order)
        else:
            racks, sums = self._weigh(weighting)
            drawn = shuffled_by_weight(self.rack_names, sums, rng)
            piles = (
                shuffled_by_weight(racks[rack].nodes, racks[rack].weights_summed, rng)
                for rack in _with_first(drawn, first_rack, self.racks)
            )
        yield from _in_turns(piles)

    def _weigh(self, weighting: Weighting) -> tuple[dict[str, _WeighedRack], tuple[float, ...]]:
        found = self._weighed.get(weighting.multiple_max)
        if found is None:
            nodes = list(self.nodes())
            values = capped_weights([node.free_bytes for node in nodes], weighting.multiple_max)
            weights = {node.node: value for node, value in zip(nodes, values, strict=True)}
            racks = {
                rack: _WeighedRack(
                    self.racks[rack],
                    running_sums([weights[node.node] for node in self.racks[rack]]),
                )
                for rack in self.rack_names
            }
            sums = running_sums([racks[rack].weights_summed[-1] for rack in self.rack_names])
            found = self._weighed[weighting.multiple_max] = (racks, sums)
        return found


def _with_first(
    racks: Iterator[str], first: str | None, known: Container[str]
) -> Iterator[str]:
    """The racks in their order, but with the first in front, if known; drawn one by one."""
    if first is None or first not in known:
        yield from racks
        return
    yield first
    for rack in racks:
        if rack != first:
            yield rack


def _in_turns(piles: Iterator[Iterator[TreeNode]]) -> Iterator[TreeNode]:
    """One of each pile, then the next of each; a pile is begun when its turn first comes."""
    begun: list[Iterator[TreeNode]] = []
    for pile in piles:
        yield next(pile)
        begun.append(pile)
    while begun:
        left = []
        for pile in begun:
            node = next(pile, None)
            if node is not None:
                yield node
                left.append(pile)
        begun = left


@attrs.frozen(slots=False)
class Tree:
    """Regions, each with its racks; every location has the same depth."""

    regions: Mapping[str, Region]

    @classmethod
    def of(cls, nodes: Iterable[TreeNode]) -> "Tree":
        """Build it; InvalidArgumentError if depths differ, or a node is given twice."""
        racks: dict[str, dict[str, list[TreeNode]]] = {}
        seen: set[str] = set()
        first: TreeNode | None = None
        for node in sorted(nodes):
            if node.node in seen:
                raise InvalidArgumentError(f"duplicate node {node.node!r}")
            seen.add(node.node)
            first = first or node
            _check_depth(node, first.location)
            racks.setdefault(node.location.region, {}).setdefault(
                node.location.rack, []
            ).append(node)
        return cls(
            {
                region: Region({rack: tuple(racks[region][rack]) for rack in racks[region]})
                for region in sorted(racks)
            }
        )

    @cached_property
    def count(self) -> int:
        """Number of nodes."""
        return sum(region.count for region in self.regions.values())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of nodes in each region, regions sorted."""
        return {name: self.regions[name].count for name in sorted(self.regions)}

    def nodes(self) -> Iterator[TreeNode]:
        """All nodes, by region, rack and name."""
        for name in sorted(self.regions):
            yield from self.regions[name].nodes()

    def with_node(self, node: TreeNode) -> "Tree":
        """The tree with this node added; it must not contain it yet."""
        for region in self.regions.values():
            for nodes in region.racks.values():
                _check_depth(node, nodes[0].location)
                break
            break
        racks = dict(self._racks_of(node.location.region))
        held = racks.get(node.location.rack, ())
        racks[node.location.rack] = tuple(sorted((*held, node)))
        return self._with_racks(node.location.region, racks)

    def without(self, node: TreeNode) -> "Tree":
        """The tree without this node; the same tree if it lacks the node."""
        racks = dict(self._racks_of(node.location.region))
        held = racks.get(node.location.rack, ())
        left = tuple(one for one in held if one.node != node.node)
        if len(left) == len(held):
            return self
        if left:
            racks[node.location.rack] = left
        else:
            del racks[node.location.rack]
        return self._with_racks(node.location.region, racks)

    def without_regions(self, names: Iterable[str]) -> "Tree":
        """The tree without these regions."""
        lost = frozenset(names)
        return Tree({name: one for name, one in self.regions.items() if name not in lost})

    def without_rack(self, location: Location) -> "Tree":
        """The tree without the nodes of one rack."""
        racks = dict(self._racks_of(location.region))
        if racks.pop(location.rack, None) is None:
            return self
        return self._with_racks(location.region, racks)

    def _racks_of(self, region: str) -> Mapping[str, tuple[TreeNode, ...]]:
        found = self.regions.get(region)
        return {} if found is None else found.racks

    def _with_racks(self, name: str, racks: Mapping[str, tuple[TreeNode, ...]]) -> "Tree":
        regions = dict(self.regions)
        if racks:
            regions[name] = Region(racks)
        else:
            regions.pop(name, None)
        return Tree(regions)


def _check_depth(node: TreeNode, other: Location) -> None:
    if node.location.depth != other.depth:
        raise InvalidArgumentError(
            f"location {str(node.location)!r} of node {node.node!r} has"
            f" {node.location.depth} parts, others have {other.depth}, e.g. {str(other)!r}:"
            " give all nodes locations of the same depth"
        )
