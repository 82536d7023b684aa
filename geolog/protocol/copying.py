"""Finds the missing copies of a fragment's entries, and a source for each.

Theory of operation. Only final entries are copied: those of a CLOSED ledger, and those of
fragments before the last of any other ledger. The copier takes them one batch at a time. Every
member says which entries of the batch it has. A target is a member that must end up with all
entries of its own write sets. Each entry that a target lacks is fetched from the first member,
in order of preference, that says HAVE. If the copy there proves damaged, or the member does not
hand it out, the next member is tried; a target whose copy proves damaged joins those that lack
it. When no source is left, the core says so. It never makes up an entry.

When members leave a fragment and others take their slots, the leaving members are asked too.
They are numbered after the slots of the ensemble, each with the slot that it leaves, and are
never targets.

Invariants.
1. A member is asked at most once for an entry, and only if it is in the entry's write set or is
   leaving one of its slots.
2. For an entry that a target lacks, a fetch is under way, or the entry was sent to all such
   targets, or `NoIntactCopy` was returned, once.

Rules: PROTOCOL C1, C2 and C13.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from geolog.protocol.ids import EntryId, InstanceId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import Answer
from topology.quorum import AckRule


@attrs.frozen
class FragmentExtent:
    """A fragment whose entries are final, up to `last`."""

    index: int
    fragment: Fragment
    last: EntryId
    leaving: tuple[tuple[int, Member], ...] = attrs.field(default=(), eq=False)
    """Former members with the slots that they had: they may still have the entries."""

    @property
    def count(self) -> int:
        """Number of entries in it."""
        return self.last - self.fragment.first_entry + 1

    def slot_of(self, instance: InstanceId) -> int | None:
        """The slot of the instance in the ensemble, or None."""
        members = [member.instance for member in self.fragment.ensemble]
        return members.index(instance) if instance in members else None


def final_extents(record: LedgerRecord) -> list[FragmentExtent]:
    """The fragments whose entries are final, in order. In a CLOSED ledger these are all."""
    ends = [EntryId(fragment.first_entry - 1) for fragment in record.fragments[1:]]
    if record.state is LedgerState.CLOSED:
        assert record.last_entry is not None
        ends.append(record.last_entry)
    return [
        # A ledger may end before its last fragment begins; that fragment is then empty.
        FragmentExtent(index, record.fragments[index], max(last, _last_before(record, index)))
        for index, last in enumerate(ends)
    ]


def _last_before(record: LedgerRecord, index: int) -> EntryId:
    return EntryId(record.fragments[index].first_entry - 1)


def with_member(extent: FragmentExtent, gone: InstanceId, new: Member) -> FragmentExtent:
    """The extent with `new` in the slot of `gone`, as it will be once the copies are there."""
    slot = extent.slot_of(gone)
    assert slot is not None, f"{gone} is not in the ensemble"
    assert extent.slot_of(new.instance) is None, f"{new.instance} is in the ensemble already"
    ensemble = list(extent.fragment.ensemble)
    ensemble[slot] = new
    return attrs.evolve(
        extent, fragment=attrs.evolve(extent.fragment, ensemble=tuple(ensemble))
    )


def with_ring(
    extent: FragmentExtent, ring: Sequence[Member], *, answering: Collection[InstanceId]
) -> FragmentExtent:
    """The extent with these members. Former members that answer become `leaving`."""
    before = extent.fragment.ensemble
    assert len(ring) == len(before), f"{len(ring)} members for {len(before)} slots"
    assert len({member.instance for member in ring}) == len(ring), "a member is there twice"
    return attrs.evolve(
        extent,
        fragment=attrs.evolve(extent.fragment, ensemble=tuple(ring)),
        leaving=tuple(
            (slot, old)
            for slot, (old, new) in enumerate(zip(before, ring, strict=True))
            if old.instance != new.instance and old.instance in answering
        ),
    )


def with_extent(record: LedgerRecord, extent: FragmentExtent) -> LedgerRecord:
    """The record with this fragment in place of the one at the same index.

    Its members no longer count as `arriving`.
    """
    is_last = extent.index == len(record.fragments) - 1
    assert record.state is LedgerState.CLOSED or not is_last, "only its holder may change it"
    fragments = list(record.fragments)
    assert fragments[extent.index].first_entry == extent.fragment.first_entry
    fragments[extent.index] = extent.fragment
    members = [member.instance for member in extent.fragment.ensemble]
    return attrs.evolve(record, fragments=tuple(fragments)).without_arriving(members)


@attrs.frozen
class Fetch:
    """Read the entry at member `source`, check it, and send it to the members `to`."""

    entry: EntryId
    source: int
    to: tuple[int, ...]


@attrs.frozen
class NoIntactCopy:
    """No answering member has the entry intact; a `silent` one still may."""

    entry: EntryId
    to: tuple[int, ...]
    silent: tuple[int, ...]


CopyEffect = Fetch | NoIntactCopy


@attrs.frozen
class FetchRun:
    """Consecutive entries with the same source and the same targets."""

    source: int
    to: tuple[int, ...]
    first: EntryId
    count: int


class CopyBatch:
    """The core of copying one batch. `targets` is a mask; `order` names each slot once.

    `leaving` lists, for each leaving member behind the ensemble, the slot that it leaves.
    """

    def __init__(
        self,
        rule: AckRule,
        *,
        first: EntryId,
        count: int,
        targets: int,
        order: Sequence[int],
        leaving: Sequence[int] = (),
    ) -> None:
        size = rule.config.ensemble_size
        assert sorted(order) == list(range(size + len(leaving)))
        assert targets >> size == 0, "a leaving member cannot be a target"
        self._rule = rule
        self._leaving = tuple(enumerate(leaving, start=size))
        self._first = first
        self._count = count
        self._targets = targets
        self._order = tuple(order)
        self._have = [0] * count  # Per entry: untried slots that said HAVE.
        self._lack = [0] * count  # Per entry: targets that need the entry.
        self._silent = 0

    def on_answers(self, slot: int, answers: Sequence[Answer]) -> None:
        """A member said which entries of the batch it has, entry by entry."""
        assert len(answers) == self._count
        for place, answer in enumerate(answers):
            if not self._write_mask(place) >> slot & 1:
                continue  # Not in this entry's write set: its answer does not count.
            if answer is Answer.HAVE:
                self._have[place] |= 1 << slot
            else:
                self._lack[place] |= 1 << slot & self._targets

    def on_silence(self, slot: int) -> None:
        """A member does not answer; it can be neither source nor target now."""
        self._silent |= 1 << slot

    def start(self) -> list[CopyEffect]:
        """Fetch what is missing, once all members have answered or are silent."""
        return [self._next(place) for place in range(self._count) if self._lack[place]]

    def on_failed_source(
        self, entry: EntryId, source: int, *, is_damaged: bool
    ) -> list[CopyEffect]:
        """The source's copy is damaged, or it did not hand it out: try the next in order."""
        place = entry - self._first
        if is_damaged:
            self._lack[place] |= 1 << source & self._targets
        else:
            self._silent |= 1 << source  # It said HAVE, so it may deliver another time.
        return [self._next(place)]

    def _next(self, place: int) -> CopyEffect:
        entry = EntryId(self._first + place)
        to = tuple(_slots(self._lack[place]))
        for slot in self._order:
            if self._have[place] >> slot & 1:
                self._have[place] &= ~(1 << slot)
                return Fetch(entry, slot, to)
        return NoIntactCopy(entry, to, tuple(_slots(self._silent & self._write_mask(place))))

    def _write_mask(self, place: int) -> int:
        mask = self._rule.write_mask(self._first + place)
        for behind, slot in self._leaving:
            mask |= (mask >> slot & 1) << behind
        return mask


def runs_of(fetches: Iterable[Fetch], *, count_max: int) -> Iterator[FetchRun]:
    """Merge fetches of rising entries into runs, so that one request covers several."""
    run: FetchRun | None = None
    for fetch in fetches:
        if (
            run is not None
            and (run.source, run.to) == (fetch.source, fetch.to)
            and fetch.entry == run.first + run.count
            and run.count < count_max
        ):
            run = attrs.evolve(run, count=run.count + 1)
            continue
        if run is not None:
            yield run
        run = FetchRun(fetch.source, fetch.to, fetch.entry, 1)
    if run is not None:
        yield run


def _slots(mask: int) -> Iterator[int]:
    return (slot for slot in range(mask.bit_length()) if mask >> slot & 1)
