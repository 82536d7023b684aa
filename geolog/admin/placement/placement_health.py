"""The placement of all ledgers of a cluster, summed up for health.

The work is bounded. If there are many ledgers, the newest are judged, where current trouble
shows, and others drawn at random. So a single look finds what is wrong with many ledgers, and
repeated looks find what is wrong with few.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import attrs

from geolog.admin.cluster_access import ClusterAccess
from geolog.admin.placement.placement_seen import see_nodes
from geolog.catalog.descriptions import PlacementHealth
from geolog.ledger.ledger_catalog import LedgerCatalog
from geolog.protocol.copying import final_extents
from geolog.protocol.fragment_placement import (
    FragmentVerdict,
    MemberState,
    NodesSeen,
    judge_fragment,
)
from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState
from geolog.protocol.placement_plan import PlacementPlanner
from topology.location import Location
from topology.promise import promise_broken
from topology.quorum import QuorumConfig
from topology.ring.window_rule import Adherence
from topology.survive import Loss

LEDGERS_JUDGED_MAX = 2000
"""About how many ledgers one look judges; it takes half a second."""

_STREAMS_NAMED_MAX = 10
_LEDGERS_NAMED_MAX = 5


@attrs.frozen
class FragmentShape:
    """The inputs that decide which losses a fragment survives: its quorums and locations.

    If write sets are whole ensembles, the order of the slots does not matter.
    """

    quorum: QuorumConfig
    regions: tuple[str, ...]
    """By slot; empty for a member that is not up."""

    @classmethod
    def of(
        cls, quorum: QuorumConfig, fragment: Fragment, up: Collection[InstanceId]
    ) -> "FragmentShape":
        """The standing of a fragment while these instances are up."""
        regions = [
            member.location.region if member.instance in up else ""
            for member in fragment.ensemble
        ]
        if quorum.write_quorum == quorum.ensemble_size:
            regions.sort()
        return cls(quorum, tuple(regions))


@attrs.define
class Flaws:
    """Fragments of a stream with the same flaw: how many, and one of them in words."""

    count: int = 0
    ledger: int = 0
    why: str = ""

    def add(self, ledger: LedgerId, why: str) -> None:
        """Count one more; remember the first."""
        if not self.count:
            self.ledger, self.why = ledger, why
        self.count += 1


@attrs.define
class StreamLedgers:
    """Flaws of the ledgers of one stream, except its open fragments."""

    weak: Flaws = attrs.field(factory=Flaws)
    """They do not keep the promise as placed, or could be placed better."""
    mendable: int = 0
    """Those of the weak ones that can be improved now."""
    hurt: Flaws = attrs.field(factory=Flaws)
    """Placed well, but not keeping the promise while members are down."""
    unreadable: Flaws = attrs.field(factory=Flaws)
    """Entries without a copy at any node that is up."""
    gone: dict[str, Flaws] = attrs.field(factory=dict)
    """Entries whose every disk was given up: of the stream itself under "", of its mirrors
    under their regions."""
    failed: Flaws = attrs.field(factory=Flaws)
    """They fail their policy."""
    queued: list[LedgerId] = attrs.field(factory=list)
    """In the repair queue."""


@attrs.define
class LedgersJudged:
    """Outcome of one look at the ledgers."""

    health: PlacementHealth = attrs.field(factory=PlacementHealth)
    streams: dict[str, StreamLedgers] = attrs.field(factory=dict)
    shapes: dict[FragmentShape, tuple[str, LedgerId]] = attrs.field(factory=dict)
    """The shapes of all fragments, each with the stream and ledger where it was found first."""
    doubtful: Counter[InstanceId] = attrs.field(factory=Counter)
    """Ledgers of which a node in doubt may lack copies, by the node's instance."""


async def judge_ledgers(
    access: ClusterAccess,
    promises: Mapping[str, str],
    *,
    up: Collection[InstanceId],
    doubt_below: Mapping[InstanceId, LedgerId],
    queued: Collection[LedgerId],
    ledgers_max: int | None = LEDGERS_JUDGED_MAX,
) -> LedgersJudged:
    """Judge the ledgers of all streams: about `ledgers_max` of them, or all if it is None.

    `promises`: what each stream was promised to survive; `up`: the nodes that answer;
    `doubt_below`: the ledgers in doubt at each node; `queued`: those in the repair queue.
    """
    seen = (await see_nodes(access)).nodes
    tally = LedgerTally(seen, promises, up=up, doubt_below=doubt_below, queued=queued)
    catalog, draw = access.catalog, _BucketDraw(await access.catalog.buckets(), access.rng)
    while (bucket := draw.next(tally.judged.health.ledgers, ledgers_max)) is not None:
        await _judge_bucket(catalog, bucket, tally)
    tally.judged.health.is_sample = draw.is_any_left
    return tally.total()


async def _judge_bucket(catalog: LedgerCatalog, bucket: str, tally: "LedgerTally") -> None:
    for record in await catalog.records_in(bucket):
        if record.state is not LedgerState.ALLOCATED:
            tally.add(record)


@attrs.define
class _BucketDraw:
    """Buckets of ledgers: the newest until half the number is judged, then random ones."""

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


