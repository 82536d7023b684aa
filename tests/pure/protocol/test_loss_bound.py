"""The bound on what a home's loss could cost, against a list of every batch."""

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from geolog.protocol.loss_bound import HeldBack, LossBound, LossTerms, TargetTold

TARGETS = ("ap-northeast", "eu-west", "sa-east")


@attrs.frozen
class Batch:
    first: int
    sequence_next: int
    size_bytes: int
    time_s: float


class BoundedPartition(RuleBasedStateMachine):
    """A partition with its owner, three mirrors, and a coordinator that tells of them."""

    runs_max = 1024

    @initialize(
        before=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), max_size=5),
        chosen=st.sets(st.sampled_from(TARGETS), min_size=1),
        is_any=st.booleans(),
        bound=st.one_of(
            st.builds(lambda n: {"max_bytes": n}, st.integers(50, 200)),
            st.builds(lambda s: {"max_s": s}, st.integers(5, 20)),
        ),
    )
    def begin(
        self,
        before: list[tuple[int, int]],
        chosen: set[str],
        is_any: bool,  # noqa: FBT001 - Hypothesis passes by name.
        bound: dict[str, int],
    ) -> None:
        self.now_s = 100.0
        self.log: list[Batch] = []
        for records, size_bytes in before:
            self.put(records, size_bytes)
            self.now_s += 1
        self.began = self.end
        self.durable = dict.fromkeys(TARGETS, 0)
        self.known: dict[str, int] = dict.fromkeys(TARGETS, 0)
        self.counted = dict.fromkeys(TARGETS, 0)
        """How far the coordinator had read when it told of each target."""
        self.was_held = False
        self.terms = LossTerms(targets=tuple(sorted(chosen)), is_any=is_any, **bound)
        self.bound = LossBound(
            self.terms, sequence_next=self.end, now_s=self.now_s, runs_max=self.runs_max
        )
        self.was_held = self.model_is_held()

    @property
    def end(self) -> int:
        return self.log[-1].sequence_next if self.log else 0

    def put(self, records: int, size_bytes: int) -> None:
        self.log.append(Batch(self.end, self.end + records, size_bytes, self.now_s))

    def lacks(self, position: int) -> list[Batch]:
        return [one for one in self.log if one.sequence_next > position]

    # The naive judgement.

    def rate(self, target: str, more_bytes: int = 0) -> float:
        if max(self.known[target], self.counted[target]) < self.began:
            return float("inf")
        lacking = self.lacks(self.known[target])
        if self.terms.max_bytes is not None:
            return (sum(one.size_bytes for one in lacking) + more_bytes) / self.terms.max_bytes
        assert self.terms.max_s is not None
        return (self.now_s - lacking[0].time_s if lacking else 0) / self.terms.max_s

    def worst(self, more_bytes: int = 0) -> float:
        rates = [self.rate(one, more_bytes) for one in self.terms.targets]
        return min(rates) if self.terms.is_any else max(rates)

    def model_is_held(self) -> bool:
        self.was_held = self.worst() >= 0.9 if self.was_held else self.worst() > 1
        return self.was_held

    # What happens.

    @rule(records=st.integers(1, 3), size_bytes=st.integers(1, 60))
    def append(self, records: int, size_bytes: int) -> None:
        is_held = self.model_is_held() or self.worst(size_bytes) > 1
        self.was_held = is_held
        held = self.bound.admit(size_bytes, now_s=self.now_s)
        assert (held is not None) == is_held
        if held is None:
            first = self.end
            self.put(records, size_bytes)
            self.bound.on_taken(first, self.end, size_bytes, now_s=self.now_s)
            self.check_bound()

    def check_bound(self) -> None:
        """Losing the home now costs no more than the bound."""
        lost = []
        for target in self.terms.targets:
            lacking = self.lacks(self.durable[target])
            lost.append(
                sum(one.size_bytes for one in lacking)
                if self.terms.max_bytes is not None
                else lacking[-1].time_s - lacking[0].time_s
                if lacking
                else 0
            )
        allowed = self.terms.max_bytes or self.terms.max_s
        assert allowed is not None
        assert (min(lost) if self.terms.is_any else max(lost)) <= allowed

    @rule(region=st.sampled_from(TARGETS), share=st.floats(0, 1))
    def follow(self, region: str, share: float) -> None:
        places = [0, *(one.sequence_next for one in self.log)]
        further = [one for one in places if one >= self.durable[region]]
        self.durable[region] = further[round(share * (len(further) - 1))]

    @rule(region=st.sampled_from(TARGETS), share=st.floats(0, 1))
    def tell(self, region: str, share: float) -> None:
        """The coordinator tells of a target; it may not have read up to the tail."""
        durable = self.durable[region]
        ends = [one.sequence_next for one in self.lacks(durable)]
        read_to = [durable, *ends][round(share * len(ends))]
        counted = [one for one in self.lacks(durable) if one.sequence_next <= read_to]
        self.bound.on_told(
            TargetTold(
                target=region,
                relay_epoch=1,
                durable_next=durable,
                tail_next=read_to,
                lag_bytes=sum(one.size_bytes for one in counted),
                lag_s=self.now_s - counted[0].time_s if counted else 0.0,
            ),
            now_s=self.now_s,
        )
        if region in self.terms.targets:
            self.known[region], self.counted[region] = durable, read_to
        self.model_is_held()

    @rule(seconds=st.integers(1, 8))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule(region=st.sampled_from(TARGETS))
    def hear_an_older_coordinator(self, region: str) -> None:
        if self.known[region] == 0:
            return  # It was not told of by a newer one.
        told = TargetTold(target=region, relay_epoch=0, durable_next=self.end)
        self.bound.on_told(told, now_s=self.now_s)

    @invariant()
    @precondition(lambda self: hasattr(self, "bound"))
    def it_is_held_as_the_model_says(self) -> None:
        held = self.bound.look(now_s=self.now_s)
        assert (held is not None) == self.model_is_held()
        if held is not None:
            assert self.rate(held.target) == self.worst()
            assert held.is_known == (self.worst() < float("inf"))


