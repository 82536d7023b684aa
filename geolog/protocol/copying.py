"""Which copies of a fragment's entries are missing, and from where each can be had again.

Theory of operation. Only entries that are final are copied: those of a CLOSED ledger, and those
of the fragments before the last of one that is not. They are taken a batch at a time. Every
member says what it has of the batch; a target is a member that is to have all of its own
entries afterwards. What a target lacks is fetched from the first member, in the order of
preference, that says HAVE. One that turns out to be damaged there, or is not handed out, is
fetched from the next; a target that was found damaged so is among those that lack it. When
nobody is left to ask, that is said, and nothing is ever made up in its place.

When members leave a fragment whose place others take, those that leave are asked as well: they
stand behind the slots of the ensemble, each for the slot that it leaves, and are never targets.

Invariants.
1. No member is asked twice for one entry, and none outside the entry's write set but those that
   leave it.
2. Of an entry that some target lacks, either a fetch is under way, or it was sent to all of
   these, or `NoIntactCopy` was said, once.

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
    """A fragment whose entries are final: `last` is its last entry."""

    index: int
    fragment: Fragment
    last: EntryId
    leaving: tuple[tuple[int, Member], ...] = attrs.field(default=(), eq=False)
    """Members that had a slot of it before others, by that slot: they may have its entries."""

    @property
    def count(self) -> int:
        """How many entries it has."""
        return self.last - self.fragment.first_entry + 1

    def slot_of(self, instance: InstanceId) -> int | None:
        """Where the instance stands in the ensemble; None if it does not."""
        members = [member.instance for member in self.fragment.ensemble]
        return members.index(instance) if instance in members else None


def final_extents(record: LedgerRecord) -> list[FragmentExtent]:
    """The fragments whose entries are final, in order; of a CLOSED ledger these are all."""
    ends = [EntryId(fragment.first_entry - 1) for fragment in record.fragments[1:]]
    if record.state is LedgerState.CLOSED:
        assert record.last_entry is not None
        ends.append(record.last_entry)
    return [
        # A ledger may end before its last fragment begins; that one is empty then.
        FragmentExtent(index, record.fragments[index], max(last, _last_before(record, index)))
        for index, last in enumerate(ends)
    ]


def _last_before(record: LedgerRecord, index: int) -> EntryId:
    return EntryId(record.fragments[index].first_entry - 1)


def with_member(extent: FragmentExtent, gone: InstanceId, new: Member) -> FragmentExtent:
    """The extent with `new` in the slot of `gone`: as it is to be when its copies are there."""
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
    """The extent with these members; those of the others that answer are `leaving`."""
    before = extent.fragment.ensemble
    assert len(ring) == len(before), f"{len(ring)} members for {len(before)} slots"
    assert len({member.instance for member in ring}) == len(ring), "a member stands there twice"
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
    """The record with this fragment in the place of the one of that index.

    Its members have arrived.
    """
    is_last = extent.index == len(record.fragments) - 1
    assert record.state is LedgerState.CLOSED or not is_last, "its writer's, or recovery's"
    fragments = list(record.fragments)
    assert fragments[extent.index].first_entry == extent.fragment.first_entry
    fragments[extent.index] = extent.fragment
    members = [member.instance for member in extent.fragment.ensemble]
    return attrs.evolve(record, fragments=tuple(fragments)).without_arriving(members)


@attrs.frozen
class Fetch:
    """Read the entry at the member `source`, check it, and send it to those at `to`."""

    entry: EntryId
    source: int
    to: tuple[int, ...]


@attrs.frozen
class NoIntactCopy:
    """No member that answers has the entry intact; one of the `silent` ones still may."""

    entry: EntryId
    to: tuple[int, ...]
    silent: tuple[int, ...]


CopyEffect = Fetch | NoIntactCopy


@attrs.frozen
class FetchRun:
    """Entries that follow each other, have one source, and go to the same members."""

    source: int
    to: tuple[int, ...]
    first: EntryId
    count: int


class CopyBatch:
    """The core of copying one batch. `targets` is a mask; `order` names each slot once.

    `leaving` are the slots that members leave which stand behind the ensemble, in their order.
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
        assert targets >> size == 0, "who leaves is no target"
        self._rule = rule
        self._leaving = tuple(enumerate(leaving, start=size))
        self._first = first
        self._count = count
        self._targets = targets
        self._order = tuple(order)
        self._have = [0] * count  # By entry, the slots that say HAVE and were not tried.
        self._lack = [0] * count  # By entry, the targets that said they do not have it.
        self._silent = 0

    def on_answers(self, slot: int, answers: Sequence[Answer]) -> None:
        """A member said what it has of the batch, entry by entry."""
        assert len(answers) == self._count
        for place, answer in enumerate(answers):
            if not self._write_mask(place) >> slot & 1:
                continue  # Not of this entry's write set: what it has is not counted on.
            if answer is Answer.HAVE:
                self._have[place] |= 1 << slot
            else:
                self._lack[place] |= 1 << slot & self._targets

    def on_silence(self, slot: int) -> None:
        """A member does not answer: it can be neither source nor target now."""
        self._silent |= 1 << slot

    def start(self) -> list[CopyEffect]:
        """When all have spoken or are silent: what is to be fetched."""
        return [self._next(place) for place in range(self._count) if self._lack[place]]

    def on_failed_source(
        self, entry: EntryId, source: int, *, is_damaged: bool
    ) -> list[CopyEffect]:
        """The entry was not to be had there, damaged or not handed out: the next in order."""
        place = entry - self._first
        if is_damaged:
            self._lack[place] |= 1 << source & self._targets
        else:
            self._silent |= 1 << source  # It said HAVE: that may be true another time.
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
    """Put fetches of rising entries together, so that one question asks for several."""
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
