"""Law 21: each chosen ensemble is as well placed as possible.

An ensemble that is not STRICT is right only if no better one was available: for a new ledger,
and when a writer or a recovery replaces members of an open fragment. The ledger's own policy is
the judge: the law tries all rings of steady nodes, and keeps members that stayed in their
slots. And nothing new lies in a region that had been forbidden for a while.
"""

import itertools
from collections.abc import Iterator, Sequence

import attrs

from geolog.protocol.ids import InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from sim.laws.state.seen import Look
from sim.laws.state.steady_nodes import Steady, SteadyNodes
from topology.location import Location
from topology.ring.window_rule import Adherence, rank_of
from topology.stream_policy import adherence_at

CHANGE_JUDGED = "change-judged"
"""Happens when members were replaced, and a STRICT ensemble was surely available."""

Ring = list[tuple[str, Location]]
"""Nodes and their locations, in the order of their slots."""


@attrs.frozen
class Choice:
    """An ensemble that was chosen, and the one before it, if members were replaced."""

    record: LedgerRecord
    fragment: Fragment
    base: Fragment | None

    @property
    def chosen(self) -> list[Member]:
        """The members that are new."""
        kept = self.kept
        return [one for slot, one in enumerate(self.fragment.ensemble) if kept[slot] is None]

    @property
    def kept(self) -> list[Member | None]:
        """The members that stayed, by slot."""
        if self.base is None:
            return [None] * len(self.fragment.ensemble)
        return [
            old if old.instance == new.instance else None
            for old, new in zip(self.base.ensemble, self.fragment.ensemble, strict=True)
        ]


@attrs.define
class BestChoice:
    """Keeps the records that were checked."""

    _nodes: SteadyNodes = attrs.field(factory=SteadyNodes)
    _looked_at: dict[LedgerId, LedgerRecord] = attrs.field(factory=dict)

    def breaches(self, now: Look) -> Iterator[str]:
        """Check the choices since the last look."""
        steady = self._nodes.look(now)
        for ledger, record in now.ledgers.items():
            before = self._looked_at.get(ledger)
            if before is record:
                continue
            self._looked_at[ledger] = record
            if steady is None:
                continue
            for choice in choices(before, record):
                if is_held_change(choice, steady):
                    now.history.happened.add(CHANGE_JUDGED)
                yield from breaches_of(choice, steady)


def choices(before: LedgerRecord | None, record: LedgerRecord) -> Iterator[Choice]:
    """The choices of writers and recoveries between two looks at a ledger.

    A change in a final fragment is a repair's, which takes longer to decide.
    """
    if before is not None and before.state is LedgerState.CLOSED:
        return
    known = {} if before is None else {one.first_entry: one for one in before.fragments}
    last = None if before is None else before.fragments[-1].first_entry
    previous: Fragment | None = None
    for fragment in record.fragments:
        base = known.get(fragment.first_entry)
        is_final = base is not None and fragment.first_entry != last
        if base != fragment and not is_final:
            yield Choice(record, fragment, base or previous)
        previous = fragment


def is_held_change(choice: Choice, steady: Steady) -> bool:
    """Whether members were replaced, and any ensemble that is not STRICT would be a breach.

    A change that only marks members as missing replaces none.
    """
    if choice.base is None or not choice.chosen:
        return False
    return _better_ring(choice, steady, Adherence.SOFT) is not None


def breaches_of(choice: Choice, steady: Steady) -> Iterator[str]:
    """The breaches of one choice, given the nodes that were available."""
    record, fragment = choice.record, choice.fragment
    for member in choice.chosen:
        if member.location.region in steady.forbidden:
            yield (
                f"ledger {record.ledger} got {member.node_id} in {member.location.region},"
                " a forbidden region"
            )
    found = _judge(record, _ring_of(fragment.ensemble))
    if found is Adherence.STRICT:
        return
    better = _better_ring(choice, steady, found)
    if better is not None:
        yield (
            f"ledger {record.ledger} got a {found.value} ensemble of"
            f" {_words(_ring_of(fragment.ensemble))} by {record.placement} for"
            f" {record.quorum}, but {_words(better)} was available"
        )


def _better_ring(choice: Choice, steady: Steady, found: Adherence) -> Ring | None:
    """A ring of steady nodes that is better placed, with the kept members in their slots."""
    taken: set[InstanceId] = set()
    if choice.base is not None:
        taken = {member.instance for member in choice.base.ensemble}
    free = [(node, place) for node, place in steady.nodes.items() if node not in taken]
    kept = choice.kept
    for some in itertools.permutations(free, kept.count(None)):
        left = iter(some)
        ring: Ring = [
            next(left) if member is None else (member.instance, member.location)
            for member in kept
        ]
        if rank_of(_judge(choice.record, ring)) > rank_of(found):
            return ring
    return None


def _judge(record: LedgerRecord, ring: Ring) -> Adherence:
    return adherence_at(record.placement, record.quorum, ring)


def _ring_of(ensemble: Sequence[Member]) -> Ring:
    return [(member.instance, member.location) for member in ensemble]


def _words(ring: Ring) -> str:
    return " ".join(str(place) for _, place in ring)
