"""A second implementation of the policies, over whole ensembles, too plain to be wrong."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import attrs

from topology.location import Location
from topology.quorum import Durability

Judge = Callable[[Sequence[Location]], str]


def windows(ring: Sequence[Location], width: int) -> list[list[Location]]:
    return [[ring[(at + turn) % len(ring)] for turn in range(width)] for at in range(len(ring))]


@attrs.frozen
class NaiveRegions:
    """Region-aware placement with m regions; 0: not enforced."""

    write: int
    ack: int
    m: int
    durability: Durability
    racks: int = 1

    def judge(self, ring: Sequence[Location]) -> str:
        if not all(self._spans_racks(window) for window in windows(ring, self.write)):
            return "fail"
        if self.durability is Durability.REGIONS:
            return self._judge_regions(ring)
        if self.m == 0:
            two = min(2, self.write)
            spans = [
                len({one.region for one in window}) for window in windows(ring, self.write)
            ]
            return "strict" if min(spans) >= two else "soft"
        return "strict" if self._is_count_kept(ring) else "fail"

    def _is_count_kept(self, ring: Sequence[Location]) -> bool:
        """No A nodes of a write set are in fewer than m regions."""
        return all(
            len({one.region for one in answers}) >= self.m
            for window in windows(ring, self.write)
            for answers in itertools.combinations(window, self.ack)
        )

    def _judge_regions(self, ring: Sequence[Location]) -> str:
        found = windows(ring, self.write)
        if not all(self._is_ack(window) for window in found):
            return "fail"
        for lost in {one.region for one in ring}:
            for window in found:
                if not self._is_ack([one for one in window if one.region != lost]):
                    return "soft"
        return "strict"

    def _is_ack(self, nodes: Sequence[Location]) -> bool:
        return len(nodes) >= self.ack and len({one.region for one in nodes}) >= max(self.m, 1)

    def _spans_racks(self, window: Sequence[Location]) -> bool:
        for region in {one.region for one in window}:
            inside = [one.rack for one in window if one.region == region]
            if len(set(inside)) < min(self.racks, len(inside)):
                return False
        return True


@attrs.frozen
class NaiveRacks:
    """Rack-aware placement."""

    write: int
    racks: int

    def judge(self, ring: Sequence[Location]) -> str:
        needed = min(self.write, self.racks)
        spans = [len(set(window)) for window in windows(ring, self.write)]
        return "strict" if min(spans) >= needed else "fail"


@attrs.frozen
class NaiveZones:
    """Zone-aware placement, E a multiple of W and W above the minimum."""

    write: int
    desired: int
    least: int

    def judge(self, ring: Sequence[Location]) -> str:
        if len(ring) % self.write or self.write <= self.least:
            return "fail"
        found = "strict"
        for window in windows(ring, self.write):
            zones = {one.region for one in window}
            for zone in zones:
                inside = [one.rack for one in window if one.region == zone]
                if len(inside) > 1 and len(set(inside)) == 1:
                    return "fail"
            if len(zones) < min(self.write, self.least):
                return "fail"
            if len(zones) < min(self.write, self.desired):
                found = "soft"
        return found


def rings(places: Sequence[Location], size: int) -> Iterator[tuple[Location, ...]]:
    """Every ring of this many nodes; nodes of one location are equivalent."""
    left = {place: places.count(place) for place in sorted(set(places))}
    ring: list[Location] = []

    def fill() -> Iterator[tuple[Location, ...]]:
        if len(ring) == size:
            yield tuple(ring)
            return
        for place, count in left.items():
            if count:
                left[place] -= 1
                ring.append(place)
                yield from fill()
                ring.pop()
                left[place] += 1

    yield from fill()


def best(judge: Judge, places: Sequence[Location], size: int) -> str:
    """The best adherence that any ring has; `fail` if there is no better one."""
    found = "fail"
    for ring in rings(places, size):
        match judge(ring):
            case "strict":
                return "strict"
            case "soft":
                found = "soft"
            case _:
                pass
    return found


def fewest_changes(
    judge: Judge, ensemble: Sequence[str], places: dict[str, Location]
) -> tuple[int, str] | None:
    """How many slots must change until these nodes adhere, and the best adherence then."""
    found: dict[int, str] = {}
    for nodes in itertools.permutations(sorted(places), len(ensemble)):
        adherence = judge([places[node] for node in nodes])
        if adherence == "fail":
            continue
        changes = sum(one != other for one, other in zip(nodes, ensemble, strict=True))
        if found.get(changes) != "strict":
            found[changes] = adherence
    return (min(found), found[min(found)]) if found else None
