"""Why no ring can adhere: the needs of all write sets, counted over the whole ring.

Each slot is in W of the E write sets. So E write sets need E times as much as one, and each
slot counts at most W times. If even the most even shares that the nodes allow fall short of
that, no order of them helps: that is an obstacle, reported in numbers.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import attrs

from topology.ring.window_rule import Adherence, Label, Limit, WindowRule, shares_dealt


class Obstacle(Protocol):
    """A reason why no ring can adhere, whatever the order of its slots."""

    def told(self, noun: str) -> str:
        """As part of a message; `noun` names a domain, e.g. `region`."""


@attrs.frozen
class TooFewNodes:
    """There are fewer nodes than slots."""

    needed: int
    available: int

    def told(self, noun: str) -> str:  # noqa: ARG002 - It is the same for all domains.
        """The number needed, and the number available."""
        return f"{self.needed} nodes are needed; there are {self.available}"


@attrs.frozen
class TooFewOutside:
    """Too few slots can be outside the fullest domains."""

    limit: Limit
    fullest: tuple[str, ...]
    needed: int
    available: int

    def told(self, noun: str) -> str:
        """The fullest domains, and how many nodes are short outside them."""
        plural = "s" if len(self.fullest) > 1 else ""
        return (
            f"at least {self.needed} nodes must be outside {noun}{plural}"
            f" {' and '.join(self.fullest)}; there are {self.available}:"
            f" {self.needed - self.available} short"
        )


@attrs.frozen
class TooFewBelowCap:
    """Each domain can take only so many slots of the ring, too few in total."""

    share_max: int
    needed: int
    available: int

    def told(self, noun: str) -> str:
        """How many slots one domain can take, and how many nodes are short then."""
        return (
            f"at most {self.share_max} of {self.needed} slots may be in one {noun}, so"
            f" {self.available} nodes can take part: {self.needed - self.available} short"
        )


@attrs.frozen
class TooFewDistinct:
    """The small domains cannot be in enough write sets."""

    domains: int
    needed: int
    available: int

    def told(self, noun: str) -> str:
        """How many domains each write set needs, and the shortage over all write sets."""
        return (
            f"every write set needs nodes in {self.domains} {noun}s: {self.needed} places in"
            f" all, but the small {noun}s have too few nodes and fill {self.available}:"
            f" {self.needed - self.available} short"
        )


def obstacle_of(
    size: int, counts: Mapping[Label, int], rule: WindowRule, wanted: Adherence
) -> Obstacle | None:
    """The first reason that no ring on these nodes can adhere so; None if none is known."""
    domains: Counter[str] = Counter()
    for label, count in counts.items():
        domains[label[0]] += count
    if domains.total() < size:
        return TooFewNodes(size, domains.total())
    shares = Counter(shares_dealt(domains, size))
    return (
        _outside(size, domains, shares, rule, wanted)
        or _below_cap(size, counts, rule, wanted)
        or _distinct(size, shares, rule, wanted)
    )


def _outside(
    size: int,
    domains: Mapping[str, int],
    shares: Counter[str],
    rule: WindowRule,
    wanted: Adherence,
) -> TooFewOutside | None:
    for limit in rule.limits(wanted):
        needed = -(-size * limit.outside_min // min(rule.width, size))
        top = shares.most_common(limit.domains)
        outside = size - sum(share for _, share in top)
        if outside < needed:
            fullest = tuple(sorted(name for name, share in top if share))
            available = sum(count for name, count in domains.items() if name not in fullest)
            return TooFewOutside(limit, fullest, needed, min(available, outside))
    return None


def _below_cap(
    size: int, counts: Mapping[Label, int], rule: WindowRule, wanted: Adherence
) -> TooFewBelowCap | None:
    width = min(rule.width, size)
    domains: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    for label, count in counts.items():
        domains[label[0]] += count
        inner[label[0]] += count > 0
    shares = {
        name: rule.share_max(width, len(domains), wanted, inner=inner[name]) * size // width
        for name in domains
    }
    available = sum(min(shares[name], count) for name, count in domains.items())
    if available >= size:
        return None
    return TooFewBelowCap(max(shares.values()), size, available)


def _distinct(
    size: int, shares: Mapping[str, int], rule: WindowRule, wanted: Adherence
) -> TooFewDistinct | None:
    """A slot is in W write sets, a domain in E at most: even shares are in the most."""
    width = min(rule.width, size)
    domains = rule.domains_min(width, wanted)
    available = sum(min(size, width * share) for share in shares.values())
    needed = size * domains
    return TooFewDistinct(domains, needed, available) if available < needed else None
