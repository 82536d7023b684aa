"""Ranks the processes that may own a partition, and plans moves that balance them.

Theory of operation. Each partition ranks all processes by a hash of both names (weighted
rendezvous hashing), so all who know the same processes agree, without talking to each other.
Processes of the partition's home region come first. Draining ones are not ranked.

A hash alone spreads unevenly, and a process that joins owns nothing. So processes that share
their partitions have a bound: at most `SLACK` times the fair share, by weight, rounded up. The
bounds sum up to more than there are partitions, so there always is room for a surplus. Within
the bounds, every partition stays where it is.

Each process plans for itself alone, and of the others it knows only how many partitions they
hold. Only the one farthest above its bound moves any: those that rank it lowest, each to the
first in its ranking with room. So two processes never fill the same room, unless a number is
old; and as nobody comes to be above its bound, all are within theirs after as many moves as
there was surplus.

Invariants:
1. The same input gives the same ranking and plan, in whatever order it comes.
2. A plan fills no process above its bound, by the numbers it was made from.
3. A plan has at most `moves_max` moves, and moves no partition twice.

Rules: PROTOCOL O18 and S27.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

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


@attrs.frozen
class OwnerMove:
    """A partition that should change its owner."""

    name: str
    source: str
    target: str


def ranking(
    name: str, home_region: str | None, candidates: Iterable[OwnerCandidate]
) -> list[str]:
    """The processes that may own the partition, best first."""
    working = [one for one in candidates if not one.is_draining]
    at_home = [one for one in working if one.region == home_region]
    return [
        one.process for one in sorted(at_home or working, key=lambda one: _place(name, one))
    ]


def plan_moves(
    process: str,
    partitions: Iterable[str],
    held_counts: Mapping[str, int],
    candidates: Iterable[OwnerCandidate],
    *,
    moves_max: int,
) -> list[OwnerMove]:
    """The next moves of one process to others that share its partitions.

    partitions: those of its partitions that it may move. held_counts: how many each process
    holds, itself included. candidates: all that share them, itself included.
    """
    sharing = {one.process: one for one in candidates if not one.is_draining}
    counts = {one: held_counts.get(one, 0) for one in sorted(sharing)}
    bounds = _bounds(sum(counts.values()), [sharing[one] for one in counts])
    surplus = {one: counts[one] - bounds[one] for one in counts}
    if process not in surplus or surplus[process] <= 0:
        return []
    if max(surplus, key=lambda one: surplus[one]) != process:
        return []  # Another one has its turn.
    here = sharing[process]
    lowest_first = sorted(partitions, key=lambda name: _place(name, here), reverse=True)
    moves = []
    for name in lowest_first[: min(moves_max, surplus[process])]:
        # There is room: the bounds sum up to more than the partitions.
        roomy = [sharing[one] for one in counts if counts[one] < bounds[one]]
        target = min(roomy, key=lambda one: _place(name, one)).process
        counts[target] += 1
        moves.append(OwnerMove(name, process, target))
    return moves


def _bounds(partitions_count: int, sharing: Sequence[OwnerCandidate]) -> dict[str, int]:
    """How many partitions each process may hold."""
    total_weight = sum(one.weight for one in sharing)
    return {
        one.process: math.ceil(SLACK * partitions_count * one.weight / total_weight)
        for one in sharing
    }


def _place(name: str, candidate: OwnerCandidate) -> tuple[float, str]:
    """Sorts candidates by how well they rank for a partition, best first."""
    text = f"{name}\n{candidate.process}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest(), "big")
    uniform = (number + 1) / (256**_HASH_BYTES + 1)
    return (-math.log(uniform) / candidate.weight, candidate.process)
