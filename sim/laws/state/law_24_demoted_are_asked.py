"""Law 24: a replica that readers of a process demoted is asked again, whatever happens.

The law looks at the observations of each process, and at what they would lead to: if nothing
more is observed, then once a demotion and a trial have had their time, the replica comes first
wherever it is the nearest, or is tried at the side of the first.
"""

import copy
from collections.abc import Iterator
from random import Random

import attrs
import trio

from geolog.client.log import Log
from sim.laws.state.seen import Look
from sim.world.world import World
from topology.location import Location
from topology.membership import KnownNode, Membership, MembershipConfig, NodeUse
from topology.read_order import NodeHealth, seed_order
from topology.replica_ranking import (
    DEMOTED_S_MAX,
    TRIAL_S,
    ReplicaRanking,
    _Observed,
)

# A law looks at the real thing.
# ruff: noqa: SLF001

_HERE = Location("here", "rack")
_THERE = Location("there", "rack")
_OTHER = "another replica, far away"


@attrs.define
class DemotedAreAsked:
    """Keeps what it has judged: by process and replica, its demotion and its trial."""

    _judged: dict[tuple[str, str], tuple[float, float]] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Judge the replicas that processes demoted, and try."""
        now_s = trio.current_time()
        for process, log in sorted(now.world.logs.items()):
            for instance, observed in _ranking_of(log)._observed.items():
                if not observed.is_marked:
                    continue
                state = observed.until_s, observed.tried_s
                if self._judged.get((process, instance)) != state:
                    self._judged[process, instance] = state
                    if not _is_asked_again(instance, observed, now_s):
                        yield f"{process} never asks {instance} again, which it demoted"


def observed_replicas(world: World) -> Iterator[_Observed]:
    """Evidence that processes have against replicas."""
    for log in world.logs.values():
        yield from _ranking_of(log)._observed.values()


def _ranking_of(log: Log) -> ReplicaRanking:
    return log._replicas.order._ranking


def _is_asked_again(instance: str, observed: _Observed, now_s: float) -> bool:
    """Whether reads ask the replica first, where it is the nearest, after the longest times."""
    ranking = ReplicaRanking()
    ranking._observed[instance] = copy.copy(observed)
    ensemble, rng = [instance, _OTHER], Random(0)
    members = Membership.of(
        MembershipConfig(default_location=_THERE),
        [
            KnownNode(node=node, location=place, state=NodeUse.WRITABLE)
            for node, place in zip(ensemble, (_HERE, _THERE), strict=True)
        ],
    )

    def draw(health: NodeHealth) -> list[int]:
        return seed_order(members, ensemble, (0, 1), health, _HERE, rng)

    later_s = now_s + DEMOTED_S_MAX + TRIAL_S
    ranked = ranking.ranked(ensemble, (0, 2), draw, later_s, may_try=True)
    return 0 in (ranked.slots[0], ranked.tried)
