"""The place of a batch that the log had before is told only if the log has it in one piece."""

import pytest

from geolog.protocol.ids import DLSN, Sequence
from geolog.protocol.owner_answers import FirstPlace, Placed, Unknown, place_of_all


def first_places(*at: tuple[int, int, int]) -> tuple[FirstPlace, ...]:
    """Entry, slot and sequence of each record."""
    return tuple(FirstPlace(DLSN(4, entry, slot), Sequence(one)) for entry, slot, one in at)


def test_a_batch_that_is_in_the_log_whole_has_one_place() -> None:
    assert place_of_all(first_places((7, 2, 74), (7, 3, 75))) == Placed(4, 7, 2, Sequence(74))


@pytest.mark.parametrize(
    "at",
    [((7, 0, 74), (9, 0, 75)), ((7, 0, 74), (7, 1, 76)), ((7, 1, 74), (8, 2, 75))],
    ids=["two-entries", "others-between", "two-entries-slots-in-a-row"],
)
def test_records_that_are_in_the_log_apart_have_no_place_as_a_batch(
    at: tuple[tuple[int, int, int], ...],
) -> None:
    assert isinstance(place_of_all(first_places(*at)), Unknown)