class LedgerTally:
    """Judges ledgers one by one, and counts."""

    def __init__(
        self,
        seen: NodesSeen,
        promises: Mapping[str, str],
        *,
        up: Collection[InstanceId],
        doubt_below: Mapping[InstanceId, LedgerId] | None = None,
        queued: Collection[LedgerId] = (),
    ) -> None:
        self.judged = LedgersJudged()
        self._promises = promises
        self._seen = seen
        self._up = up
        self._doubt_below = doubt_below or {}
        self._queued = queued
        self._planner = PlacementPlanner(seen)
        self._streams: Counter[str] = Counter()

    def add(self, record: LedgerRecord) -> None:
        """Judge all fragments of a ledger."""
        self.judged.health.ledgers += 1
        stream = record.stream.partition("#")[0]
        members = {one.instance for each in record.fragments for one in each.ensemble}
        for instance, below in self._doubt_below.items():
            self.judged.doubtful[instance] += instance in members and record.ledger < below
        if record.ledger in self._queued:
            self._of(stream).queued.append(record.ledger)
        final = {extent.index: extent.count for extent in final_extents(record)}
        for index, fragment in enumerate(record.fragments):
            if index not in final or final[index]:
                shape = FragmentShape.of(record.quorum, fragment, self._up)
                self.judged.shapes.setdefault(shape, (stream, record.ledger))
            verdict = self._judge(record, index, stream, is_final=index in final)
            if final.get(index):
                self._judge_now(record, fragment, stream, verdict)

    def _judge(
        self, record: LedgerRecord, index: int, stream: str, *, is_final: bool
    ) -> FragmentVerdict:
        """Count a fragment by how it is placed."""
        health, survive = self.judged.health, self._promises.get(stream, "")
        verdict = judge_fragment(self._seen, record, record.fragments[index], survive)
        health.strict += verdict.placed is Adherence.STRICT
        health.soft += verdict.placed is Adherence.SOFT
        health.fail += verdict.placed is Adherence.FAIL
        if verdict.is_good:
            return verdict
        is_given_up = MemberState.REPLACED in verdict.states
        can_be_better = is_final and self._planner.is_mendable(record, index, survive)
        is_broken = bool(verdict.broken) and verdict.placed is Adherence.STRICT
        health.promises_broken += is_broken
        health.disks_given_up += is_given_up
        health.repairable += can_be_better
        if can_be_better or is_given_up or is_broken or verdict.placed is Adherence.FAIL:
            self._streams[stream] += 1
        if verdict.placed is Adherence.FAIL:
            self._of(stream).failed.add(record.ledger, verdict.why)
        elif is_final and (can_be_better or verdict.broken):
            self._of(stream).weak.add(record.ledger, verdict.broken or verdict.why)
            self._of(stream).mendable += can_be_better
        return verdict

    def _judge_now(
        self, record: LedgerRecord, fragment: Fragment, stream: str, verdict: FragmentVerdict
    ) -> None:
        """Count the effect on a fragment of nodes that are down or do not answer."""
        there = sum(
            1 << slot
            for slot, member in enumerate(fragment.ensemble)
            if member.instance in self._up
        )
        if there == (1 << len(fragment.ensemble)) - 1:
            return
        gone, down = [], []
        for member, state in zip(fragment.ensemble, verdict.states, strict=True):
            if state is MemberState.REPLACED:
                gone.append(member.node_id)
            elif member.instance not in self._up:
                down.append(member.node_id)
        masks = fragment.rule(record.quorum).write_masks()
        given_up = _mask_of(verdict.states, MemberState.REPLACED)
        if any(not mask & ~given_up for mask in masks):
            mirror = record.stream.partition("@")[2]
            flaws = self._of(stream).gone.setdefault(mirror, Flaws())
            flaws.add(record.ledger, ", ".join(gone))
            return
        if any(not mask & there for mask in masks):
            self._of(stream).unreadable.add(record.ledger, ", ".join(down))
            return
        survive = self._promises.get(stream, "")
        if not survive or verdict.broken:
            return
        places: tuple[Location | None, ...] = tuple(
            member.location if there >> slot & 1 else None
            for slot, member in enumerate(fragment.ensemble)
        )
        broken = promise_broken(Loss.parse(survive), record.quorum, places)
        if broken is not None:
            away = ", ".join([*gone, *down])
            self._of(stream).hurt.add(record.ledger, f"{broken}, while {away} is down")

    def _of(self, stream: str) -> StreamLedgers:
        return self.judged.streams.setdefault(stream, StreamLedgers())

    def total(self) -> LedgersJudged:
        """The totals, with streams named."""
        self.judged.health.streams_count = len(self._streams)
        self.judged.health.streams = dict(self._streams.most_common(_STREAMS_NAMED_MAX))
        return self.judged


def _mask_of(states: Sequence[MemberState], wanted: MemberState) -> int:
    return sum(1 << slot for slot, state in enumerate(states) if state is wanted)


def named(ledgers: Collection[LedgerId]) -> str:
    """A few ids in words."""
    shown = ", ".join(str(one) for one in sorted(ledgers)[:_LEDGERS_NAMED_MAX])
    more = len(ledgers) - _LEDGERS_NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown
