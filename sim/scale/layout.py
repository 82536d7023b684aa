"""The layout of a large cluster: regions of equal racks of equal nodes."""

import attrs

from topology.errors import InvalidArgumentError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse

GIB = 1 << 30


@attrs.frozen(kw_only=True)
class Layout:
    """The number of regions, of racks in each, and of nodes in all."""

    nodes: int = 10_000
    regions: int = 20
    racks_per_region: int = 50

    def __attrs_post_init__(self) -> None:
        racks = self.regions * self.racks_per_region
        if min(self.regions, self.racks_per_region) < 1 or self.nodes < racks:
            raise InvalidArgumentError(
                f"{self.nodes} nodes do not fit {self.regions} regions of"
                f" {self.racks_per_region} racks each: the fewest are {max(racks, 1)}"
            )

    def location(self, number: int) -> Location:
        """The location of a node, by its number: racks are filled in turns."""
        rack, region = divmod(number, self.regions)
        return Location(f"region-{region:02}", f"rack-{rack % self.racks_per_region:02}")

    def membership(self, *, is_weighted: bool) -> Membership:
        """All nodes as writable; if weighted, racks differ in free space up to threefold."""
        config = MembershipConfig(default_location=Location("unknown", "unknown"))
        return Membership.of(
            config,
            (
                KnownNode(
                    node=f"node-{number:05}",
                    location=self.location(number),
                    state=NodeUse.WRITABLE,
                    free_bytes=self._free_bytes(number) if is_weighted else 0,
                )
                for number in range(self.nodes)
            ),
        )

    def _free_bytes(self, number: int) -> int:
        rack = number // self.regions % self.racks_per_region
        return (1 + rack % 3) * 100 * GIB
