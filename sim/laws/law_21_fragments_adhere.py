"""Law 21: no fragment fails its policy, and each is as well placed as could be.

FAIL is never due: what cannot be placed is not written. A SOFT ensemble is in order only where
no STRICT one was to be had. What was to be had is what whoever chose surely could have used:
nodes that had been up and writable for a while, in a world in which nothing but processes had
ended so far, so that none of them was slow or out of reach. All rings of those are tried.
"""

import itertools
from collections.abc import Iterator

import attrs
import trio

from geolog.metadata.documents import open_document
from geolog.metadata.nodes import NodeRecord
from geolog.metadata.paths import ClusterPaths
from geolog.protocol.ids import LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord
from sim.laws.seen import Look
from sim.world.seams import CLUSTER
from topology.placement import Adherence, adherence_of

ENDINGS = frozenset(
    {"kill-client", "kill-node", "power-loss-all", "power-loss-node", "power-loss-region"}
)
"""Faults that end processes and do nothing else."""

_STEADY_S = 5.0
"""How long a node has been writable that whoever chose must have known of."""
_AVOIDED_S = 40.0
"""How long ago it started, if it was not there from the beginning: as long a node that failed
may be avoided, and a little more."""
_PATHS = ClusterPaths(CLUSTER)


@attrs.define
class FragmentsAdhere:
    """Keeps the records that were looked at, and since when nodes are as they are."""

    _looked_at: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)
    _writable_since_s: dict[str, float] = attrs.field(factory=dict)
    """By instance."""
    _started_s: dict[str, float] = attrs.field(factory=dict)
    """By process, but for those of the beginning."""

    def breaches(self, now: Look) -> Iterator[str]:
        """Look at the ledgers that have changed."""
        steady = self._steady_nodes(now)
        for ledger, record in now.ledgers.items():
            before = self._looked_at.get(ledger)
            if before is record:
                continue
            self._looked_at[ledger] = record
            yield from _breaches_of_record(record, now)
            if steady is not None:
                yield from choices_that_fell_short(before, record, steady)

    def _steady_nodes(self, now: Look) -> dict[str, str] | None:
        """Regions by instance of nodes that surely could be used; None if nothing is sure."""
        world, now_s = now.world, trio.current_time()
        for process in world.processes.values():
            if process.incarnation > 1:
                self._started_s.setdefault(process.key, now_s)
        writable = self._writable_nodes(now)
        self._writable_since_s = {
            instance: self._writable_since_s.get(instance, now_s) for instance in writable
        }
        is_sure = (
            ENDINGS.issuperset(world.struck)
            and not world.options.links.stall_chance
            and not world.options.knobs.is_room_tight
        )
        if not is_sure:
            return None
        return {
            instance: record.location.region
            for instance, record in writable.items()
            if now_s - self._writable_since_s[instance] > _STEADY_S
            and self._is_old(now, record.node_id, now_s)
        }

    def _is_old(self, now: Look, node_id: str, now_s: float) -> bool:
        process = now.world.processes.get(node_id)
        if process is None:
            return False
        return now_s - self._started_s.get(process.key, -_AVOIDED_S) > _AVOIDED_S

    def _writable_nodes(self, now: Look) -> dict[str, NodeRecord]:
        nodes = now.world.store.tree.nodes
        if _PATHS.nodes_live not in nodes:
            return {}
        paths = [
            f"{_PATHS.nodes_live}/{name}" for name in sorted(nodes[_PATHS.nodes_live].children)
        ]
        records = [open_document(nodes[path].data, NodeRecord, path=path) for path in paths]
        return {record.instance: record for record in records if record.is_writable}


def _breaches_of_record(record: LedgerRecord, now: Look) -> Iterator[str]:
    """What no fragment may be, whatever there was to choose from."""
    for fragment in record.fragments:
        regions = _regions_of(fragment)
        if adherence_of(record.quorum, regions) is Adherence.FAIL:
            yield f"ledger {record.ledger} has a fragment in {regions} for {record.quorum}"
        if len({member.instance for member in fragment.ensemble}) < len(regions):
            yield f"ledger {record.ledger} has a fragment with one member twice"
        for member in fragment.ensemble:
            location = now.world.nodes[member.node_id].location
            if str(member.location) != location:
                yield (
                    f"ledger {record.ledger} believes {member.node_id} at {member.location},"
                    f" it stands at {location}"
                )


def choices_that_fell_short(
    before: LedgerRecord | None, record: LedgerRecord, steady: dict[str, str]
) -> Iterator[str]:
    """Where a fragment was chosen since the last look, and a better one was there."""
    known = {} if before is None else {one.first_entry: one for one in before.fragments}
    previous: Fragment | None = None
    for fragment in record.fragments:
        is_new = known.get(fragment.first_entry) != fragment
        if is_new and adherence_of(record.quorum, _regions_of(fragment)) is Adherence.SOFT:
            base = known.get(fragment.first_entry) or previous
            better = _strict_ring(record, fragment, base, steady)
            if better is not None:
                yield (
                    f"ledger {record.ledger} got an ensemble in {_regions_of(fragment)} for"
                    f" {record.quorum}, where {better} were to be had"
                )
        previous = fragment


def _strict_ring(
    record: LedgerRecord, fragment: Fragment, base: Fragment | None, steady: dict[str, str]
) -> list[str] | None:
    """Regions of a STRICT ring of steady nodes; members that `base` had already are kept."""
    kept: list[str | None] = [None] * len(fragment.ensemble)
    taken = set()
    if base is not None:
        taken = {member.instance for member in base.ensemble}
        for slot, (old, new) in enumerate(zip(base.ensemble, fragment.ensemble, strict=True)):
            if old.instance == new.instance:
                kept[slot] = old.location.region
    free = {node: region for node, region in steady.items() if node not in taken}
    open_slots = [slot for slot, region in enumerate(kept) if region is None]
    for chosen in itertools.permutations(free, len(open_slots)):
        ring = list(kept)
        for slot, node in zip(open_slots, chosen, strict=True):
            ring[slot] = free[node]
        regions = [region for region in ring if region is not None]
        if adherence_of(record.quorum, regions) is Adherence.STRICT:
            return regions
    return None


def _regions_of(fragment: Fragment) -> list[str]:
    return [member.location.region for member in fragment.ensemble]
