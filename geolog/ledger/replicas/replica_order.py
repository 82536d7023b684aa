"""Orders the members of a fragment for a reader, by its policy and by what was observed.

The shell of `ReplicaRanking`, which all readers of a process share. The order for a fragment
is drawn once a second, or sooner if a member is demoted or forgiven. So the reads of a ledger
stick to one of the closest members for a while, and ordering costs a read next to nothing. An
order that ignores handicaps serves one read only, and so does a trial of a member on probation.

A question that waits for late members has its bell rung once one of them is demoted, so that it
goes further at once.

With each order, the members of the first one's region and the best of another region are
reached, and equals without a connection come later: a read that has to go on elsewhere must not
wait for a connection first.

Rules: PROTOCOL R12, R20, R21 and R25.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import attrs
import trio

from geolog.ledger.nodes.bell import Bell
from geolog.ledger.nodes.connection import NodeRefusedError
from geolog.protocol.ids import InstanceId
from geolog.protocol.ledger_state import Fragment
from geolog.protocol.messages import Reason
from topology.errors import GeologError, UnavailableError
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.read_order import (
    NodeHealth,
    ReadOrder,
    bookkeeper_order,
    distance,
    seed_order,
)
from topology.replica_ranking import DemotionReason, Ranked, ReplicaRanking
from topology.route_latency import RouteLatencies
from topology.stream_policy import DEFAULT_LOCATION

KEPT_S = 1.0
"""How long reads of a fragment keep one order."""

KEPT_MAX = 4096
"""Maximum orders kept; beyond that all are drawn again."""

EXPLORED_READS = 64
"""One read of so many ignores handicaps, so that no replica's latency becomes unknown."""

_CONFIG = MembershipConfig(default_location=DEFAULT_LOCATION)

HEALTHY_REFUSALS = frozenset({Reason.BUSY, Reason.NO_SUCH_LEDGER, Reason.CANCELLED})
"""Refusals of a replica that works: it has too much to do, was never given the ledger, or was
told not to answer."""


class SilentMemberError(UnavailableError):
    """A member did not answer in time: it, or the network, is slow or down. Retry later."""


class ReadLinks(Protocol):
    """The connections of a process for reads."""

    def is_connected(self, instance: InstanceId) -> bool:
        """Whether a request to this node could leave at once."""
        ...

    def reach(self, instance: InstanceId) -> None:
        """Have a connection attempted in the background, unless it just failed."""
        ...


UseOf = Callable[[InstanceId], NodeUse]
"""A node's use, as far as this process knows."""


def always_writable(_instance: InstanceId) -> NodeUse:
    """Nothing bad is known of any node."""
    return NodeUse.WRITABLE


@attrs.frozen
class _Kept:
    order: list[int]
    until_s: float
    version: int
    has_handicaps: bool


