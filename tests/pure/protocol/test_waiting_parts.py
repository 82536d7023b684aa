"""What shares an entry, against a naive model that cuts a list."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.waiting_parts import (
    ENTRIES_AT_ONCE,
    SHARED_BYTES_MAX,
    SHARED_PARTS_MAX,
    WaitingParts,
)
from geolog.wire.limits import ENTRY_BYTES_MAX


@attrs.frozen(eq=False)
class Batch:
    """A part of some size."""

    size_bytes: int
    is_alone: bool = False
    is_local_only: bool = False


def next_entry_of(parts: list[Batch]) -> list[Batch]:
    """The longest front of the list that may share an entry."""
    fit = [
        parts[:count]
        for count in range(1, len(parts) + 1)
        if count == 1
        or (
            count <= SHARED_PARTS_MAX
            and sum(one.size_bytes for one in parts[:count]) <= SHARED_BYTES_MAX
            and not any(one.is_alone for one in parts[:count])
            and len({one.is_local_only for one in parts[:count]}) == 1
        )
    ]
    return fit[-1]


SIZES = st.one_of(
    st.integers(1, 100),
    st.integers(SHARED_BYTES_MAX // 4, SHARED_BYTES_MAX + 1),
    st.just(SHARED_BYTES_MAX),
)
RARELY = st.booleans() | st.just(value=False)
PARTS = st.builds(Batch, SIZES, RARELY, RARELY)
STEPS = st.lists(PARTS | st.just("take"), max_size=60)


@given(STEPS)
def test_parts_leave_in_order_in_the_longest_entries_that_may_be(
    steps: list[Batch | str],
) -> None:
    waiting: WaitingParts[Batch] = WaitingParts()
    parts: list[Batch] = []
    for step in steps:
        if isinstance(step, Batch):
            waiting.push(step)
            parts.append(step)
        elif parts:
            entry = next_entry_of(parts)
            assert waiting.take_entry() == entry
            parts = parts[len(entry) :]

        assert list(waiting) == parts
        is_full = sum(one.size_bytes for one in parts) >= SHARED_BYTES_MAX
        assert waiting.leave_at_once(entries_unanswered=ENTRIES_AT_ONCE) == is_full
        assert waiting.leave_at_once(entries_unanswered=ENTRIES_AT_ONCE - 1)


def test_an_entry_of_the_most_and_longest_lines_is_within_the_limit() -> None:
    """A line has 41 bytes, a writer's id, gaps, and padding."""
    longest_line_bytes = 41 + 255 + 8192 + 7

    assert SHARED_BYTES_MAX + SHARED_PARTS_MAX * longest_line_bytes + 72 <= ENTRY_BYTES_MAX


def test_no_more_parts_share_an_entry_than_its_bound() -> None:
    waiting: WaitingParts[Batch] = WaitingParts()
    for _ in range(SHARED_PARTS_MAX + 1):
        waiting.push(Batch(1))

    assert len(waiting.take_entry()) == SHARED_PARTS_MAX
    assert len(waiting.take_entry()) == 1
