"""Where logs of earlier homes end, against a model that follows each home's own log."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.home_record import (
    Fork,
    HomeRecord,
    branch_point,
    fork_before_place,
)
from geolog.protocol.ids import SegmentEntry, Sequence

Place = tuple[int, SegmentEntry]


@attrs.define
class Lives:
    """All homes so far: each began at a place in the log before, and wrote segments."""

    log: list[Place] = attrs.field(factory=list)
    """The log of the home now."""
    written: dict[Place, int] = attrs.field(factory=dict)
    """The home epoch of every entry that any home has written."""
    forks: list[Fork] = attrs.field(factory=list)
    highest: int = 0
    home_epoch: int = 1

    def write(self, count: int) -> None:
        """Write a segment of so many entries."""
        self.highest += 1
        for number in range(count):
            place = (self.highest, SegmentEntry(number))
            self.log.append(place)
            self.written[place] = self.home_epoch

    def fail_over(self, kept: int) -> None:
        """A later home begins behind so many entries of the log."""
        self.log = self.log[: kept % (len(self.log) + 1)]
        segment, entry = self.log[-1] if self.log else (0, -1)
        self.home_epoch += 1
        self.forks.append(
            Fork(
                home_epoch=self.home_epoch,
                segment=segment,
                entry=SegmentEntry(entry + 1),
                sequence=Sequence(len(self.log)),
                segment_next=self.highest + 1,
            )
        )


@st.composite
def lives(draw: st.DrawFn) -> Lives:
    found = Lives()
    for _ in range(draw(st.integers(1, 4))):
        for count in draw(st.lists(st.integers(0, 4), max_size=3)):
            found.write(count)
        found.fail_over(draw(st.integers(0, 50)))
    found.write(draw(st.integers(0, 3)))
    return found


@given(lives())
def test_an_entry_is_in_a_dead_branch_if_its_place_is_not_before_the_branch_point(
    found: Lives,
) -> None:
    alive = set(found.log)
    for place, epoch in found.written.items():
        end = branch_point(found.forks, epoch)
        assert (end is not None and end.is_before(*place)) == (place not in alive)


@given(lives())
def test_a_place_in_a_dead_branch_goes_on_where_the_log_went_on(found: Lives) -> None:
    alive = set(found.log)
    for place in found.written:
        fork = fork_before_place(found.forks, *place)
        assert (fork is not None) == (place not in alive)
        if fork is not None:
            before = [one for one in found.log if one < place]
            assert fork.sequence == len(before)


@given(lives())
def test_the_lineage_tells_the_home_epoch_of_each_entry_that_is_left(found: Lives) -> None:
    record = HomeRecord(region="west", home_epoch=found.home_epoch, forks=(tuple(found.forks),))
    lineage = record.lineage(0)
    for place in found.log:
        assert lineage.home_epoch_of(place[0]) == found.written[place]
