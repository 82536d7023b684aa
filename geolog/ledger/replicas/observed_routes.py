"""The routes of a process to replicas, as hedge policies see them."""

import math
from collections.abc import Sequence

import attrs
import trio

from geolog.ledger.replicas.replica_order import ReplicaOrder
from geolog.protocol.hedge_policy import HedgePolicy
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Member

ROUTES_MAX = 1024
"""Maximum routes kept; beyond that all are made again."""


@attrs.frozen
class FirstPause:
    """The pause that a policy set after the first request of a question."""

    policy: HedgePolicy | None
    pause_s: float | None
    until_s: float
    """How long other questions use it, too."""


class ObservedRoute:
    """The route to one replica: a `Route`."""

    def __init__(self, order: ReplicaOrder, member: Member) -> None:
        self._order = order
        self._instance = member.instance
        self._location = member.location
        self.first_pause = FirstPause(None, None, -math.inf)
        """The pause of the last question that was asked over this route first."""

    @property
    def is_remote(self) -> bool:
        """Whether the replica is in another region than the reader."""
        return self._order.is_remote(self._location)

    def percentile_s(self, percentile: float) -> float | None:
        """The delay of answers at this percentile; None if too few are known."""
        return self._order.latency.percentile_s(self._instance, percentile, trio.current_time())

    def median_s(self) -> float | None:
        """The median delay; None if too few answers are known."""
        return self._order.latency.median_s(self._instance, trio.current_time())


class ObservedRoutes:
    """All routes of a process."""

    def __init__(self, order: ReplicaOrder) -> None:
        self._order = order
        self._routes: dict[InstanceId, ObservedRoute] = {}

    def __repr__(self) -> str:
        return f"ObservedRoutes({len(self._routes)})"

    def all_to(self, members: Sequence[Member]) -> list[ObservedRoute]:
        """The routes to these replicas, in their order."""
        return [self.to(one) for one in members]

    def to(self, member: Member) -> ObservedRoute:
        """The route to this replica."""
        return self._routes.get(member.instance) or self._made(member)

    def _made(self, member: Member) -> ObservedRoute:
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        made = self._routes[member.instance] = ObservedRoute(self._order, member)
        return made
