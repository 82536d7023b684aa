"""The order in which a reader asks the replicas of an entry: pure, from a snapshot and chance.

There are two named orders. `seed`: the closest first (of those equally close, one with the
smallest handicap, else a random one), then the closest in another rack, then one in another
region, then the rest by closeness; a client may rank other regions. `bookkeeper`: in the order
of the write set, but with at most two of the client's region before one of another region. In
both, these nodes come later, in this order: those that failed before, are read-only, are slow,
or are gone.

Rules: PROTOCOL R12.
"""

import enum
import random
from collections.abc import Mapping, Sequence

import attrs

from topology.location import Location
from topology.membership import Membership, NodeUse

LOCAL_BEFORE_REMOTE = 2
"""How many nodes of the client's region come before the first of another."""


class ReadOrder(enum.Enum):
    """The available orders."""

    SEED = "seed"
    BOOKKEEPER = "bookkeeper"


class _Class(enum.IntEnum):
    HEALTHY = 0
    FAILED_BEFORE = 1
    READONLY = 2
    SLOW = 3
    GONE = 4


@attrs.frozen(kw_only=True)
class NodeHealth:
    """The reader's knowledge of nodes. Absent: nothing bad."""

    slow: frozenset[str] = frozenset()
    pending: Mapping[str, int] = attrs.field(factory=dict)
    """Requests that a node has not answered yet."""
    failed_at_entry: Mapping[str, int] = attrs.field(factory=dict)
    """The last entry that a node failed to serve; below 0: none."""
    pending_threshold: int = 0
    """If the first node has this many more pending requests than the best, the best goes first.
    0: off. While on, slowness is ignored: pending requests show it."""
    handicap: Mapping[str, int] = attrs.field(factory=dict)
    """Steps by which a node comes after healthy ones that are as close; `seed` order only."""

    def is_slow(self, node: str) -> bool:
        """Whether the node counts as slow."""
        return self.pending_threshold <= 0 and node in self.slow


@attrs.frozen
class _Replica:
    index: int
    node: str
    location: Location
    kind: _Class
    weight: int
    """Sort key within one class: the failed entry, or the pending requests."""


def bookkeeper_order(
    members: Membership,
    ensemble: Sequence[str],
    write_set: Sequence[int],
    health: NodeHealth,
    region: str | None,
) -> list[int]:
    """BookKeeper's order; `region` is the client's, None to order by health alone.

    Without a region a write set stays as it is unless a member is slow or gone.
    """
    order = _best_first(ensemble, write_set, health)
    replicas = [_replica(members, ensemble[index], index, health) for index in order]
    if region is None and not any(_is_away(members, node, health) for node in ensemble):
        return order
    if region is None:
        return [one.index for one in sorted(replicas, key=_by_class)]
    return [one.index for one in _interleaved(replicas, region)]


def seed_order(
    members: Membership,
    ensemble: Sequence[str],
    write_set: Sequence[int],
    health: NodeHealth,
    local: Location | None,
    rng: random.Random,
    next_regions: Sequence[str] = (),
) -> list[int]:
    """Closest, another rack, another region, then the rest by closeness."""
    replicas = [_replica(members, ensemble[index], index, health) for index in write_set]
    rng.shuffle(replicas)
    handicap = health.handicap
    replicas.sort(
        key=lambda one: (
            *_by_class(one),
            distance(local, one.location, next_regions),
            handicap.get(one.node, 0),
        )
    )
    healthy = [one for one in replicas if one.kind is _Class.HEALTHY]
    order = [one.index for one in _across_domains(healthy)]
    order += [one.index for one in replicas if one.kind is not _Class.HEALTHY]
    return _best_first(ensemble, order, health)


def distance(local: Location | None, place: Location, next_regions: Sequence[str] = ()) -> int:
    """0 in the client's rack, 1 in its region, 2 elsewhere or if unknown.

    next_regions: regions that come before others elsewhere, the nearest first.
    """
    if local is None or local.region != place.region:
        is_named = place.region in next_regions
        return 2 + (next_regions.index(place.region) if is_named else len(next_regions))
    return 0 if local == place else 1


def with_rest(order: Sequence[int], ensemble_size: int) -> list[int]:
    """The order for a read of the LAC: then every other member, as all must be covered."""
    return [*order, *(index for index in range(ensemble_size) if index not in order)]


def sticky_index(
    members: Membership,
    ensemble: Sequence[str],
    current: int | None,
    local: Location | None,
    rng: random.Random,
) -> int:
    """The member for all reads of a ledger: one of the closest; after an error the next."""
    if current is not None:
        return (current + 1) % len(ensemble)
    return seed_order(members, ensemble, range(len(ensemble)), NodeHealth(), local, rng)[0]


def _replica(members: Membership, node: str, index: int, health: NodeHealth) -> _Replica:
    place = members.location_of(node)
    match members.state_of(node):
        case NodeUse.WRITABLE if health.failed_at_entry.get(node, -1) >= 0:
            kind, weight = _Class.FAILED_BEFORE, health.failed_at_entry[node]
        case NodeUse.DOWN | NodeUse.NEVER_REGISTERED:
            kind, weight = _Class.GONE, 0
        case _ if health.is_slow(node):
            kind, weight = _Class.SLOW, health.pending.get(node, 0)
        case NodeUse.READONLY | NodeUse.DRAINING:
            kind, weight = _Class.READONLY, 0
        case _:
            kind, weight = _Class.HEALTHY, 0
    return _Replica(index, node, place, kind, weight)


def _by_class(one: _Replica) -> tuple[int, int]:
    return one.kind, one.weight


def _is_away(members: Membership, node: str, health: NodeHealth) -> bool:
    state = members.state_of(node)
    return state in (NodeUse.DOWN, NodeUse.NEVER_REGISTERED) or health.is_slow(node)


def _best_first(ensemble: Sequence[str], order: Sequence[int], health: NodeHealth) -> list[int]:
    """Move the node with the fewest pending requests to the front, if the first has many."""
    order = list(order)
    if health.pending_threshold <= 0 or not order:
        return order
    pending = [health.pending.get(ensemble[index], 0) for index in order]
    best = pending.index(min(pending))
    if pending[0] >= pending[best] + health.pending_threshold:
        order.insert(0, order.pop(best))
    return order


def _interleaved(replicas: Sequence[_Replica], region: str) -> list[_Replica]:
    """Two of the region, one of another, the rest of the region, the rest, unhealthy ones."""
    ranked = sorted(replicas, key=_by_class)
    well = [one for one in ranked if one.kind <= _Class.FAILED_BEFORE]
    near = [one for one in well if one.location.region == region]
    far = [one for one in well if one.location.region != region]
    first = near[:LOCAL_BEFORE_REMOTE]
    return [
        *first,
        *far[:1],
        *near[LOCAL_BEFORE_REMOTE:],
        *far[1:],
        *(one for one in ranked if one.kind > _Class.FAILED_BEFORE),
    ]


def _across_domains(by_closeness: Sequence[_Replica]) -> list[_Replica]:
    left = list(by_closeness)
    order = left[:1]
    del left[:1]
    for is_apart in (_in_another_rack, _in_another_region):
        found = next((one for one in left if is_apart(one, order)), None)
        if found is not None:
            left.remove(found)
            order.append(found)
    return [*order, *left]


def _in_another_rack(one: _Replica, order: Sequence[_Replica]) -> bool:
    return all(one.location != other.location for other in order)


def _in_another_region(one: _Replica, order: Sequence[_Replica]) -> bool:
    return all(one.location.region != other.location.region for other in order)
