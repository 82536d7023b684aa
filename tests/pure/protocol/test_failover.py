"""A failover, while logs answer in any order, or not at all, and fetches may fail.

It ends with the best log that was to be compared, or with one that the operator was told of, or
it is given up.
"""

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from geolog.partition.home_failover import patience_of
from geolog.protocol.failover import (
    Effect,
    EndedLog,
    EndFailover,
    EndHome,
    FailoverCourse,
    FetchMissing,
    MakeHome,
    MarkLost,
    TakeCandidate,
)
from geolog.protocol.failover_record import (
    HeardTail,
    RangeAtRisk,
    latest_tails,
    range_at_risk,
    risk_total,
)
from geolog.protocol.ids import SegmentEntry, Sequence
from geolog.protocol.watermark import Watermark
from topology.errors import UnavailableError

HOME, TO, OTHERS = "east", "west", ("mars", "moon")
REGIONS = (HOME, TO, *OTHERS)
SEGMENT_HIGHEST = 9


def mark_of(count: int) -> Watermark | None:
    """The last of so many entries of one lineage, three to a segment, in two home epochs."""
    if count == 0:
        return None
    segment = (count - 1) // 3 + 1
    return Watermark(
        1 + (segment > 2),
        segment,
        SegmentEntry((count - 1) % 3),
        7 * count,
        Sequence(2 * count),
    )


@attrs.define
class World:
    """All logs of all partitions, as numbers of entries, and what is under way."""

    core: FailoverCourse
    counts: list[dict[str, int]]
    unreachable: set[tuple[int, str]]
    failing: set[tuple[int, str]]
    """Fetches that fail on the way."""
    confirmed: dict[int, int]
    without: set[str]
    under_way: list[Effect] = attrs.field(factory=list)
    made: MakeHome | None = None
    ended: list[EndFailover] = attrs.field(factory=list)

    def run(self, choices: list[int]) -> None:
        """Perform all effects, in the order of these choices, then in that of their making."""
        self.under_way = list(self.core.begin())
        while self.under_way:
            place = choices.pop() % len(self.under_way) if choices else 0
            self.under_way += self.perform(self.under_way.pop(place))

    def least(self, number: int, begun: dict[str, int]) -> int:
        """The sequence below which the new home must not begin."""
        compared = [
            2 * begun[region]
            for region in REGIONS
            if region == TO
            or ((number, region) not in self.unreachable and region not in self.without)
        ]
        return self.confirmed.get(number, max(compared))

    def ended_log(self, number: int, region: str) -> EndedLog:
        return EndedLog(last=mark_of(self.counts[number][region]), row_highest=4)

    def perform(self, effect: Effect) -> list[Effect]:
        core = self.core
        match effect:
            case MarkLost():
                return core.on_marked()
            case EndHome(number):
                told = core.on_segment_highest(number, SEGMENT_HIGHEST)
                if (number, HOME) in self.unreachable:
                    return told + core.on_out_of_reach(number, HOME, UnavailableError("away"))
                return told + core.on_ended(number, HOME, self.ended_log(number, HOME))
            case TakeCandidate(number, region):
                if (number, region) in self.unreachable:
                    return core.on_out_of_reach(number, region, UnavailableError("away"))
                return core.on_ended(number, region, self.ended_log(number, region))
            case FetchMissing(number, region, through):
                mine, there = self.counts[number][TO], self.counts[number][region]
                assert mark_of(there) == through
                assert there > mine
                if (number, region) in self.failing:
                    self.counts[number][TO] = (mine + there) // 2
                    ended = self.ended_log(number, TO)
                    return core.on_not_fetched(number, region, ended, UnavailableError("cut"))
                self.counts[number][TO] = there
                return core.on_fetched(number, self.ended_log(number, TO))
            case MakeHome():
                assert self.made is None
                self.made = effect
                return core.on_flipped()
            case EndFailover():
                self.ended.append(effect)
                return []


