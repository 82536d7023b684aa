"""The numbers of an entry in its ledger and in its segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.entry_numbering import EntryNumbering
from geolog.protocol.ids import NO_ENTRY, EntryId, Epoch, LedgerId, SegmentEntry, Sequence
from geolog.protocol.stream_state import SegmentRecord


def segment_in_pieces(sizes: list[int]) -> list[list[int]]:
    """The naive model: a segment's entries, dealt out to ledgers of these sizes in order."""
    numbers = iter(range(sum(sizes)))
    return [[next(numbers) for _ in range(size)] for size in sizes]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 9))
def test_ledgers_that_share_a_segment_number_its_entries_as_the_naive_model(
    sizes: list[int], segment: int
) -> None:
    dealt: list[int] = []
    for ledger in segment_in_pieces(sizes):
        numbering = EntryNumbering(segment, SegmentEntry(ledger[0]))
        for entry, in_segment in enumerate(ledger):
            assert numbering.in_segment(EntryId(entry)) == in_segment
            assert numbering.in_ledger(SegmentEntry(in_segment)) == entry
        dealt += ledger
        earlier = [one for one in dealt if numbering.is_in_earlier(SegmentEntry(one))]
        assert earlier + ledger == dealt


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 60), st.integers(1, 3))
def test_a_header_belongs_to_one_entry_of_one_segment(
    first: int, entry: int, found: int, segment: int
) -> None:
    numbering = EntryNumbering(2, SegmentEntry(first))

    is_place = numbering.is_place_of(EntryId(entry), segment, SegmentEntry(found))

    assert is_place == ((segment, found) == (2, list(range(first, 100))[entry]))


def test_before_the_ledgers_first_entry_there_is_none() -> None:
    numbering = EntryNumbering(2, SegmentEntry(7))

    assert numbering.in_ledger(SegmentEntry(6)) == NO_ENTRY
    with pytest.raises(AssertionError, match="in a ledger before"):
        numbering.in_ledger(SegmentEntry(5))


def test_a_segment_of_the_list_numbers_its_entries_as_its_ledger_does() -> None:
    segment = SegmentRecord(
        segment=4,
        ledger=LedgerId(9),
        home_epoch=1,
        first_sequence=Sequence(100),
        owner_epoch=Epoch(1),
        activated_us=0,
    )

    assert segment.numbering == EntryNumbering(4, SegmentEntry(0))
    assert segment.numbering.in_ledger(SegmentEntry(3)) == 3
