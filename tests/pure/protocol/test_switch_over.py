"""A planned move of a home, while anything else may happen between its steps."""

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.switch_over import (
    AwaitMirror,
    Effect,
    EndAtHome,
    Flip,
    GiveUp,
    HomeEnded,
    MarkMoving,
    MirrorEnded,
    ReturnMirror,
    SwitchOver,
    TakeMirror,
)
from geolog.protocol.watermark import Watermark
from topology.errors import UnavailableError


def mark_of(count: int, segment: int = 1) -> Watermark | None:
    """The last of so many entries of a segment."""
    if count == 0:
        return None
    return Watermark(1, segment, SegmentEntry(count - 1), 7 * count, Sequence(count))


@attrs.define
class Partition:
    """A log at home and its mirror, as numbers of entries."""

    home: int = 0
    mirror: int = 0
    is_closed: bool = False
    is_taken: bool = False
    """Whether the mover has the mirror; the relay cannot write to it then."""


@attrs.define
class World:
    """Everything around the mover. Each step is one thing that happens."""

    core: SwitchOver
    partitions: list[Partition]
    under_way: list[Effect] = attrs.field(factory=list)
    is_marked: bool = False
    flipped: Flip | None = None
    given_up: int = 0

    def happen(self, choice: int) -> None:
        """Append, relay, take a mirror back, or perform an effect that is under way."""
        one = self.partitions[choice % len(self.partitions)]
        match choice // len(self.partitions) % 4:
            case 0 if not one.is_closed and not self.is_marked:
                one.home += 1
            case 1 if one.mirror < one.home and not one.is_taken and self.flipped is None:
                one.mirror += 1
            case 2 if self.flipped is None:
                one.is_taken = False  # The relay claims it.
            case _ if self.under_way:
                effect = self.under_way.pop(choice % len(self.under_way))
                self.under_way += self.perform(effect)

    def perform(self, effect: Effect) -> list[Effect]:
        core = self.core
        match effect:
            case MarkMoving():
                self.is_marked = True
                return core.on_marked()
            case EndAtHome(number):
                one = self.partitions[number]
                one.is_closed = True
                ended = HomeEnded(mark_of(one.home), 5, Sequence(one.home))
                return core.on_home_ended(number, ended)
            case AwaitMirror(number, last):
                one = self.partitions[number]
                if mark_of(one.mirror) == last:
                    return core.on_mirror_near(number)
                return [effect]  # Not yet.
            case TakeMirror(number):
                one = self.partitions[number]
                one.is_taken = True
                return core.on_mirror_ended(number, MirrorEnded(mark_of(one.mirror), 3))
            case ReturnMirror(number):
                self.partitions[number].is_taken = False
                return core.on_returned(number)
            case Flip() if self.given_up:  # One compare-and-set excludes the other.
                return core.on_failed(UnavailableError("given up"))
            case Flip():
                lost = [n for n, one in enumerate(self.partitions) if not one.is_taken]
                if lost:
                    return core.on_reclaimed(lost)
                self.flipped = effect
                return core.on_flipped()
            case GiveUp():
                self.given_up += self.flipped is None
                return []


def begun(partitions: list[Partition]) -> World:
    core = SwitchOver("s", to="b", home_epoch=1, partitions=len(partitions))
    world = World(core, partitions)
    world.under_way = core.begin()
    return world


PARTITIONS = st.lists(
    st.integers(0, 4).flatmap(
        lambda home: st.integers(0, home).map(lambda mirror: Partition(home, mirror))
    ),
    min_size=1,
    max_size=3,
)
CHOICES = st.lists(st.integers(0, 10_000), max_size=120)


@given(PARTITIONS, CHOICES)
@settings(max_examples=300)
def test_a_home_moves_only_where_every_partition_is_equal_and_final(
    partitions: list[Partition], choices: list[int]
) -> None:
    world = begun(partitions)
    for choice in choices:
        world.happen(choice)
        assert world.core.has_moved == (world.flipped is not None)
        if world.flipped is None:
            continue
        for one, fork in zip(world.partitions, world.flipped.forks, strict=True):
            assert one.is_closed
            assert one.mirror == one.home == fork.sequence
            assert (fork.segment, fork.entry) == ((1, one.home) if one.home else (0, 0))
            assert 3 + 1 + fork.segment_offset > 5, "no segment number is used twice"


@given(PARTITIONS, CHOICES, CHOICES)
@settings(max_examples=200)
def test_a_move_that_failed_gives_up_once_and_does_nothing_more(
    partitions: list[Partition], choices: list[int], later: list[int]
) -> None:
    world = begun(partitions)
    for choice in choices:
        world.happen(choice)
    world.under_way += world.core.on_late(30)
    for choice in later + list(range(500)):
        world.happen(choice)
    assert world.core.has_moved == (world.flipped is not None)
    assert world.given_up == (0 if world.core.has_moved else 1)
    assert world.core.on_failed(UnavailableError("again")) == []


@given(PARTITIONS, CHOICES)
@settings(max_examples=200)
def test_a_move_ends_once_the_relay_goes_on(
    partitions: list[Partition], choices: list[int]
) -> None:
    world = begun(partitions)
    for choice in choices:
        world.happen(choice)
    for _ in range(100):  # Nothing interferes from here on.
        for one in world.partitions:
            if not one.is_taken and world.flipped is None:
                one.mirror = one.home
        for effect in list(world.under_way):
            world.under_way.remove(effect)
            world.under_way += world.perform(effect)
    assert world.core.has_moved


def test_the_error_of_a_move_that_was_late_says_what_it_waited_for() -> None:
    core = SwitchOver("shop/carts", to="eu-west", home_epoch=1, partitions=2)
    core.on_marked()
    core.on_home_ended(0, HomeEnded(mark_of(3), 1, Sequence(3)))

    assert core.why_not_yet() == "partition 1 could not be closed at home"
    core.on_home_ended(1, HomeEnded(mark_of(3), 1, Sequence(3)))
    core.on_mirror_ended(1, MirrorEnded(mark_of(3), 1))
    [given_up] = core.on_late(30)
    assert isinstance(given_up, GiveUp)
    assert str(given_up.error) == (
        "shop/carts did not move to eu-west within 30 s: the mirror of partition 0 in eu-west"
        " does not have everything. It stays where it is"
    )
