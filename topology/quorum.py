"""Answers that make an entry durable, and silence that proves it cannot become so.

There is one predicate, `ack`. Its opposite, `block`, is derived from it and from nothing else:
`block(S) = not ack(write_set - S)`. So every ack set meets every blocking set, whatever the
quorums and regions are: if S blocks, the slots outside S are not an ack set, so each ack set
has a member in S.

Sets of ensemble slots are bit masks: slot i is bit i. An ensemble has at most 64 slots.

Rules: PROTOCOL Q1, Q3 and Q4.
"""

import enum
from collections.abc import Sequence

import attrs

from topology.errors import InvalidArgumentError

ENSEMBLE_SIZE_MAX = 64


class Durability(enum.Enum):
    """How it is ensured that an ack set, at least A nodes, spans at least m regions.

    REGIONS: the writer waits for it. COUNT: A is large enough, and nodes are placed so, that no
    A nodes of a write set are in fewer than m regions. (The regions are counted all the same.)
    """

    REGIONS = "regions"
    COUNT = "count"


def ack_quorum_smallest(write_quorum: int, min_regions: int, durability: Durability) -> int:
    """The smallest legal A. COUNT: W - floor(W/m) + 1, so that m - 1 regions never hold it."""
    if durability is Durability.REGIONS or min_regions <= 1:
        return max(1, min_regions)
    return write_quorum - write_quorum // min_regions + 1


@attrs.frozen(kw_only=True)
class QuorumConfig:
    """The frozen quorums of a ledger: E >= W >= A >= m >= 1, checked on construction."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    min_regions: int = 1
    durability: Durability = Durability.REGIONS

    def __attrs_post_init__(self) -> None:
        for name in ("ensemble_size", "write_quorum", "ack_quorum", "min_regions"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.ensemble_size > ENSEMBLE_SIZE_MAX:
            raise InvalidArgumentError(
                f"ensemble_size must be <= {ENSEMBLE_SIZE_MAX}, got {self.ensemble_size}"
            )
        if self.write_quorum > self.ensemble_size:
            raise InvalidArgumentError(
                f"write_quorum {self.write_quorum} exceeds ensemble_size {self.ensemble_size};"
                f" the smallest ensemble that can hold it is {self.write_quorum}"
            )
        if self.min_regions > self.write_quorum:
            raise InvalidArgumentError(
                f"min_regions {self.min_regions} exceeds write_quorum {self.write_quorum}:"
                " a write set cannot span them;"
                f" the smallest write quorum that can is {self.min_regions}"
            )
        smallest = ack_quorum_smallest(self.write_quorum, self.min_regions, self.durability)
        if not smallest <= self.ack_quorum <= self.write_quorum:
            raise InvalidArgumentError(
                f"ack_quorum {self.ack_quorum} is not possible with write_quorum"
                f" {self.write_quorum},"
                f" min_regions {self.min_regions} and durability {self.durability.value!r}:"
                f" the smallest is {smallest}, the largest {self.write_quorum}"
            )

    def __str__(self) -> str:
        return (
            f"E {self.ensemble_size} W {self.write_quorum} A {self.ack_quorum}"
            f" m {self.min_regions} ({self.durability.value})"
        )


class AckRule:
    """`ack` and `block` for one ensemble: the quorums, and the region of each slot.

    Slots outside a write set count for nothing in it.
    """

    def __init__(self, config: QuorumConfig, regions: Sequence[str]) -> None:
        if len(regions) != config.ensemble_size:
            raise InvalidArgumentError(
                f"{len(regions)} nodes for an ensemble of {config.ensemble_size}"
            )
        self.config = config
        self.regions = tuple(regions)
        self._write_masks = tuple(
            sum(1 << slot for slot in self._slots_from(offset))
            for offset in range(len(regions))
        )
        self._region_masks = tuple(
            sum(1 << slot for slot, name in enumerate(regions) if name == region)
            for region in sorted(set(regions))
        )

    def _slots_from(self, offset: int) -> list[int]:
        size = self.config.ensemble_size
        return [(offset + turn) % size for turn in range(self.config.write_quorum)]

    def write_set(self, entry: int) -> tuple[int, ...]:
        """Slots that hold `entry`: W of them, going round the ring from `entry` mod E."""
        return tuple(self._slots_from(entry % self.config.ensemble_size))

    def write_mask(self, entry: int) -> int:
        """The same as a mask."""
        return self._write_masks[entry % len(self._write_masks)]

    def write_masks(self) -> tuple[int, ...]:
        """The masks of all possible write sets, by `entry` mod E."""
        return self._write_masks

    def is_ack(self, entry: int, mask: int) -> bool:
        """Whether those of these slots that are in the write set make the entry durable."""
        return self._is_ack_set(self.write_mask(entry) & mask)

    def is_block(self, entry: int, mask: int) -> bool:
        """Whether the entry cannot become durable without one of these slots."""
        return self.is_block_within(self.write_mask(entry), mask)

    def is_block_within(self, write_mask: int, mask: int) -> bool:
        """Same as `is_block`, for a write set given as a mask."""
        return not self._is_ack_set(write_mask & ~mask)

    def blocks_all(self, mask: int) -> bool:
        """Whether they block every write set: nothing new can become durable without them."""
        return all(self.is_block_within(write_mask, mask) for write_mask in self._write_masks)

    def acks_all(self, mask: int) -> bool:
        """Whether every write set can become durable on these slots alone."""
        return all(self._is_ack_set(write_mask & mask) for write_mask in self._write_masks)

    def _is_ack_set(self, mask: int) -> bool:
        if mask.bit_count() < self.config.ack_quorum:
            return False
        regions_count = 0
        for (
            region_mask
        ) in self._region_masks:  # The data path: cheaper than a sum over a generator.
            if mask & region_mask:
                regions_count += 1
        return regions_count >= self.config.min_regions
