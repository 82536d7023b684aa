"""The name of a mirror's last entry, and what may come behind it."""

from itertools import pairwise

import pytest

from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark


def watermark(home_epoch: int, segment: int, entry: int, header_crc: int = 0) -> Watermark:
    return Watermark(home_epoch, segment, SegmentEntry(entry), header_crc, Sequence(0))


HERE = watermark(2, 5, 7)


def test_watermarks_order_by_home_epoch_segment_and_entry() -> None:
    places = [(1, 9, 9), (2, 1, 0), (2, 1, 1), (2, 3, 0)]
    in_order = [watermark(*place, header_crc=9 - rank) for rank, place in enumerate(places)]

    assert all(one < other for one, other in pairwise(in_order))


def test_equal_places_with_other_checksums_are_different_watermarks() -> None:
    assert watermark(2, 5, 7, header_crc=1) != watermark(2, 5, 7, header_crc=2)


@pytest.mark.parametrize("place", [(2, 5, 8), (2, 6, 0), (2, 9, 0), (3, 6, 0)])
def test_the_next_entry_follows_in_its_segment_or_begins_a_later_one(
    place: tuple[int, int, int],
) -> None:
    home_epoch, segment, entry = place

    assert HERE.is_just_before(home_epoch, segment, SegmentEntry(entry))


@pytest.mark.parametrize(
    "place",
    [
        (2, 5, 7),
        (2, 5, 9),
        (3, 5, 8),  # A segment belongs to one home.
        (2, 6, 1),
        (1, 6, 0),
        (2, 4, 0),
    ],
)
def test_nothing_else_comes_behind_it(place: tuple[int, int, int]) -> None:
    home_epoch, segment, entry = place

    assert not HERE.is_just_before(home_epoch, segment, SegmentEntry(entry))
