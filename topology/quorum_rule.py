"""Quorums and their durability as limits on the regions of every write set."""

from topology.quorum import Durability
from topology.ring.window_rule import Limit, WindowRule


def survival_rule(
    write_quorum: int, ack_quorum: int, min_regions: int, durability: Durability
) -> WindowRule:
    """STRICT: every write set keeps an ack set without any one region. SOFT: it has one now.

    With `count`, A nodes of a write set in fewer than m regions make it FAIL.
    """
    limits = region_limits(write_quorum, ack_quorum, min_regions, durability)
    return WindowRule(write_quorum, survival_limits(ack_quorum, min_regions), limits)


def survival_limits(
    ack_quorum: int, min_regions: int, *, regions_lost: int = 1, nodes_lost: int = 0
) -> tuple[Limit, ...]:
    """Limits that leave an ack set without any so many regions and further nodes."""
    return (
        Limit(regions_lost, ack_quorum + nodes_lost),
        Limit(regions_lost + min_regions - 1, 1 + nodes_lost),
    )


def region_limits(
    write_quorum: int, ack_quorum: int, min_regions: int, durability: Durability
) -> tuple[Limit, ...]:
    """Limits that every write set must meet; otherwise nothing may be written."""
    fewer = min_regions - 1
    limits = [Limit(0, ack_quorum), Limit(fewer, 1)]
    if durability is Durability.COUNT and fewer:
        limits.append(Limit(fewer, write_quorum - ack_quorum + 1))
    return tuple(limits)
