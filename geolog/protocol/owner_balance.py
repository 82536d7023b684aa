"""Decides which process owns each partition, and which partitions move to balance them.

Theory of operation. Each partition ranks all processes by a hash of both names (weighted
rendezvous hashing), so all who know the same processes agree, without talking to each other.
Processes of the partition's home region come first. Draining ones are not ranked.

A hash alone spreads unevenly. So the partitions with the same candidates share a bound: a
process holds at most `SLACK` times its fair share of them, by weight, rounded up. A partition
belongs to the first process in its ranking that has room. The bounds sum up to more than there
are partitions, so there always is one.

A plan of moves leaves every partition where it is unless it must go:

1. Its owner is gone, draining, or outside the home region although that has processes.
2. Its owner is above the bound. Those that rank the owner lowest go first.

So if a process leaves, only its partitions move; if one joins, only the surplus of the others
does. A plan that does not fit into one round is continued in the next: those without a working
owner come first.

Invariants:
1. The same input gives the same plan, in whatever order it comes.
2. A plan that was carried out, with nothing changed since, is followed by an empty one.
3. A plan has at most `moves_max` moves, and moves no partition twice.

Rules: PROTOCOL O18.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

SLACK = 1.25
"""Share of its fair number of partitions that a process may hold; more moves, more evenly."""

_HASH_BYTES = 8


@attrs.frozen(kw_only=True)
class OwnerCandidate:
    """A process that may own partitions."""

    process: str
    region: str
    weight: float = 1.0
    """Its capacity, relative to the others; above 0."""
    is_draining: bool = False


@attrs.frozen(kw_only=True)
class PlacedPartition:
    """A partition and its owner."""

    name: str
    home_region: str | None = None
    owner: str | None = None
    """The process that owns it; None if it has none."""


@attrs.frozen
class OwnerMove:
    """A partition that should change its owner."""

    name: str
    source: str | None
    target: str


def ranking(
    name: str, home_region: str | None, candidates: Iterable[OwnerCandidate]
) -> list[str]:
    """The processes that may own the partition, best first."""
    eligible = _eligible(home_region, candidates)
    return [one.process for one in sorted(eligible, key=lambda one: _place(name, one))]


def plan_moves(
    partitions: Iterable[PlacedPartition],
    candidates: Iterable[OwnerCandidate],
    *,
    moves_max: int,
) -> list[OwnerMove]:
    """The next moves, the most urgent first; none if no process can own anything."""
    known = sorted(candidates, key=lambda one: one.process)
    groups: dict[str | None, list[PlacedPartition]] = {}
    for partition in sorted(partitions, key=lambda one: one.name):
        home = partition.home_region
        has_home = any(one.region == home and not one.is_draining for one in known)
        groups.setdefault(home if has_home else None, []).append(partition)
    urgent: list[OwnerMove] = []
    surplus: list[OwnerMove] = []
    for home in sorted(groups, key=lambda one: one or ""):
        eligible = _eligible(home, known)
        if eligible:
            balance = _Balance(groups[home], eligible)
            urgent += balance.place_homeless()
            surplus += balance.shed_surplus()
    return [*urgent, *surplus][:moves_max]


class _Balance:
    """The partitions that share their candidates."""

    def __init__(
        self, partitions: Sequence[PlacedPartition], eligible: Sequence[OwnerCandidate]
    ) -> None:
        self._partitions = partitions
        self._eligible = eligible
        total_weight = sum(one.weight for one in eligible)
        self._bounds = {
            one.process: math.ceil(SLACK * len(partitions) * one.weight / total_weight)
            for one in eligible
        }
        self._held = Counter(
            one.owner for one in partitions if one.owner is not None and self._fits(one.owner)
        )

    def _fits(self, process: str | None) -> bool:
        return process in self._bounds

    def place_homeless(self) -> list[OwnerMove]:
        """Give an owner to each partition whose owner cannot keep it."""
        return [self._move(one) for one in self._partitions if not self._fits(one.owner)]

    def shed_surplus(self) -> list[OwnerMove]:
        """Move partitions from owners above their bound."""
        moves = []
        for owner in self._eligible:
            surplus = self._held[owner.process] - self._bounds[owner.process]
            if surplus > 0:
                held = [one for one in self._partitions if one.owner == owner.process]
                held.sort(key=lambda one: _place(one.name, owner), reverse=True)
                moves += [self._move(one) for one in held[:surplus]]
        return moves

    def _move(self, partition: PlacedPartition) -> OwnerMove:
        roomy = [
            one for one in self._eligible if self._held[one.process] < self._bounds[one.process]
        ]
        best = min(roomy, key=lambda one: _place(partition.name, one)).process
        if partition.owner is not None and self._fits(partition.owner):
            self._held[partition.owner] -= 1
        self._held[best] += 1
        return OwnerMove(partition.name, partition.owner, best)


def _eligible(
    home_region: str | None, candidates: Iterable[OwnerCandidate]
) -> list[OwnerCandidate]:
    """The candidates that do not drain: those of the home region, if it has any."""
    working = [one for one in candidates if not one.is_draining]
    at_home = [one for one in working if one.region == home_region]
    return at_home or working


def _place(name: str, candidate: OwnerCandidate) -> tuple[float, str]:
    """Sorts candidates by how well they rank for a partition, best first."""
    text = f"{name}\n{candidate.process}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "big")
    uniform = (number + 1) / (256**_HASH_BYTES + 1)
    return (-math.log(uniform) / candidate.weight, candidate.process)
