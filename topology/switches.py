"""Switches that operators flip while the cluster runs; metadata holds them.

They affect where new nodes are placed, and nothing about open ledgers, whose promises are
frozen in their own metadata.

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
    """The present switches."""

    forbidden_regions: frozenset[str] = frozenset()
    """Regions in which nothing new is placed; existing entries stay, and are read."""
    is_durability_disabled: bool = False
    """New ensembles need not span regions: for emergencies."""

    @classmethod
    def from_document(cls, document: Json) -> "PlacementSwitches":
        """Parse the output of `document`; InvalidArgumentError for anything else."""
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
        """Forbid placement in this region; NotFoundError if there is no such region."""
        if region not in known:
            raise NotFoundError(
                f"unknown region {region!r}; known regions:"
                f" {', '.join(sorted(known)) or 'none'}"
            )
        return attrs.evolve(self, forbidden_regions=self.forbidden_regions | {region})

    def allowing(self, region: str) -> "PlacementSwitches":
        """Allow placement in this region again."""
        return attrs.evolve(self, forbidden_regions=self.forbidden_regions - {region})

    def applied(self, policy: RegionAware) -> RegionAware:
        """The policy under these switches."""
        return attrs.evolve(
            policy,
            disallowed_regions=policy.disallowed_regions | self.forbidden_regions,
            is_durability_disabled=policy.is_durability_disabled or self.is_durability_disabled,
        )
