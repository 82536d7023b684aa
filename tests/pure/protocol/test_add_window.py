"""The writer's window against a naive one, which is a list of sets."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.add_window import AddWindow, AdvanceLac, SendAdd
from geolog.protocol.ids import EntryId
from tests.pure.topology.naive import naive_ack, naive_write_set
from tests.pure.topology.notation import quorum_of
from topology.quorum import AckRule, QuorumConfig

QUORUMS = [
    "1/1/1 m1",
    "3/3/2 m1",
    "3/3/2 m2",
    "4/3/2 m2",
    "5/3/3 m2",
    "5/4/2 m2",
    "4/4/3 m2 count",
]


def window_of(entries_count: int, quorums: str = "3/3/2 m1", layout: str = "abc") -> AddWindow:
    window = AddWindow(AckRule(quorum_of(quorums), layout))
    for _ in range(entries_count):
        window.push()
    return window


def stored(window: AddWindow, acks: str) -> list[AdvanceLac]:
    """`1:0 2:0`: slot 1, then slot 2, synced entry 0."""
    pairs = [ack.split(":") for ack in acks.split()]
    return [
        effect
        for slot, entry in pairs
        for effect in window.on_synced(int(slot), EntryId(int(entry)))
    ]


def sent(effects: list[SendAdd]) -> str:
    """The sends in the same notation."""
    return " ".join(f"{effect.slot}:{effect.entry}" for effect in effects)


def test_an_entry_acked_early_waits_for_the_one_before_it() -> None:
    window = window_of(2)

    assert stored(window, "0:1 1:1") == []
    assert stored(window, "0:0 1:0") == [AdvanceLac(EntryId(1))]


def test_answers_of_one_region_alone_release_nothing() -> None:
    window = window_of(1, "3/3/2 m2", "aab")

    assert stored(window, "0:0 1:0") == []
    assert stored(window, "2:0") == [AdvanceLac(EntryId(0))]


def test_a_member_that_answers_twice_counts_once() -> None:
    assert stored(window_of(1), "0:0 0:0 0:0") == []


def test_an_answer_for_an_entry_never_pushed_fails_an_assertion() -> None:
    with pytest.raises(AssertionError, match="entry 2 was never pushed"):
        stored(window_of(2), "0:2")


def test_a_late_answer_for_an_acknowledged_entry_changes_nothing() -> None:
    window = window_of(1)
    stored(window, "0:0 1:0")

    assert stored(window, "2:0") == []
    assert window.statistics().in_flight_count == 0


def test_earlier_confirmations_of_a_lost_member_still_count() -> None:
    window = window_of(1)
    stored(window, "0:0")
    window.on_slot_lost(0)

    assert stored(window, "1:0") == [AdvanceLac(EntryId(0))]


def test_an_entry_is_sent_round_the_ring_but_not_to_lost_members() -> None:
    window = window_of(3, "4/3/2 m1", "abcd")
    window.on_slot_lost(0)

    assert sent(window.push()) == "3:3 1:3"


def test_a_member_that_comes_back_gets_exactly_what_it_lacks() -> None:
    window = window_of(4, "4/3/2 m1", "abcd")
    stored(window, "2:1")
    window.on_slot_lost(2)

    assert sent(window.on_slot_back(2)) == "2:0 2:2"


def test_entries_held_back_are_sent_later_unless_acknowledged_by_then() -> None:
    window = window_of(5)
    stored(window, "0:0 1:0 0:1 1:1 2:3")

    assert sent(window.lacking(2, first=EntryId(1))) == "2:2 2:4"
    assert sent(window.lacking(2, first=EntryId(4))) == "2:4"


def test_a_window_that_starts_above_a_lac_continues_its_numbering() -> None:
    window = AddWindow(AckRule(quorum_of("3/3/2 m1"), "abc"), lac=EntryId(6))

    assert window.entry_next == 7
    assert sent(window.push()) == "1:7 2:7 0:7"


def test_an_entry_is_stuck_when_only_lost_members_could_make_it_durable() -> None:
    window = window_of(2)
    stored(window, "0:0")
    window.on_slot_lost(0)
    window.on_slot_lost(1)

    assert window.first_stuck() == 1
    assert not window.can_go_on()


# ---------------------------------------------------------------- Ensemble change.


def change(window: AddWindow, slots: str, layout: str = "abc") -> list[AdvanceLac]:
    rule = AckRule(quorum_of("3/3/2 m1"), layout)
    return window.change(rule, [int(slot) for slot in slots])


def test_during_a_change_only_members_that_stay_can_acknowledge() -> None:
    window = window_of(2)
    window.hold([2])

    assert stored(window, "0:0 2:0") == []
    assert stored(window, "1:0") == [AdvanceLac(EntryId(0))]


def test_held_members_count_again_if_the_change_did_not_happen() -> None:
    window = window_of(1)
    window.hold([2])
    stored(window, "0:0 2:0")

    assert window.unhold() == [AdvanceLac(EntryId(0))]


def test_a_change_forgets_confirmations_of_replaced_members_only() -> None:
    window = window_of(2)
    stored(window, "2:0 2:1 0:1")
    window.hold([2])

    assert change(window, "2") == []
    assert sent(window.lacking(0)) == "0:0"
    assert sent(window.on_slot_back(2)) == "2:0 2:1"
    assert stored(window, "2:0 2:1") == []
    assert stored(window, "0:0") == [AdvanceLac(EntryId(1))]


def test_a_change_counts_regions_by_the_new_members() -> None:
    window = window_of(1, "3/3/2 m2", "aab")
    stored(window, "0:0 1:0")
    window.hold([1])

    assert window.change(AckRule(quorum_of("3/3/2 m2"), "abb"), [1]) == []
    assert stored(window, "1:0") == [AdvanceLac(EntryId(0))]


def test_new_members_are_lost_until_they_are_up() -> None:
    window = window_of(0)
    window.hold([1, 2])
    change(window, "12")

    assert window.statistics().slots_lost == (1, 2)
    assert sent(window.push()) == "0:0"


def test_a_slot_that_was_not_held_cannot_be_given_away() -> None:
    with pytest.raises(AssertionError, match="not held"):
        change(window_of(1), "1")


# ---------------------------------------------------------------- Against the naive window.


@attrs.define
class NaiveWindow:
    """Keeps everything ever stored, and computes each answer from scratch."""

    config: QuorumConfig
    layout: str
    stored_by: list[set[int]] = attrs.field(factory=list)
    lost: set[int] = attrs.field(factory=set)
    held: set[int] = attrs.field(factory=set)
    lac_before: int = -1

    def lac(self) -> int:
        """It never falls, even if held or forgotten slots no longer count."""
        acked = [
            entry <= self.lac_before or self.is_ack(entry, slots - self.held)
            for entry, slots in enumerate(self.stored_by)
        ]
        self.lac_before = acked.index(False) - 1 if False in acked else len(acked) - 1
        return self.lac_before

    def replace(self, slots: set[int]) -> None:
        self.lac()
        for stored_by in self.stored_by:
            stored_by -= slots
        self.lost |= slots
        self.held.clear()

    def is_ack(self, entry: int, slots: set[int]) -> bool:
        return naive_ack(self.config, self.layout, entry, slots)

    def present(self) -> set[int]:
        return set(range(len(self.layout))) - self.lost

    def lacking(self, slot: int) -> set[int]:
        above_lac = range(self.lac() + 1, len(self.stored_by))
        holders = {entry: naive_write_set(self.config, entry) for entry in above_lac}
        return {
            entry
            for entry in above_lac
            if slot in holders[entry] and slot not in self.stored_by[entry]
        }

    def stuck(self) -> list[int]:
        return [
            entry
            for entry, slots in enumerate(self.stored_by)
            if entry > self.lac() and not self.is_ack(entry, slots | self.present())
        ]


STEPS = st.lists(
    st.tuples(st.sampled_from(["push", "synced", "synced", "synced", "lost", "back", "hold",
                               "unhold", "change"]),
              st.integers(0, 4), st.integers(0, 30)),
    max_size=60,
)  # fmt: skip


@given(st.sampled_from(QUORUMS), st.text("abc", min_size=5, max_size=5), STEPS)
def test_the_window_agrees_with_the_naive_one_at_every_step(
    quorums: str, letters: str, steps: list[tuple[str, int, int]]
) -> None:
    config = quorum_of(quorums)
    layout = letters[: config.ensemble_size]
    naive = NaiveWindow(config, layout)
    window = AddWindow(AckRule(config, layout))

    for kind, any_slot, any_entry in [("push", 0, 0), *steps]:
        slot = any_slot % config.ensemble_size
        entry = any_entry % max(1, len(naive.stored_by))
        lac_before = naive.lac()
        match kind:
            case "push":
                number = len(naive.stored_by)
                naive.stored_by.append(set())

                assert window.entry_next == number
                assert {(add.slot, add.entry) for add in window.push()} == {
                    (holder, number) for holder in naive_write_set(config, number) - naive.lost
                }
            case "synced":
                naive.stored_by[entry].add(slot)
                released = window.on_synced(slot, EntryId(entry))

                assert naive.lac() >= lac_before
                assert released == (
                    [AdvanceLac(EntryId(naive.lac()))] if naive.lac() > lac_before else []
                )
            case "lost":
                naive.lost.add(slot)
                window.on_slot_lost(slot)
            case "hold":
                naive.held.add(slot)
                window.hold([slot])
            case "unhold":
                naive.held.clear()
                released = window.unhold()

                assert bool(released) == (naive.lac() > lac_before)
            case "change":
                gone = sorted(naive.held)
                layout = "".join(
                    "abc"[any_entry % 3] if place in gone else letter
                    for place, letter in enumerate(layout)
                )
                naive.layout = layout
                naive.replace(set(gone))
                released = window.change(AckRule(config, layout), gone)

                assert bool(released) == (naive.lac() > lac_before)
            case _:
                naive.lost.discard(slot)

                assert window.on_slot_back(slot) == [
                    SendAdd(slot, EntryId(lacked)) for lacked in sorted(naive.lacking(slot))
                ]
        agree(window, naive)


def agree(window: AddWindow, naive: NaiveWindow) -> None:
    oldest = naive.lac() + 1
    late = {slot for slot in range(len(naive.layout)) if oldest in naive.lacking(slot)}
    entries = range(len(naive.layout))

    assert window.lac == naive.lac()
    assert window.first_stuck() == next(iter(naive.stuck()), None)
    assert window.can_go_on() == all(naive.is_ack(entry, naive.present()) for entry in entries)
    assert set(window.slots_late()) == late
    assert window.statistics().in_flight_count == len(naive.stored_by) - oldest
    assert window.statistics().slots_lost == tuple(sorted(naive.lost))
    assert window.statistics().slots_held == tuple(sorted(naive.held))
