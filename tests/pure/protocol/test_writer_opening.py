"""A session opens once every partition has taken its fence between two equal counts."""

from collections.abc import Generator
from random import Random

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.writer_fence import may_fence
from geolog.protocol.writer_opening import (
    ATTEMPTS_MAX,
    AskWriter,
    FenceWriter,
    OpeningEffect,
    OpeningLost,
    ReadPartitionCount,
    RestBeforeOpening,
    SessionOpened,
    WriterOpening,
)
from geolog.protocol.writer_standing import NO_NONCE, WriterFence

Core = WriterOpening[str]
Effects = list[OpeningEffect[str]]


def fence_of(effects: Effects) -> WriterFence:
    """The fence that all these requests carry."""
    [fence] = {one.fence for one in effects if isinstance(one, FenceWriter)}
    return fence


def fenced_of_two(core: Core) -> Effects:
    """The fences of a session that found epochs 3 and 5 in two partitions."""
    assert core.begin() == [ReadPartitionCount()]
    assert core.on_partition_count(2) == [AskWriter(0), AskWriter(1)]
    assert core.on_asked(1, 5) == []
    return core.on_asked(0, 3)


def test_a_session_takes_the_next_epoch_and_opens_when_the_count_is_the_same() -> None:
    core = Core(Random(0))
    fences = fenced_of_two(core)

    fence = fence_of(fences)
    assert fence.epoch == 6
    assert fence.nonce != NO_NONCE
    assert fences == [FenceWriter(0, fence), FenceWriter(1, fence)]
    assert core.on_fenced(1, "in 1") == []
    assert core.on_fenced(0, "in 0") == [ReadPartitionCount()]
    assert core.on_partition_count(2) == [SessionOpened(fence, ("in 0", "in 1"))]


def test_a_new_partition_makes_it_fence_all_again_with_the_same_nonce() -> None:
    core = Core(Random(0))
    fence = fence_of(fenced_of_two(core))
    core.on_fenced(0, "early")
    core.on_fenced(1, "early")

    assert core.on_partition_count(3) == [AskWriter(2)]
    again = core.on_asked(2, 0)
    assert again == [FenceWriter(place, fence) for place in range(3)]
    assert core.on_fenced(0, "in 0") == core.on_fenced(1, "in 1") == []
    assert core.on_fenced(2, "in 2") == [ReadPartitionCount()]
    assert core.on_partition_count(3) == [SessionOpened(fence, ("in 0", "in 1", "in 2"))]


def test_a_new_partition_with_an_epoch_not_below_its_own_makes_it_take_the_next() -> None:
    core = Core(Random(0))
    fence = fence_of(fenced_of_two(core))
    core.on_fenced(0, "early")
    core.on_fenced(1, "early")
    core.on_partition_count(3)

    later = fence_of(core.on_asked(2, 6))
    assert later.epoch == 7
    assert later.nonce != fence.nonce


def test_a_lost_answer_is_asked_for_again_unchanged() -> None:
    core = Core(Random(0))
    core.begin()
    core.on_partition_count(1)
    assert core.on_answer_lost(0) == [AskWriter(0)]
    fences = core.on_asked(0, 0)
    assert core.on_answer_lost(0) == fences
    assert core.on_answer_lost(0) == fences


def test_a_refused_session_rests_once_all_have_answered_then_takes_a_higher_epoch() -> None:
    core = Core(Random(0))
    fence = fence_of(fenced_of_two(core))

    assert core.on_refused(0, 6) == []
    [rest] = core.on_fenced(1, "early")
    assert isinstance(rest, RestBeforeOpening)
    assert 0 <= rest.rest_s <= 0.5
    later = fence_of(core.on_rested())
    assert later.epoch == 7
    assert later.nonce != fence.nonce


def test_a_session_that_always_loses_gives_up() -> None:
    core = Core(Random(0))
    core.begin()
    core.on_partition_count(1)
    core.on_asked(0, 0)
    for attempt in range(ATTEMPTS_MAX - 1):
        [rest] = core.on_refused(0, 2 * attempt + 2)
        assert isinstance(rest, RestBeforeOpening)
        assert rest.rest_s <= 3
        core.on_rested()

    assert core.on_refused(0, 99) == [OpeningLost(0, 99)]


def test_a_writer_of_one_partition_asks_and_fences_that_one_alone() -> None:
    core = Core(Random(0), only=4)

    assert core.begin() == [AskWriter(4)]
    fences = core.on_asked(4, 8)
    assert fences == [FenceWriter(4, fence_of(fences))]
    assert core.on_fenced(4, "in 4") == [SessionOpened(fence_of(fences), ("in 4",))]