worlds = st.builds(
    lambda counts, unreachable, failing, confirmed, without: World(
        FailoverCourse(
            "s",
            home=HOME,
            to=TO,
            others=OTHERS,
            home_epoch=2,
            partitions=len(counts),
            confirmed=confirmed,
            without=sorted(without),
        ),
        counts,
        unreachable,
        failing,
        confirmed,
        without,
    ),
    st.lists(
        st.fixed_dictionaries({region: st.integers(0, 12) for region in REGIONS}),
        min_size=1,
        max_size=3,
    ),
    st.sets(st.tuples(st.integers(0, 2), st.sampled_from([HOME, *OTHERS]))),
    st.sets(st.tuples(st.integers(0, 2), st.sampled_from([HOME, *OTHERS]))),
    st.dictionaries(st.integers(0, 2), st.integers(0, 24), max_size=3),
    st.sets(st.sampled_from([HOME, *OTHERS]), max_size=2),
)


@settings(max_examples=300)
@given(worlds, st.lists(st.integers(0, 99), max_size=30))
def test_the_new_home_begins_behind_the_best_log_that_could_be_read(
    world: World, choices: list[int]
) -> None:
    begun = [dict(one) for one in world.counts]
    world.run(choices)

    if world.made is None:
        (ended,) = world.ended
        assert "would go on at sequence" in str(ended.error)
        assert any(
            2 * count[TO] < world.least(number, begun[number])
            for number, count in enumerate(world.counts)
        )
        return
    assert not world.ended
    for number, fork in enumerate(world.made.forks):
        readable = [
            begun[number][region]
            for region in REGIONS
            if region == TO
            or (
                (number, region) not in world.unreachable | world.failing
                and region not in world.without
            )
        ]
        count = world.counts[number][TO]
        last = mark_of(count)
        assert count >= max(readable)
        assert fork.home_epoch == 3
        assert fork.sequence == 2 * count >= world.least(number, begun[number])
        if last is not None:
            assert (fork.segment, fork.entry) == (last.segment, last.entry + 1)
        assert 4 + fork.segment_offset + 1 == fork.segment_next > SEGMENT_HIGHEST
        if world.core.is_ended_at_home(number):
            assert count >= begun[number][HOME]
    assert world.made.is_whole == all(
        world.core.is_ended_at_home(number) for number in range(len(world.counts))
    )


@given(worlds, st.lists(st.integers(0, 99), max_size=30), st.integers(0, 2))
def test_a_failover_to_a_region_out_of_reach_ends_once_and_changes_nothing(
    world: World, choices: list[int], number: int
) -> None:
    world.unreachable.add((number % len(world.counts), TO))
    world.run(choices)

    assert world.made is None
    (ended,) = world.ended
    assert "out of reach" in str(ended.error)


@given(worlds, st.integers(0, 2))
def test_mirrors_that_were_claimed_meanwhile_are_taken_again(world: World, number: int) -> None:
    """As if another process had claimed one just before the flip."""
    number %= len(world.counts)
    is_reclaimed = False

    class Reclaimed(World):
        def perform(self, effect: Effect) -> list[Effect]:
            nonlocal is_reclaimed
            if isinstance(effect, MakeHome) and not is_reclaimed:
                is_reclaimed = True
                return self.core.on_reclaimed([number])
            return super().perform(effect)

    core = FailoverCourse(
        "s", home=HOME, to=TO, others=OTHERS, home_epoch=2, partitions=len(world.counts)
    )
    again = Reclaimed(core, world.counts, world.unreachable, set(), {}, set())
    again.run([])

    assert is_reclaimed
    assert again.made is not None


def heard(region: str, sequence_next: int, heard_us: int) -> HeardTail:
    return HeardTail(
        stream="a/s",
        life="1",
        partition=0,
        home=HOME,
        home_epoch=1,
        region=region,
        sequence_next=sequence_next,
        heard_us=heard_us,
        heard_ago_s=2.0,
        lag_bytes=500,
        tail_us=9_000_000,
    )


