"""Missing copies, against a naive list of all expected copies."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.copy_tally import RANGES_MAX, CopyTally, MissingCopies
from geolog.protocol.ids import EntryId
from tests.pure.topology.naive import naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule, QuorumConfig

REGIONS = "abcde"


def tally_of(quorums: str = "3/3/2 m1", *, first: int = 0) -> CopyTally:
    config = quorum_of(quorums)
    rule = AckRule(config, REGIONS[: config.ensemble_size])
    return CopyTally(rule, first=EntryId(first))


def confirmed(tally: CopyTally, slot: int, *entries: int) -> None:
    for entry in entries:
        tally.on_confirmed(slot, EntryId(entry))


def missing(tally: CopyTally, last: int) -> list[tuple[int, int, int]]:
    return [(one.slot, one.first, one.last) for one in tally.missing(EntryId(last))]


def test_an_empty_ledger_misses_no_copies() -> None:
    assert missing(tally_of(), -1) == []


def test_entries_unconfirmed_at_the_end_are_missing() -> None:
    tally = tally_of()
    confirmed(tally, 0, 0, 1, 2)
    confirmed(tally, 1, 0)
    confirmed(tally, 2, 0, 1, 2)

    assert missing(tally, 2) == [(1, 1, 2)]
    assert tally.is_awaited(1, EntryId(2))
    assert not tally.is_awaited(0, EntryId(2))


def test_entries_skipped_while_a_member_was_away_are_missing_and_not_awaited() -> None:
    tally = tally_of()
    confirmed(tally, 0, 0, 1, 5, 6)

    assert missing(tally, 6)[0] == (0, 2, 4)
    assert not tally.is_awaited(0, EntryId(6))


def test_entries_confirmed_late_are_not_missing() -> None:
    tally = tally_of()
    confirmed(tally, 0, 0, 5, 2, 1, 4, 3)

    assert (0, 1, 4) not in missing(tally, 5)
    assert missing(tally, 5)[0][0] == 1


def test_only_entries_of_a_slots_write_sets_are_expected_of_it() -> None:
    tally = tally_of("3/1/1 m1")
    confirmed(tally, 0, 0, 3)
    confirmed(tally, 1, 1, 4)
    confirmed(tally, 2, 2, 5)

    assert missing(tally, 5) == []


def test_a_replaced_member_leaves_its_missing_copies_behind() -> None:
    tally = tally_of()
    for slot in (0, 1):
        confirmed(tally, slot, *range(10))
    confirmed(tally, 2, 0, 1, 2)
    tally.on_replaced(2, EntryId(5))
    confirmed(tally, 2, *range(5, 10))

    assert missing(tally, 9) == [(2, 3, 4)]


def test_a_new_member_starts_over_in_its_fragment() -> None:
    tally = tally_of()
    for slot in (0, 1, 2):
        confirmed(tally, slot, *range(10))
    tally.on_replaced(2, EntryId(5))

    assert missing(tally, 9) == [(2, 5, 9)]


@attrs.define
class NaiveTally:
    config: QuorumConfig
    first: int
    has: dict[int, set[int]] = attrs.field(factory=dict)

    def confirm(self, slot: int, entry: int) -> None:
        self.has.setdefault(slot, set()).add(entry)

    def replace(self, slot: int, first: int) -> None:
        self.has[slot] = {entry for entry in self.has.get(slot, set()) if entry < first}

    def missing(self, last: int) -> set[tuple[int, int]]:
        return {
            (slot, entry)
            for entry in range(self.first, last + 1)
            for slot in naive_write_set(self.config, entry)
            if entry not in self.has.get(slot, set())
        }


STEPS = st.lists(
    st.tuples(st.sampled_from(["next", "next", "next", "skip", "any", "replace"]),
              st.integers(0, 4), st.integers(0, 120)),
    max_size=150,
)  # fmt: skip


@given(
    st.sampled_from(["1/1/1 m1", "3/3/2 m1", "3/2/2 m1", "5/3/2 m1"]), st.integers(0, 7), STEPS
)
def test_the_tally_agrees_with_the_naive_one(
    quorums: str, first: int, steps: list[tuple[str, int, int]]
) -> None:
    config = quorum_of(quorums)
    tally, naive = tally_of(quorums, first=first), NaiveTally(config, first)
    highest = [first - 1] * config.ensemble_size
    fragment_first = first
    for kind, any_slot, number in steps:
        slot = any_slot % config.ensemble_size
        match kind:
            case "replace":
                fragment_first = max(fragment_first, number % (max(highest) + 2))
                tally.on_replaced(slot, EntryId(fragment_first))
                naive.replace(slot, fragment_first)
                highest[slot] = max(first, fragment_first) - 1
                continue
            case "any":
                entry = fragment_first + number % 40
            case _:
                entry = highest[slot] + 1 + (number % 5 if kind == "skip" else 0)
        while slot not in naive_write_set(config, entry):
            entry += 1
        tally.on_confirmed(slot, EntryId(entry))
        naive.confirm(slot, entry)
        highest[slot] = max(highest[slot], entry)

    last = EntryId(max(highest))
    said = {
        (one.slot, entry)
        for one in tally.missing(last)
        for entry in range(one.first, one.last + 1)
        if one.slot in naive_write_set(config, entry)
    }
    assert naive.missing(last) <= said
    if all(count < RANGES_MAX for count in _ranges_of(tally.missing(last)).values()):
        assert said == naive.missing(last)


def _ranges_of(found: list[MissingCopies]) -> dict[int, int]:
    return {one.slot: sum(other.slot == one.slot for other in found) for one in found}


def test_a_member_that_comes_and_goes_costs_a_bounded_number_of_ranges() -> None:
    tally = tally_of()
    confirmed(tally, 0, *range(0, 1000, 2))

    ranges = [one for one in tally.missing(EntryId(998)) if one.slot == 0]
    assert len(ranges) <= RANGES_MAX + 1
    assert {entry for one in ranges for entry in range(one.first, one.last + 1)} >= set(
        range(1, 998, 2)
    )
