"""Records that the triggers of a query read, against a log that moves on at random."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.ids import Position
from geolog.protocol.trigger_plan import (
    NO_LIMITS,
    LossReason,
    PartitionExtent,
    PartitionKey,
    TriggerLimits,
    TriggerPlace,
    admitted,
    plan_trigger,
)

Places = dict[PartitionKey, TriggerPlace]

WAITING = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000)), max_size=6)
LIMITS = st.builds(
    TriggerLimits,
    records=st.none() | st.integers(1, 60),
    bytes=st.none() | st.integers(1, 3000),
)


@attrs.define
class NaiveLog:
    """One partition as the list of all its records, each a number that no other one has."""

    records: list[int] = attrs.field(factory=list)
    first: int = 0
    epoch: int = 1
    created_us: int = 7
    forks: list[tuple[int, int]] = attrs.field(factory=list)
    """Home epochs and the sequences at which they began."""

    def extent(self, before: TriggerPlace | None) -> PartitionExtent:
        position, diverged_to = Position(self.epoch, self.first), None
        if before is not None:
            later = [at for epoch, at in self.forks if epoch > before.home_epoch]
            fork = min([before.end, *later])
            position = Position(self.epoch, fork)
            diverged_to = before.end if fork < before.end else None
        return PartitionExtent(
            created_us=self.created_us,
            first=self.first,
            end=max(len(self.records), position.sequence),
            position=position,
            diverged_to=diverged_to,
            waiting_bytes=10 * max(0, len(self.records) - position.sequence),
        )


def at(end: int, *, first: int = 0, epoch: int = 1, created_us: int = 7) -> TriggerPlace:
    return TriggerPlace(created_us=created_us, home_epoch=epoch, first=first, end=end)


def extent(
    end: int, *, at: int = 0, first: int = 0, epoch: int = 1, diverged_to: int | None = None
) -> PartitionExtent:
    return PartitionExtent(
        created_us=7,
        first=first,
        end=end,
        position=Position(epoch, at),
        diverged_to=diverged_to,
    )


A, B = ("shop/a", 0), ("shop/b", 0)


@given(WAITING, LIMITS)
def test_a_trigger_has_as_much_as_it_may_and_at_least_one_record(
    waiting: list[tuple[int, int]], limits: TriggerLimits
) -> None:
    shares = admitted(waiting, limits)

    records = sum(count for count, _ in waiting)
    size_bytes = sum(size for _, size in waiting)
    total = records if limits.records is None else min(records, limits.records)
    if limits.bytes is not None and size_bytes > limits.bytes:
        total = min(total, max(1, records * limits.bytes // size_bytes))
    assert sum(shares) == total
    assert all(0 <= share <= count for share, (count, _) in zip(shares, waiting, strict=True))
    assert bool(sum(shares)) == bool(records)


@given(WAITING, LIMITS)
def test_no_partition_gets_a_record_more_than_its_share(
    waiting: list[tuple[int, int]], limits: TriggerLimits
) -> None:
    shares = admitted(waiting, limits)

    records, total = sum(count for count, _ in waiting), sum(shares)
    for share, (count, _) in zip(shares, waiting, strict=True):
        assert records == 0 or abs(share - count * total / records) <= 1


@given(WAITING, LIMITS)
def test_the_partition_with_most_records_is_never_passed_over(
    waiting: list[tuple[int, int]], limits: TriggerLimits
) -> None:
    """So none waits for ever, however few records a trigger may have."""
    shares = admitted(waiting, limits)

    most = max((count for count, _ in waiting), default=0)
    assert not most or any(
        share for share, (count, _) in zip(shares, waiting, strict=True) if count == most
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "trim", "fail over", "trigger", "restart"]),
        st.sampled_from([A, B]),
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(STEPS, LIMITS)
def test_a_query_gets_every_record_of_the_log_once_and_is_told_what_it_lacks(
    steps: list[tuple[str, PartitionKey, int]], limits: TriggerLimits
) -> None:
    logs = {A: NaiveLog()}
    next_record = 0
    places: Places = {}
    got: dict[PartitionKey, list[int]] = {A: [], B: []}

    def trigger(limits: TriggerLimits) -> bool:
        nonlocal places
        plan = plan_trigger(
            places, {key: log.extent(places.get(key)) for key, log in logs.items()}, limits
        )
        for loss in plan.losses:
            key = loss.stream, loss.partition
            assert loss.from_sequence < loss.to_sequence
            if loss.reason is LossReason.DIVERGED:
                del got[key][loss.from_sequence - loss.to_sequence :]
            else:
                assert loss.reason is LossReason.TRIMMED
                got[key] += logs[key].records[loss.from_sequence : loss.to_sequence]
        for key, place in plan.places.items():
            old = places.get(key)
            if old is not None and old.home_epoch == place.home_epoch:
                assert place.end >= old.end  # Invariant 1.
            if place != old:
                if old is None:
                    got[key] += logs[key].records[: place.first]
                assert place.first == len(got[key])  # Invariant 2.
                got[key] += logs[key].records[place.first : place.end]
        has_changed = dict(plan.places) != places
        if not has_changed:
            assert not plan.losses
        places = dict(plan.places)
        return has_changed

    for step, key, number in steps:
        if step == "append":
            log = logs.setdefault(key, NaiveLog())  # A stream may be new.
            log.records += range(next_record, next_record + number)
            next_record += number
        elif key in logs and step == "trim":
            logs[key].first = max(logs[key].first, min(number, len(logs[key].records)))
        elif key in logs and step == "fail over":
            log = logs[key]
            at_fork = max(log.first, len(log.records) - number)
            log.epoch += 1
            log.forks.append((log.epoch, at_fork))
            del log.records[at_fork:]
        else:
            trigger(limits)
    for _ in range(1000):
        if not trigger(limits):
            break

    for key, log in logs.items():
        if log.records[log.first :]:
            assert got[key][log.first :] == log.records[log.first :]


def test_nothing_new_gives_the_places_that_it_came_from() -> None:
    start = {A: at(9, first=5)}

    plan = plan_trigger(start, {A: extent(9, at=9, epoch=2)}, NO_LIMITS)

    assert (dict(plan.places), list(plan.losses)) == (start, [])


def test_a_place_in_a_dead_branch_goes_on_at_the_fork_and_says_what_it_left() -> None:
    moved = extent(7, at=4, epoch=2, diverged_to=9)

    plan = plan_trigger({A: at(9)}, {A: moved}, NO_LIMITS)

    assert plan.places == {A: at(7, first=4, epoch=2)}
    [loss] = plan.losses
    assert (loss.reason, loss.from_sequence, loss.to_sequence) == (LossReason.DIVERGED, 4, 9)


def test_a_stream_that_was_made_again_is_read_from_its_beginning() -> None:
    again = attrs.evolve(extent(3, first=1, at=1), created_us=8)

    plan = plan_trigger({A: at(9)}, {A: again}, NO_LIMITS)

    assert plan.places == {A: at(3, first=1, created_us=8)}
    assert [one.reason for one in plan.losses] == [LossReason.CREATED_AGAIN]


def test_records_of_a_new_partition_that_are_trimmed_before_their_turn_are_told() -> None:
    one_each = TriggerLimits(records=1)
    planned = plan_trigger({A: at(0)}, {A: extent(90), B: extent(3)}, one_each)
    assert planned.places == {A: at(1), B: at(0)}

    later = {A: extent(90, at=1), B: extent(3, first=2, at=0)}
    [loss] = plan_trigger(planned.places, later, one_each).losses

    assert (loss.reason, loss.from_sequence, loss.to_sequence) == (LossReason.TRIMMED, 0, 2)


def test_a_stream_that_is_gone_is_told_once() -> None:
    plan = plan_trigger({A: at(9), B: at(2)}, {B: extent(2, at=2)}, NO_LIMITS)

    assert plan.places == {B: at(2)}
    assert [(one.stream, one.reason) for one in plan.losses] == [("shop/a", LossReason.GONE)]


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 20))
def test_a_run_of_what_is_available_ends_at_what_there_was(
    records_max: int, before: int, added: int
) -> None:
    targets = {A: extent(before)}
    places: Places = {A: at(0)}
    for _ in range(before + 1):
        extents = {
            A: extent(before + added, at=places[A].end),
            B: extent(added),  # A stream that is new.
        }
        plan = plan_trigger(places, extents, TriggerLimits(records=records_max), targets)
        places = dict(plan.places)

    assert {key: place.end for key, place in places.items()} == {A: before}
