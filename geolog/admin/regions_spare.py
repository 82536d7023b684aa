"""How many more regions a cluster can lose, and what sets that limit.

The number is the largest n such that after losing any n of the regions that are up, each write
set of each fragment still has an ack set, and each stream has room for a new ledger.
"""

import itertools
from collections.abc import Callable, Collection, Sequence

import attrs

from geolog.admin.placement.placement_health import FragmentShape
from geolog.protocol.ids import LedgerId
from topology.quorum import AckRule


@attrs.frozen
class Holding:
    """A fragment, and the stream that it belongs to."""

    shape: FragmentShape
    stream: str
    ledger: LedgerId


@attrs.frozen
class Room:
    """Whether a stream has room for a new ledger after losing some regions."""

    stream: str
    is_left_without: Callable[[frozenset[str]], bool]


@attrs.frozen
class Spare:
    """How many more regions can be lost, and what would fail if one more were."""

    count: int
    set_by: str


def regions_spare(
    regions: Collection[str],
    holdings: Sequence[Holding],
    rooms: Sequence[Room],
    *,
    metadata_spare: int | None,
) -> Spare:
    """Try every loss of one region, then of two, and so on, until something fails.

    `metadata_spare`: how many servers the metadata store can lose; None if not known.
    """
    judges = [(one, _Acks(one.shape)) for one in holdings]
    for count in range(1, len(regions) + 1):
        for lost in itertools.combinations(sorted(regions), count):
            without = f"without region{'s'[: count - 1]} {' and '.join(lost)}"
            if count == len(regions):
                return _bounded(count - 1, f"{without} no node is left", metadata_spare)
            for holding, acks in judges:
                if not acks.are_left_without(frozenset(lost)):
                    about = f"stream {holding.stream}: " if holding.stream else ""
                    what = f"ledger {holding.ledger} has no ack set left"
                    return _bounded(count - 1, f"{about}{without} {what}", metadata_spare)
            for room in rooms:
                if not room.is_left_without(frozenset(lost)):
                    what = f"stream {room.stream}: {without} no new ledger can be placed"
                    return _bounded(count - 1, what, metadata_spare)
    return Spare(0, "no node is up")


def _bounded(count: int, set_by: str, metadata_spare: int | None) -> Spare:
    """Bound the number by the metadata store's majority; assumes one server in each region."""
    if metadata_spare is None or metadata_spare >= count:
        return Spare(count, set_by)
    servers = f"{metadata_spare} server{'' if metadata_spare == 1 else 's'}"
    return Spare(metadata_spare, f"the metadata store keeps its majority without {servers}")


class _Acks:
    """Whether a fragment keeps its ack sets; cached for losses that it cannot tell apart."""

    def __init__(self, shape: FragmentShape) -> None:
        self._shape = shape
        self._own = frozenset(shape.regions) - {""}
        self._rule: AckRule | None = None
        self._known: dict[frozenset[str], bool] = {}

    def are_left_without(self, lost: frozenset[str]) -> bool:
        mine = lost & self._own
        if mine not in self._known:
            self._rule = self._rule or AckRule(self._shape.quorum, self._shape.regions)
            left = sum(
                1 << slot
                for slot, region in enumerate(self._shape.regions)
                if region and region not in mine
            )
            self._known[mine] = self._rule.acks_all(left)
        return self._known[mine]
