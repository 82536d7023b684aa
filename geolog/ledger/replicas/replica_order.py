"""Orders the members of a fragment for a reader, by its policy and by recent failures.

The order for a fragment is drawn once a second, or sooner if a member fails or is forgiven. So
the reads of a ledger stick to one of the closest members for a while, and ordering costs a read
next to nothing.

Rules: PROTOCOL R12.
"""

import random
from collections.abc import Sequence

import attrs
import trio

from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.read_order import NodeHealth, ReadOrder, bookkeeper_order, seed_order
from topology.slow_nodes import SlowNodes
from topology.stream_policy import DEFAULT_LOCATION

SUSPECT_S = 5.0
"""How long a member that failed is asked after the others."""

KEPT_S = 1.0
"""How long reads of a fragment keep one order."""

KEPT_MAX = 4096
"""Maximum orders kept; beyond that all are drawn again."""

_CONFIG = MembershipConfig(default_location=DEFAULT_LOCATION)


@attrs.frozen
class _Kept:
    fragment: Fragment
    """Kept referenced, so that its `id` stays unique."""
    order: list[int]
    until_s: float
    health: int


class ReplicaOrder:
    """Orders replicas for all readers of a process, which thus share what each learned."""

    def __init__(
        self,
        order: ReadOrder,
        *,
        local: Location | None,
        rng: random.Random,
    ) -> None:
        self._order = order
        self._local = local
        self._rng = rng
        self._slow = SlowNodes(SUSPECT_S)
        self._health = 0  # Counts changes of `_slow`, each of which may change an order.
        self._kept: dict[tuple[int, int, int], _Kept] = {}

    def note_slow(self, instance: InstanceId) -> None:
        """Try this replica after the others for a while: it failed, or took too long."""
        now_s = trio.current_time()
        # Readers of hundreds of partitions may find the same node dead at once: only the first
        # of them changes any order.
        self._health += instance not in self._slow.at(now_s)
        self._slow = self._slow.registered(instance, now_s)

    def forgive(self, instance: InstanceId) -> None:
        """Treat this replica like any other again: it answered in time."""
        if instance in self._slow.since_s:
            self._slow = self._slow.forgiven(instance)
            self._health += 1

    @property
    def slow_count(self) -> int:
        """Number of replicas that are asked after the others now."""
        return len(self._slow.at(trio.current_time()))

    @property
    def kept_count(self) -> int:
        """Number of orders kept."""
        return len(self._kept)

    def of(self, fragment: Fragment, slots: Sequence[int]) -> list[int]:
        """These slots, the one to try first in front."""
        now_s = trio.current_time()
        key = (id(fragment), slots[0], len(slots))  # Slots follow the ring from the first.
        kept = self._kept.get(key)
        if (
            kept is not None
            and kept.fragment is fragment
            and kept.health == self._health
            and now_s < kept.until_s
        ):
            return kept.order
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        order = self._drawn(fragment, slots, now_s)
        self._kept[key] = _Kept(fragment, order, now_s + KEPT_S, self._health)
        return order

    def _drawn(self, fragment: Fragment, slots: Sequence[int], now_s: float) -> list[int]:
        ensemble = [member.instance for member in fragment.ensemble]
        members = Membership.of(
            _CONFIG,
            [
                KnownNode(node=one.instance, location=one.location, state=NodeUse.WRITABLE)
                for one in fragment.ensemble
            ],
        )
        health = NodeHealth(slow=self._slow.at(now_s))
        if self._order is ReadOrder.BOOKKEEPER:
            region = None if self._local is None else self._local.region
            return bookkeeper_order(members, ensemble, slots, health, region)
        return seed_order(members, ensemble, slots, health, self._local, self._rng)
