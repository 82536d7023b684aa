"""Locations, parsed and printed."""

import pytest

from topology.errors import InvalidArgumentError
from topology.location import Location


def test_a_location_reads_back_as_it_was_written() -> None:
    assert Location.parse("/eu-west/rack-1") == Location("eu-west", "rack-1")
    assert str(Location.parse("/eu-west/rack-1")) == "/eu-west/rack-1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "eu",
        "/eu",
        "eu/r1",
        "/eu/r1/",
        "/eu/r1//n1",
        "//r1",
        "/eu/",
        "/e u/r1",
        "/eu/r\n",
        "/.eu/r1",
    ],
)
def test_anything_else_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not of the form /REGION/RACK"):
        Location.parse(text)


def test_a_location_may_be_deeper_and_its_rack_is_everything_below_the_region() -> None:
    place = Location.parse("/eu-west/row-2/rack-1")

    assert (place.region, place.rack, place.depth) == ("eu-west", "row-2/rack-1", 3)
    assert str(place) == "/eu-west/row-2/rack-1"
    assert Location.parse("/eu-west/rack-1").depth == 2


def test_locations_of_a_region_sort_together() -> None:
    texts = ["/b/r1", "/a/r2", "/b/r0", "/a/r1"]

    assert [str(place) for place in sorted(Location.parse(text) for text in texts)] == [
        "/a/r1",
        "/a/r2",
        "/b/r0",
        "/b/r1",
    ]
