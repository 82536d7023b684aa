"""Sources of copies: asked until every target has its entries or no source is left."""

import enum

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.copying import (
    CopyBatch,
    CopyEffect,
    Fetch,
    FetchRun,
    FragmentExtent,
    NoIntactCopy,
    final_extents,
    runs_of,
    with_extent,
    with_member,
    with_ring,
)
from geolog.protocol.ids import EntryId, Epoch, InstanceId, LedgerId
from geolog.protocol.ledger_state import Fragment, LedgerRecord, LedgerState, Member
from geolog.protocol.messages import Answer
from topology.location import Location
from topology.quorum import AckRule, QuorumConfig

QUORUM = QuorumConfig(ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2)
RULE = AckRule(QUORUM, ["a", "b", "c"])
H, A, C, U = Answer.HAVE, Answer.ABSENT, Answer.CORRUPT, Answer.UNKNOWN


def batch_of(
    *answers: list[Answer] | None,
    targets: int = 0b111,
    rule: AckRule = RULE,
    leaving: tuple[int, ...] = (),
) -> CopyBatch:
    """A batch with these answers of its members; None is a silent member."""
    count = max(len(one) for one in answers if one is not None)
    batch = CopyBatch(
        rule,
        first=EntryId(10),
        count=count,
        targets=targets,
        order=range(len(answers)),
        leaving=leaving,
    )
    for slot, one in enumerate(answers):
        if one is None:
            batch.on_silence(slot)
        else:
            batch.on_answers(slot, one)
    return batch


@pytest.mark.parametrize("answer", [A, C, U])
def test_an_entry_that_a_target_lacks_is_fetched_from_the_first_that_has_it(
    answer: Answer,
) -> None:
    batch = batch_of([H, H], [H, answer], [H, H])

    assert batch.start() == [Fetch(EntryId(11), 0, (1,))]


def test_one_fetch_serves_all_targets_that_lack_the_entry() -> None:
    assert batch_of([A], [H], [C]).start() == [Fetch(EntryId(10), 1, (0, 2))]


def test_members_that_are_not_targets_get_nothing() -> None:
    assert batch_of([A], [H], [A], targets=0b100).start() == [Fetch(EntryId(10), 1, (2,))]


def test_a_target_whose_copy_proves_damaged_gets_the_entry_too() -> None:
    batch = batch_of([H], [A], [H])
    batch.start()

    assert batch.on_failed_source(EntryId(10), 0, is_damaged=True) == [
        Fetch(EntryId(10), 2, (0, 1))
    ]


def test_a_source_that_does_not_answer_is_passed_over() -> None:
    batch = batch_of([H], [A], [H])
    batch.start()

    assert batch.on_failed_source(EntryId(10), 0, is_damaged=False) == [
        Fetch(EntryId(10), 2, (1,))
    ]


def test_an_entry_without_an_intact_copy_is_reported_and_not_made_up() -> None:
    assert batch_of([C], [A], [U]).start() == [NoIntactCopy(EntryId(10), (0, 1, 2), ())]


def test_a_silent_member_may_still_have_the_last_copy() -> None:
    assert batch_of([C], None, [A]).start() == [NoIntactCopy(EntryId(10), (0, 2), (1,))]


def test_a_source_that_falls_silent_may_still_have_the_last_copy() -> None:
    batch = batch_of([H], [A], [A])
    batch.start()

    assert batch.on_failed_source(EntryId(10), 0, is_damaged=False) == [
        NoIntactCopy(EntryId(10), (1, 2), (0,))
    ]


def test_a_leaving_member_is_a_source_but_not_a_target() -> None:
    # Slots 1 and 2 have new members; their former members are numbered after the three.
    batch = batch_of([A], [A], [A], [H], [A], targets=0b110, leaving=(1, 2))

    assert batch.start() == [Fetch(EntryId(10), 3, (1, 2))]
    assert batch.on_failed_source(EntryId(10), 3, is_damaged=True) == [
        NoIntactCopy(EntryId(10), (1, 2), ())
    ]