class ReplicaOrder:
    """Orders replicas for all readers of a process, which thus share what each learned."""

    def __init__(
        self,
        order: ReadOrder,
        *,
        local: Location | None,
        rng: random.Random,
        use_of: UseOf = always_writable,
        links: ReadLinks | None = None,
        next_regions: Sequence[str] = (),
    ) -> None:
        self._order = order
        self._next_regions = next_regions
        self._local = local
        self.place_wanted = trio.Event()
        """Set once a reader needs an order, and the place of this process is not known."""
        self._rng = rng
        self._use_of = use_of
        self._links = links
        self._waiting: dict[InstanceId, dict[Bell, None]] = {}
        self._ranking = ReplicaRanking()
        self._kept: dict[tuple[Fragment, int, int], _Kept] = {}
        """By value: readers that read one record of metadata twice share an order, too."""
        self.has_demoted = trio.Event()
        """Set once a replica is demoted."""
        self._until_explored = EXPLORED_READS  # Reads of orders with handicaps.

    @property
    def latency(self) -> RouteLatencies:
        """Observed latencies; the route to a replica has its instance id as name."""
        return self._ranking.latencies

    @property
    def local(self) -> Location | None:
        """Where this process is, as told or found; None if that is not known."""
        return self._local

    def stand_in(self, region: str) -> None:
        """This process turned out to be in, or nearest to, this region."""
        place = Location.within(region)
        if place != self._local:
            self._local = place
            self._kept.clear()

    def asked(self, instance: InstanceId) -> None:
        """Count a request that was sent to this replica, until `ended`."""
        self._ranking.asked(instance, trio.current_time())

    def ended(self, instance: InstanceId) -> None:
        """Count a request as no longer pending: answered, failed or given up."""
        self._ranking.ended(instance)

    def note_answered(self, instance: InstanceId, took_s: float) -> None:
        """This replica gave its first answer to a request after `took_s`, in time."""
        self._ranking.note_answered(instance, took_s, trio.current_time())

    def note_failed(self, instance: InstanceId, *, is_silent: bool = False) -> None:
        """This replica refused, broke off, or (`is_silent`) did not answer in time."""
        reason = DemotionReason.SILENT if is_silent else DemotionReason.FAILED
        self._ranking.note_failed(instance, trio.current_time(), reason)
        self._tell_demoted(instance)

    def note_error(self, instance: InstanceId, error: GeologError) -> None:
        """A request to this replica failed, which may say nothing about its health."""
        if isinstance(error, NodeRefusedError) and error.reason in HEALTHY_REFUSALS:
            self._ranking.note_heard(instance, trio.current_time())
        else:
            self.note_failed(instance, is_silent=isinstance(error, SilentMemberError))

    def note_overtaken(self, instance: InstanceId, asked_s: float) -> None:
        """Another replica had a good answer before this one, which was asked at `asked_s`."""
        self._ranking.note_overtaken(instance, asked_s, trio.current_time())
        self._tell_demoted(instance)

    def note_late(self, instance: InstanceId, asked_s: float) -> None:
        """A request sent at `asked_s` is late: another replica is to be asked, too."""
        self._ranking.note_late(instance, asked_s, trio.current_time())
        self._tell_demoted(instance)

    def take_free(self, instance: InstanceId, asked_s: float) -> bool:
        """Whether a late question without budget may go further, to find this replica out."""
        return self._ranking.take_free(instance, asked_s, trio.current_time())

    def wait_demoted(self, instance: InstanceId, bell: Bell) -> None:
        """Ring this bell once the replica is demoted, until `forget`."""
        self._waiting.setdefault(instance, {})[bell] = None

    def forget(self, instance: InstanceId, bell: Bell) -> None:
        """Do not ring this bell for the replica."""
        bells = self._waiting.get(instance)
        if bells is not None:
            bells.pop(bell, None)
            if not bells:
                del self._waiting[instance]

    def _tell_demoted(self, instance: InstanceId) -> None:
        self.has_demoted.set()
        if instance in self._waiting and self.is_demoted(instance):
            for bell in self._waiting.pop(instance):
                bell.ring()

    def forgive(self, instance: InstanceId) -> None:
        """Treat this replica like any other again: it is well."""
        self._ranking.forgive(instance, trio.current_time())

    def is_remote(self, location: Location) -> bool:
        """Whether a place is in another region than the reader, as far as that is known."""
        return self._local is not None and location.region != self._local.region

    def shadows_due(self) -> list[InstanceId]:
        """Replicas on probation that no read asks: ask each of them something small."""
        return [InstanceId(one) for one in self._ranking.shadows_due(trio.current_time())]

    def note_shadow_failed(self, instance: InstanceId) -> None:
        """A shadow request to this replica failed."""
        self._ranking.note_shadow_failed(instance, trio.current_time())

    @property
    def has_marked(self) -> bool:
        """Whether any replica is demoted or on probation."""
        return self._ranking.has_marked

    def is_demoted(self, instance: InstanceId) -> bool:
        """Whether this replica is asked after the others now."""
        return self._ranking.is_demoted(instance, trio.current_time())

    @property
    def demoted_count(self) -> int:
        """Number of replicas that are asked after the others now."""
        return self._ranking.demoted_count(trio.current_time())

    @property
    def demotions_count(self) -> dict[str, int]:
        """Demotions so far, by reason."""
        found = self._ranking.demotions
        return {reason.value: found[reason] for reason in DemotionReason}

    @property
    def kept_count(self) -> int:
        """Number of orders kept."""
        return len(self._kept)

    def of(self, fragment: Fragment, slots: Sequence[int]) -> list[int]:
        """These slots, the one to ask first in front."""
        return self._of(fragment, slots, may_try=False)[0]

    def with_trial(
        self, fragment: Fragment, slots: Sequence[int]
    ) -> tuple[list[int], int | None]:
        """The same, and one that this read alone is to try at the side of the first, if any."""
        return self._of(fragment, slots, may_try=True)

    def _of(
        self, fragment: Fragment, slots: Sequence[int], *, may_try: bool
    ) -> tuple[list[int], int | None]:
        now_s = trio.current_time()
        key = (fragment, slots[0], len(slots))  # Slots follow the ring from the first.
        kept = self._kept.get(key)
        if kept is not None and kept.version == self._ranking.version and now_s < kept.until_s:
            if kept.has_handicaps and self._explores():
                return self._ranked(fragment, slots, now_s, is_exploring=True).slots, None
            return kept.order, None
        ranked = self._ranked(fragment, slots, now_s, may_try=may_try)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[key] = _Kept(
            ranked.slots,
            now_s + KEPT_S,
            self._ranking.version,
            ranked.has_handicaps,
        )
        self._reach_best(fragment, ranked.slots)
        return ranked.slots, ranked.tried

    def _reach_best(self, fragment: Fragment, order: Sequence[int]) -> None:
        """Connect to the first member's region, and to the best member of another."""
        if self._links is None:
            return
        region = fragment.ensemble[order[0]].location.region
        has_other = False
        for slot in order:
            member = fragment.ensemble[slot]
            is_other = member.location.region != region
            if not (is_other and has_other):
                self._links.reach(member.instance)
            has_other |= is_other

    def _explores(self) -> bool:
        self._until_explored -= 1
        if self._until_explored:
            return False
        self._until_explored = EXPLORED_READS
        return True

    def _ranked(
        self,
        fragment: Fragment,
        slots: Sequence[int],
        now_s: float,
        *,
        is_exploring: bool = False,
        may_try: bool = False,
    ) -> Ranked:
        if self._local is None:
            self.place_wanted.set()
        ensemble = [member.instance for member in fragment.ensemble]
        return self._ranking.ranked(
            ensemble,
            [
                distance(self._local, member.location, self._next_regions)
                for member in fragment.ensemble
            ],
            partial(self._drawn, fragment, slots),
            now_s,
            spared=frozenset(instance for instance in ensemble if self._is_spared(instance)),
            is_exploring=is_exploring,
            may_try=may_try,
        )

    def _is_spared(self, instance: InstanceId) -> bool:
        """Whether equals come before this node."""
        if self._use_of(instance) in (NodeUse.READONLY, NodeUse.DRAINING):
            return True
        return self._links is not None and not self._links.is_connected(instance)

    def _drawn(self, fragment: Fragment, slots: Sequence[int], health: NodeHealth) -> list[int]:
        ensemble = [member.instance for member in fragment.ensemble]
        # All count as writable: a node that is read-only serves reads as well as any, so it
        # comes after its equals (a handicap), not after every node of other regions.
        members = Membership.of(
            _CONFIG,
            [
                KnownNode(node=one.instance, location=one.location, state=NodeUse.WRITABLE)
                for one in fragment.ensemble
            ],
        )
        if self._order is ReadOrder.BOOKKEEPER:
            region = None if self._local is None else self._local.region
            return bookkeeper_order(members, ensemble, slots, health, region)
        return seed_order(
            members, ensemble, slots, health, self._local, self._rng, self._next_regions
        )
