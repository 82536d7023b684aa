"""How the ledgers of a cluster lie, all together: what health says of placement.

The work is bounded. Of many ledgers the newest are judged, where what goes on now shows, and
others drawn at random, so that what is wrong with many is found by one look, and what is wrong
with few by some look.
"""

import random
from collections import Counter
from collections.abc import Mapping

import attrs

from geolog.client.cluster_access import ClusterAccess
from geolog.client.placement.placement_seen import see_nodes
from geolog.client.streams.descriptions import PlacementHealth
from geolog.ledger.ledger_catalog import LedgerCatalog
from geolog.protocol.copying import final_extents
from geolog.protocol.fragment_placement import MemberState, NodesSeen, judge_fragment
from geolog.protocol.ledger_state import LedgerRecord, LedgerState
from geolog.protocol.placement_plan import PlacementPlanner
from topology.window_rule import Adherence

LEDGERS_JUDGED_MAX = 2000
"""About so many ledgers are judged by one look; it takes half a second."""

_STREAMS_NAMED_MAX = 10


async def judge_placement(
    access: ClusterAccess,
    promises: Mapping[str, str],
    *,
    ledgers_max: int | None = LEDGERS_JUDGED_MAX,
) -> PlacementHealth:
    """Judge the ledgers of all streams; about `ledgers_max` of them, or all if it is None.

    `promises` says what each stream was promised to survive.
    """
    seen = (await see_nodes(access)).nodes
    tally = _Tally(seen, promises)
    catalog, draw = access.catalog, _BucketDraw(await access.catalog.buckets(), access.rng)
    while (bucket := draw.next(tally.health.ledgers, ledgers_max)) is not None:
        await _judge_bucket(catalog, bucket, tally)
    tally.health.is_sample = draw.is_any_left
    return tally.total()


async def _judge_bucket(catalog: LedgerCatalog, bucket: str, tally: "_Tally") -> None:
    for record in await catalog.records_in(bucket):
        if record.state is not LedgerState.ALLOCATED:
            tally.add(record)


@attrs.define
class _BucketDraw:
    """Buckets of ledgers: the newest until half is judged, then any."""

    _left: list[str]
    _rng: random.Random

    @property
    def is_any_left(self) -> bool:
        return bool(self._left)

    def next(self, judged: int, ledgers_max: int | None) -> str | None:
        if not self._left or (ledgers_max is not None and judged >= ledgers_max):
            return None
        if ledgers_max is None or judged < ledgers_max // 2:
            return self._left.pop()
        return self._left.pop(self._rng.randrange(len(self._left)))


class _Tally:
    """Judges ledgers one by one, and counts."""

    def __init__(self, seen: NodesSeen, promises: Mapping[str, str]) -> None:
        self._promises = promises
        self.health = PlacementHealth()
        self._seen = seen
        self._planner = PlacementPlanner(seen)
        self._streams: Counter[str] = Counter()

    def add(self, record: LedgerRecord) -> None:
        """Judge all fragments of a ledger."""
        health = self.health
        health.ledgers += 1
        stream = record.stream.partition("#")[0]
        survive = self._promises.get(stream, "")
        final = {extent.index for extent in final_extents(record)}
        for index, fragment in enumerate(record.fragments):
            lie = judge_fragment(self._seen, record, fragment, survive)
            health.strict += lie.placed is Adherence.STRICT
            health.soft += lie.placed is Adherence.SOFT
            health.fail += lie.placed is Adherence.FAIL
            if lie.is_good:
                continue
            is_given_up = MemberState.REPLACED in lie.states
            can_be_better = index in final and self._planner.is_mendable(record, index, survive)
            is_broken = bool(lie.broken) and lie.placed is Adherence.STRICT
            health.promises_broken += is_broken
            health.disks_given_up += is_given_up
            health.repairable += can_be_better
            if can_be_better or is_given_up or is_broken or lie.placed is Adherence.FAIL:
                self._streams[stream] += 1

    def total(self) -> PlacementHealth:
        """What was found, streams named."""
        self.health.streams_count = len(self._streams)
        self.health.streams = dict(self._streams.most_common(_STREAMS_NAMED_MAX))
        return self.health
