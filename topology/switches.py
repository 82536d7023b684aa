"""Switches that operators turn while the cluster runs; they are kept in metadata.

They change where new nodes are placed, and nothing about ledgers that are open: what those
promise is frozen in their own metadata.

Rules: PROTOCOL P5.
"""

from collections.abc import Sequence

import attrs

from topology.errors import NotFoundError
from topology.json_values import Json, structured
from topology.policies.region_aware import RegionAware


@attrs.frozen
class _Document:
    forbidden_regions: Sequence[str] = ()
    durability_disabled: bool = False


@attrs.frozen
class PlacementSwitches:
    """What is forbidden now."""

    forbidden_regions: frozenset[str] = frozenset()
    """Regions in which nothing new is placed; what lies there stays, and is read."""
    is_durability_disabled: bool = False
    """New ensembles need not span regions: for emergencies."""

    @classmethod
    def from_document(cls, document: Json) -> "PlacementSwitches":
        """Read what `document` wrote; InvalidArgumentError if it is something else."""
        given = structured(
            document if isinstance(document, dict) else {}, _Document, "placement switches"
        )
        return cls(frozenset(given.forbidden_regions), given.durability_disabled)

    def document(self) -> dict[str, Json]:
        """As JSON, for metadata."""
        return {
            "forbidden_regions": list[Json](sorted(self.forbidden_regions)),
            "durability_disabled": self.is_durability_disabled,
        }

    def forbidding(self, region: str, known: frozenset[str]) -> "PlacementSwitches":
        """With nothing new in this region; NotFoundError if there is none of this name."""
        if region not in known:
            raise NotFoundError(
                f"there is no region {region!r}; known are {', '.join(sorted(known)) or 'none'}"
            )
        return attrs.evolve(self, forbidden_regions=self.forbidden_regions | {region})

    def allowing(self, region: str) -> "PlacementSwitches":
        """With placement in this region again."""
        return attrs.evolve(self, forbidden_regions=self.forbidden_regions - {region})

    def applied(self, policy: RegionAware) -> RegionAware:
        """The policy under these switches."""
        return attrs.evolve(
            policy,
            disallowed_regions=policy.disallowed_regions | self.forbidden_regions,
            is_durability_disabled=policy.is_durability_disabled or self.is_durability_disabled,
        )