def test_a_leaving_member_is_asked_only_for_entries_of_its_slot() -> None:
    # One copy of each entry: 10 belongs in slot 0, 11 in slot 1.
    alone = AckRule(QuorumConfig(ensemble_size=2, write_quorum=1, ack_quorum=1), ["a", "b"])
    batch = batch_of([A, A], [A, A], [H, H], rule=alone, targets=0b11, leaving=(1,))

    assert batch.start() == [
        NoIntactCopy(EntryId(10), (0,), ()),
        Fetch(EntryId(11), 2, (1,)),
    ]


def test_a_silent_leaving_member_may_have_the_last_copy() -> None:
    batch = batch_of([A], [A], [A], None, targets=0b010, leaving=(1,))
    assert batch.start() == [NoIntactCopy(EntryId(10), (1,), (3,))]


def test_consecutive_entries_with_one_source_are_fetched_together() -> None:
    fetches = [
        Fetch(EntryId(entry), source, to)
        for entry, source, to in [
            (0, 1, (0,)), (1, 1, (0,)), (2, 1, (0,)),
            (3, 2, (0,)), (5, 2, (0,)), (6, 2, (0, 1)),
        ]
    ]  # fmt: skip

    assert list(runs_of(fetches, count_max=2)) == [
        FetchRun(1, (0,), EntryId(0), 2),
        FetchRun(1, (0,), EntryId(2), 1),
        FetchRun(2, (0,), EntryId(3), 1),
        FetchRun(2, (0,), EntryId(5), 1),
        FetchRun(2, (0, 1), EntryId(6), 1),
    ]


class Copy(enum.Enum):
    """True state of one member's copy of an entry."""

    INTACT = "intact"
    ABSENT = "absent"
    KNOWN_ROT = "known rot"
    UNNOTICED_ROT = "unnoticed rot"


SAID = {
    Copy.INTACT: H,
    Copy.UNNOTICED_ROT: H,
    Copy.ABSENT: A,
    Copy.KNOWN_ROT: C,
}


@attrs.frozen
class World:
    """An ensemble, with the true state of each member's copies."""

    rule: AckRule
    first: int
    copies: list[list[Copy]]
    silent: list[bool]
    """By slot: the member never answers."""
    mute: list[bool]
    """By slot: the member answers, but hands out nothing."""
    targets: int
    order: list[int]

    @property
    def count(self) -> int:
        return len(self.copies[0])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, size))
    config = QuorumConfig(
        ensemble_size=size, write_quorum=write_quorum, ack_quorum=write_quorum
    )
    count = draw(st.integers(1, 6))
    a_copy = st.sampled_from(list(Copy))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    return World(
        AckRule(config, ["r"] * size),
        draw(st.integers(0, 20)),
        draw(
            st.lists(
                st.lists(a_copy, min_size=count, max_size=count), min_size=size, max_size=size
            )
        ),
        draw(flags),
        draw(flags),
        draw(st.integers(0, (1 << size) - 1)),
        draw(st.permutations(range(size))),
    )


def copied(world: World) -> tuple[dict[int, set[int]], dict[int, NoIntactCopy], list[Fetch]]:
    """Where each entry was sent, the entries given up, and all requests."""
    batch = CopyBatch(
        world.rule,
        first=EntryId(world.first),
        count=world.count,
        targets=world.targets,
        order=world.order,
    )
    for slot, copies in enumerate(world.copies):
        if world.silent[slot]:
            batch.on_silence(slot)
        else:
            batch.on_answers(slot, [SAID[copy] for copy in copies])
    sent: dict[int, set[int]] = {}
    given_up: dict[int, NoIntactCopy] = {}
    asked: list[Fetch] = []
    effects: list[CopyEffect] = batch.start()
    while effects:
        effect = effects.pop()
        place = effect.entry - world.first
        if isinstance(effect, NoIntactCopy):
            assert place not in given_up
            given_up[place] = effect
            continue
        asked.append(effect)
        source = effect.source
        if world.mute[source]:
            effects += batch.on_failed_source(effect.entry, source, is_damaged=False)
        elif world.copies[source][place] is not Copy.INTACT:
            effects += batch.on_failed_source(effect.entry, source, is_damaged=True)
        else:
            sent[place] = set(effect.to)
    return sent, given_up, asked