def test_the_range_at_risk_ends_at_the_furthest_tail_that_anybody_knows() -> None:
    tails = latest_tails([heard(TO, 90, 5), heard("mars", 100, 3), heard("moon", 100, 4)])
    found = range_at_risk(0, from_sequence=70, tail=tails[0], known=0, is_end_known=False)
    by_metadata = range_at_risk(0, from_sequence=70, tail=None, known=80, is_end_known=False)
    unknown = range_at_risk(0, from_sequence=70, tail=None, known=0, is_end_known=False)
    whole = range_at_risk(0, from_sequence=70, tail=tails[0], known=0, is_end_known=True)

    assert (found.to_sequence, found.heard_us, found.records_count) == (100, 4, 30)
    assert (by_metadata.records_count, by_metadata.records_min) == (None, 10)
    assert unknown.records_count is None
    assert whole.records_count == 0


def at_risk(tail: HeardTail | None, **parts: int) -> RangeAtRisk:
    return range_at_risk(
        parts.get("partition", 0),
        from_sequence=70,
        tail=tail,
        known=parts.get("known", 0),
        is_end_known=False,
        compared=[TO],
        from_us=parts.get("from_us", 8_000_000),
        passed_s=1.5,
    )


def test_a_range_at_risk_has_bytes_seconds_and_the_age_of_what_it_is_known_by() -> None:
    found = at_risk(heard(TO, 100, 5))
    nothing = at_risk(heard(TO, 70, 5))

    assert (found.bytes_max, found.seconds, found.heard_ago_s) == (500, 1.0, 3.5)
    assert (nothing.records_count, nothing.bytes_max, nothing.seconds) == (0, 0, 0.0)


def test_bytes_at_risk_are_not_told_unless_they_bound_what_is_lost() -> None:
    """The region that heard the tail was not compared: it may have had more than the rest."""
    unseen = at_risk(heard("mars", 100, 5))
    later = at_risk(heard(TO, 100, 5), known=120)

    assert unseen.bytes_max is None
    assert (later.records_count, later.bytes_max) == (50, None)


def test_an_unknown_part_of_what_is_at_risk_is_not_summed_as_0() -> None:
    known, unknown = at_risk(heard(TO, 100, 5)), at_risk(None, partition=1, known=75)
    total = risk_total([known, unknown])
    whole = risk_total([known, known])

    assert (total.records, total.records_min, total.unheard_count) == (None, 35, 1)
    assert (total.bytes_max, total.seconds, total.heard_ago_s) == (None, None, None)
    assert (whole.records, whole.bytes_max, whole.seconds) == (60, 1000, 1.0)
    assert whole.heard_ago_s == 3.5


def test_a_failover_is_impatient_with_the_lost_home_alone() -> None:
    """Elsewhere single logs may be slow, and what is passed over there is left behind."""
    assert patience_of(15.0, 8, is_home=True) < 1
    assert patience_of(15.0, 7, is_home=True) == 15.0
    assert patience_of(15.0, 100, is_home=False) == 15.0


def test_a_failover_whose_time_ends_while_it_waits_for_a_lease_does_not_blame_metadata() -> (
    None
):
    def late(waiting_for: str) -> str:
        core = FailoverCourse("a/s", home=HOME, to=TO, others=[], home_epoch=1, partitions=1)
        core.begin()
        core.on_marked()
        core.on_segment_highest(0, SEGMENT_HIGHEST)
        core.on_ended(0, HOME, EndedLog(last=mark_of(3), row_highest=4))
        (made,) = core.on_ended(0, TO, EndedLog(last=mark_of(3), row_highest=4))
        assert isinstance(made, MakeHome)
        (end,) = core.on_late(5.0, waiting_for=waiting_for)
        assert isinstance(end, EndFailover)
        return str(end.error)

    assert "within 5 s: leases of 4 s were not over yet. Its home" in late(
        "leases of 4 s were not over yet"
    )
    assert "metadata did not answer" in late("")
