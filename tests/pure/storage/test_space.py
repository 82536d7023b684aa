"""Read-only before full, and back only when a good deal is free again."""

from hypothesis import given
from hypothesis import strategies as st

from regions.protocol.space import SpaceBound

RESERVE, COMPACTION = 100, 60
KEPT = RESERVE + COMPACTION


def a_bound(free_bytes: int) -> SpaceBound:
    bound = SpaceBound(reserve_bytes=RESERVE, compaction_bytes=COMPACTION)
    bound.on_look(free_bytes, needed_bytes=0, appended_bytes=0)
    return bound


def test_entries_stop_before_the_room_of_compaction_and_that_before_the_reserve() -> None:
    bound = a_bound(KEPT + 10)
    states = []
    for appended_bytes in (9, 10):
        bound.on_append(appended_bytes)
        states.append(bound.is_read_only)
    assert states == [False, True]
    assert bound.copyable_bytes(10) == COMPACTION
    assert bound.copyable_bytes(10 + COMPACTION) == 0


def test_what_was_taken_already_counts_as_used() -> None:
    bound = SpaceBound(reserve_bytes=RESERVE, compaction_bytes=COMPACTION)
    bound.on_look(KEPT + 50, needed_bytes=50, appended_bytes=0)
    assert bound.is_read_only


def test_it_comes_back_by_itself_but_not_for_a_few_bytes() -> None:
    bound = a_bound(KEPT)
    for free_bytes, is_read_only in ((KEPT + 1, True), (KEPT + 41, False), (KEPT + 1, False)):
        bound.on_look(free_bytes, needed_bytes=0, appended_bytes=0)
        assert bound.is_read_only is is_read_only


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400))))
def test_entries_never_eat_the_reserve(steps: list[tuple[bool, int]]) -> None:
    free_bytes, appended = 1000, 0
    bound = a_bound(free_bytes)
    for is_look, count in steps:
        if is_look:
            bound.on_look(free_bytes, needed_bytes=0, appended_bytes=appended)
            continue
        for _ in range(count):  # Entries of a byte each, taken as a node takes them.
            bound.on_append(appended)
            if not bound.is_read_only:
                appended, free_bytes = appended + 1, free_bytes - 1
    assert free_bytes >= KEPT