@given(worlds())
def test_everything_that_can_be_copied_is_and_the_rest_is_reported(world: World) -> None:
    sent, given_up, asked = copied(world)

    assert len({(fetch.entry, fetch.source) for fetch in asked}) == len(asked)
    for place in range(world.count):
        members = world.rule.write_set(world.first + place)
        can_give = [
            slot
            for slot in members
            if world.copies[slot][place] is Copy.INTACT
            and not world.silent[slot]
            and not world.mute[slot]
        ]
        lacking = {
            slot
            for slot in members
            if world.targets >> slot & 1
            and not world.silent[slot]
            and world.copies[slot][place] in (Copy.ABSENT, Copy.KNOWN_ROT)
        }
        read = {fetch.source for fetch in asked if fetch.entry == world.first + place}
        found_rotten = {
            slot
            for slot in read
            if world.copies[slot][place] is Copy.UNNOTICED_ROT
            and not world.mute[slot]
            and world.targets >> slot & 1
        }
        assert read <= set(members)
        if not lacking:
            assert place not in sent
            assert place not in given_up
        elif can_give:
            assert sent[place] == lacking | found_rotten
            assert place not in given_up
        else:
            assert place not in sent
            assert set(given_up[place].to) == lacking | found_rotten


def member(name: str) -> Member:
    return Member(InstanceId(name), f"node-{name}", Location.parse("/r/k"))


def record_of(state: LedgerState, *first_entries: int, last: int | None = None) -> LedgerRecord:
    ensemble = tuple(member(name) for name in "abc")
    return LedgerRecord(
        ledger=LedgerId(1),
        state=state,
        epoch=Epoch(1),
        quorum=QUORUM,
        fragments=tuple(Fragment(EntryId(first), ensemble) for first in first_entries),
        last_entry=None if last is None else EntryId(last),
    )


def extents_of(record: LedgerRecord) -> list[tuple[int, int, int]]:
    """First entry, last entry and count of each extent."""
    return [
        (extent.fragment.first_entry, extent.last, extent.count)
        for extent in final_extents(record)
    ]


def test_a_closed_ledger_is_final_to_its_end() -> None:
    record = record_of(LedgerState.CLOSED, 0, 5, last=8)

    assert extents_of(record) == [(0, 4, 5), (5, 8, 4)]


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_the_last_fragment_of_a_ledger_that_is_not_closed_is_not_final(
    state: LedgerState,
) -> None:
    assert extents_of(record_of(state, 0, 5)) == [(0, 4, 5)]
    assert extents_of(record_of(state, 0)) == []


def test_a_ledger_may_end_before_its_last_fragment() -> None:
    assert extents_of(record_of(LedgerState.CLOSED, 0, 5, last=4)) == [(0, 4, 5), (5, 4, 0)]
    assert extents_of(record_of(LedgerState.CLOSED, 0, last=-1)) == [(0, -1, 0)]


def test_a_member_is_replaced_in_one_fragment_only() -> None:
    record = record_of(LedgerState.CLOSED, 0, 5, last=8)
    changed = with_member(final_extents(record)[0], InstanceId("b"), member("d"))

    after = with_extent(record, changed)

    names = [[one.instance for one in fragment.ensemble] for fragment in after.fragments]
    assert names == [["a", "d", "c"], ["a", "b", "c"]]


def test_several_members_are_replaced_at_once_and_those_that_answer_are_leaving() -> None:
    [extent] = final_extents(record_of(LedgerState.CLOSED, 0, last=8))
    ring = [member("d"), member("b"), member("e")]

    changed = with_ring(extent, ring, answering={InstanceId("c")})

    assert [one.instance for one in changed.fragment.ensemble] == ["d", "b", "e"]
    assert [(slot, one.instance) for slot, one in changed.leaving] == [(2, "c")]
    assert attrs.evolve(changed, leaving=()) == changed  # Equal apart from `leaving`.


def test_the_last_fragment_of_an_open_ledger_cannot_be_changed_by_others() -> None:
    record = record_of(LedgerState.OPEN, 0)
    extent = FragmentExtent(0, record.fragments[0], EntryId(-1))

    with pytest.raises(AssertionError):
        with_extent(record, extent)