class CoarselyBounded(BoundedPartition):
    """With few runs the bound is kept as well, but sooner."""

    runs_max = 4

    @rule(records=st.integers(1, 3), size_bytes=st.integers(1, 60))
    def append(self, records: int, size_bytes: int) -> None:
        if self.bound.admit(size_bytes, now_s=self.now_s) is None:
            first = self.end
            self.put(records, size_bytes)
            self.bound.on_taken(first, self.end, size_bytes, now_s=self.now_s)
            self.check_bound()

    @invariant()
    @precondition(lambda self: hasattr(self, "bound"))
    def it_is_held_as_the_model_says(self) -> None:
        """A target that has everything never holds the partition."""
        if all(self.known[one] == self.end for one in self.terms.targets):
            assert self.bound.look(now_s=self.now_s) is None


TestBoundedPartition = BoundedPartition.TestCase
TestCoarselyBounded = CoarselyBounded.TestCase


def bound_of(*targets: str, is_any: bool = False, sequence_next: int = 0) -> LossBound:
    terms = LossTerms(targets=targets, is_any=is_any, max_bytes=100)
    return LossBound(terms, sequence_next=sequence_next, now_s=0)


def take(bound: LossBound, first: int, size_bytes: int) -> HeldBack | None:
    held = bound.admit(size_bytes, now_s=1)
    if held is None:
        bound.on_taken(first, first + 1, size_bytes, now_s=1)
    return held


def tell(bound: LossBound, target: str, durable_next: int, relay_epoch: int = 1) -> None:
    told = TargetTold(target=target, relay_epoch=relay_epoch, durable_next=durable_next)
    bound.on_told(told, now_s=1)


def test_what_is_in_flight_counts_before_anything_is_acknowledged() -> None:
    bound = bound_of("eu-west")
    assert [take(bound, one, 30) is None for one in range(4)] == [True, True, True, False]


def test_the_slowest_target_holds_all_and_the_fastest_frees_any() -> None:
    every, one_of = bound_of("ap", "eu"), bound_of("ap", "eu", is_any=True)
    for bound in (every, one_of):
        assert take(bound, 0, 90) is None
        tell(bound, "eu", 1)
    held = take(every, 1, 20)

    assert held is not None
    assert (held.target, held.lag_bytes) == ("ap", 90)
    assert take(one_of, 1, 20) is None


@pytest.mark.parametrize(("lacking", "goes_on"), [(90, False), (89, True)])
def test_a_held_partition_goes_on_below_nine_tenths(lacking: int, goes_on: bool) -> None:  # noqa: FBT001
    bound = bound_of("eu")
    assert take(bound, 0, 100 - lacking) is None
    assert take(bound, 1, lacking) is None
    assert take(bound, 2, 1) is not None
    tell(bound, "eu", 1)

    assert (take(bound, 2, 1) is None) == goes_on


def test_a_target_of_a_new_owner_is_too_far_behind_until_it_is_told_of() -> None:
    bound = bound_of("eu", sequence_next=50)
    held = take(bound, 50, 1)
    assert held is not None
    assert (held.target, held.is_known) == ("eu", False)

    tell(bound, "eu", 49)
    held = bound.held
    assert held is not None
    assert held.lag_s is None, "nobody has counted what lies between"
    told = TargetTold(target="eu", relay_epoch=1, durable_next=40, tail_next=50, lag_bytes=30)
    bound.on_told(told, now_s=1)
    assert bound.is_known
    assert take(bound, 50, 70) is None
    assert take(bound, 51, 1) is not None


def test_a_newer_coordinator_may_tell_less_and_an_older_one_tells_nothing() -> None:
    bound = bound_of("eu")
    assert take(bound, 0, 60) is None
    tell(bound, "eu", 1, relay_epoch=2)
    tell(bound, "eu", 0, relay_epoch=3)
    assert take(bound, 1, 60) is not None
    tell(bound, "eu", 1, relay_epoch=2)
    assert take(bound, 1, 60) is not None


def test_a_target_that_is_chosen_later_was_never_heard_of() -> None:
    bound = bound_of("eu", sequence_next=5)
    tell(bound, "eu", 5)
    assert take(bound, 5, 60) is None
    bound.on_terms(LossTerms(targets=("ap", "eu"), max_bytes=100), now_s=1)

    held = bound.held
    assert held is not None
    assert (held.target, held.lag_bytes) == ("ap", None)