def test_a_partition_takes_higher_epochs_and_repeats_of_the_same_session() -> None:
    assert may_fence(3, 77, 4, 12)
    assert may_fence(3, 77, 3, 77)
    assert not may_fence(3, 77, 3, 78)
    assert not may_fence(3, 77, 2, 77)


def test_no_fence_repeats_an_epoch_that_no_fence_began() -> None:
    assert not may_fence(3, NO_NONCE, 3, NO_NONCE)
    assert not may_fence(3, NO_NONCE, 3, 78)


# The naive model: the same steps, one after the other, as a session would take them alone.


@attrs.define
class Partitions:
    """Partitions that take fences; some events happen between two requests."""

    counts: list[int]
    """How many there are at each read; the last stays."""
    epochs: dict[int, int]
    refused: set[int]
    """Fences that other sessions forestall, by their place among all fences."""
    fences_count: int = 0

    def count(self) -> int:
        """The number of partitions now."""
        return self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]

    def fence(self, partition: int, fence: WriterFence) -> int | None:
        """Take a fence, or return the higher epoch that is there."""
        if self.fences_count in self.refused:
            self.epochs[partition] = fence.epoch + partition % 2
        self.fences_count += 1
        if self.epochs.get(partition, 0) >= fence.epoch:
            return self.epochs[partition]
        return None


def naively(partitions: Partitions, rng: Random) -> Generator[str, None, None]:
    """The steps of a session."""
    asked: set[int] = set()
    highest = epoch = nonce = attempts = 0
    count = partitions.count()
    yield "count"
    while True:
        for place in range(count):
            if place not in asked:
                asked.add(place)
                highest = max(highest, partitions.epochs.get(place, 0))
                yield f"ask {place}"
        while True:
            if epoch <= highest:
                epoch, nonce = highest + 1, rng.randint(1, (1 << 128) - 1)
            found = []
            for place in range(count):
                found.append(partitions.fence(place, WriterFence(epoch, nonce)))
                yield f"fence {place} with {epoch}/{nonce}"
            if not any(found):
                break
            highest = max(highest, *(one for one in found if one))
            attempts += 1
            if attempts == 8:
                yield "lost"
                return
            rng.uniform(0, min(3.0, 0.5 * 2 ** (attempts - 1)))
            yield "rest"
        before, count = count, partitions.count()
        yield "count"
        if count == before:
            yield f"open {count} with {epoch}/{nonce}"
            return


def as_built(partitions: Partitions, core: Core, order: Random) -> Generator[str, None, None]:
    """The steps of the core, if answers are lost now and then."""
    todo = core.begin()
    while todo:
        if order.random() < 0.3 and isinstance(todo[0], AskWriter | FenceWriter):
            assert core.on_answer_lost(todo[0].partition) == [todo[0]]
        one = todo.pop(0)
        match one:
            case ReadPartitionCount():
                yield "count"
                todo += core.on_partition_count(partitions.count())
            case AskWriter(place):
                yield f"ask {place}"
                todo += core.on_asked(place, partitions.epochs.get(place, 0))
            case FenceWriter(place, fence):
                yield f"fence {place} with {fence.epoch}/{fence.nonce}"
                refused = partitions.fence(place, fence)
                if refused is None:
                    todo += core.on_fenced(place, f"in {place}")
                else:
                    todo += core.on_refused(place, refused)
            case RestBeforeOpening():
                yield "rest"
                todo += core.on_rested()
            case SessionOpened(fence, standings):
                assert standings == tuple(f"in {place}" for place in range(len(standings)))
                yield f"open {len(standings)} with {fence.epoch}/{fence.nonce}"
            case OpeningLost():
                yield "lost"


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=6).map(sorted),
    epochs=st.dictionaries(st.integers(0, 4), st.integers(1, 9)),
    refused=st.sets(st.integers(0, 30), max_size=12),
    seed=st.integers(0, 99),
)
def test_the_core_does_what_a_naive_session_does(
    counts: list[int], epochs: dict[int, int], refused: set[int], seed: int
) -> None:
    expected = list(naively(Partitions(list(counts), dict(epochs), refused), Random(seed)))
    built = list(
        as_built(
            Partitions(list(counts), dict(epochs), refused),
            Core(Random(seed)),
            Random(seed + 1),
        )
    )

    assert built == expected


def test_the_number_of_partitions_never_falls() -> None:
    core = Core(Random(0))
    core.begin()
    core.on_partition_count(2)
    for place in range(2):
        core.on_asked(place, 0)
    for place in range(2):
        core.on_fenced(place, "")
    with pytest.raises(AssertionError, match="only 1 partitions"):
        core.on_partition_count(1)
