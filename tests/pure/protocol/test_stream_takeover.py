"""A stream is owned as a whole, however it grows; losers of a race back off."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geolog.protocol.stream_takeover import (
    BACK_OFF_S_MAX,
    BACK_OFFS_MAX,
    CountPartitions,
    StartWriters,
    Step,
    StreamTakeover,
    TakePartitions,
)

ATTEMPT_S = 0.5


class Stream:
    """A stream that grows, and the owner of each partition."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.partitions = rng.randint(1, 3)
        self.owners: dict[int, str] = {}
        self.winners_counts: list[int] = []

    def live(self) -> None:
        if self.partitions < 6 and self.rng.random() < 0.1:
            self.partitions += 1

    def attempt(self, who: str, core: type[StreamTakeover]) -> Iterator[bool | None]:
        """Try to own the stream; None at each moment, and then whether it succeeded."""
        taking = core.of_stream(self.partitions, now_s=0.0)
        step, taken = taking.begin(), list[int]()
        existed_count = 0  # Partitions that existed when the last was taken.
        while True:
            match step:
                case TakePartitions(numbers):
                    for number in self.rng.sample(numbers, len(numbers)):
                        self.owners[number] = who
                        yield None
                    taken += numbers
                    existed_count = self.partitions
                    yield None
                    step = taking.on_taken()
                case CountPartitions():
                    step = taking.on_count(self.partitions)
                    yield None
                case StartWriters():
                    break
        assert taken == list(range(len(taken))), f"took {taken}"
        owns_all = all(self.owners[number] == who for number in taken)
        if owns_all:
            assert len(taken) >= existed_count, "a partition was there, and not owned"
            assert len(taken) >= max(self.winners_counts, default=0), "fewer than before"
            self.winners_counts.append(len(taken))
        yield owns_all


def played(seed: int, core: type[StreamTakeover] = StreamTakeover) -> int:
    """Let processes take the stream from each other; returns how many attempts succeeded."""
    rng = random.Random(seed)
    stream = Stream(rng)
    attempts = [stream.attempt(who, core) for who in "abc"[: rng.randint(1, 3)]]
    wins_count = 0
    while attempts:
        stream.live()
        attempt = rng.choice(attempts)
        succeeded = next(attempt)
        if succeeded is not None:
            attempts.remove(attempt)
            wins_count += succeeded
    return wins_count


def test_the_owner_of_a_stream_owns_all_partitions_at_one_moment() -> None:
    wins = [played(seed) for seed in range(20 * settings().max_examples)]

    assert {0, 1, 2} <= set(wins)


class CountsOnce(StreamTakeover):
    """Does not read the number of partitions again after it took the new ones."""

    def on_taken(self) -> Step:
        return CountPartitions() if self._numbers.start == 0 else StartWriters()


class CountsFirst(StreamTakeover):
    """Believes the number of partitions that the stream had when it was opened."""

    def on_taken(self) -> Step:
        return StartWriters()


def play_until_broken(core: type[StreamTakeover]) -> None:
    for seed in range(1000):
        played(seed, core)


@pytest.mark.parametrize("core", [CountsOnce, CountsFirst])
def test_a_planted_bug_is_found(core: type[StreamTakeover]) -> None:
    with pytest.raises(AssertionError, match="was there, and not owned"):
        play_until_broken(core)


def test_one_partition_is_taken_whatever_the_others_do() -> None:
    taking = StreamTakeover.of_partition(3, now_s=0.0)

    assert taking.begin() == TakePartitions(range(3, 4))
    assert taking.on_taken() == StartWriters()


@given(tried_s=st.floats(0, 100), seed=st.integers(0, 100))
def test_the_back_off_is_bounded_by_the_attempt_and_absolutely(
    tried_s: float, seed: int
) -> None:
    taking = StreamTakeover.of_stream(1, now_s=5.0)
    back_off_s = taking.on_overtaken(5.0 + tried_s, random.Random(seed))

    assert 0 <= back_off_s <= min(BACK_OFFS_MAX * tried_s, BACK_OFF_S_MAX) + 1e-9


def attempts_until_one_wins(
    rng: random.Random, *, backs_off: bool, attempts_max: int = 1000
) -> int:
    """Two processes open the same stream again and again, each deposing the other."""
    began_s = {"a": 0.0, "b": rng.uniform(0, ATTEMPT_S)}
    for count in range(1, attempts_max):
        who = min(began_s, key=began_s.__getitem__)  # The first to try to start its writers.
        rival = "b" if who == "a" else "a"
        if began_s[rival] > began_s[who] + ATTEMPT_S:
            return count
        taking = StreamTakeover.of_stream(1, now_s=began_s[who])
        failed_s = began_s[who] + ATTEMPT_S
        back_off_s = taking.on_overtaken(failed_s, rng) if backs_off else 0.0
        began_s[who] = failed_s + back_off_s
    return attempts_max


@pytest.mark.parametrize("seed", range(20))
def test_one_of_two_rivals_wins_soon_because_losers_back_off(seed: int) -> None:
    assert attempts_until_one_wins(random.Random(seed), backs_off=True) < 50
    assert attempts_until_one_wins(random.Random(seed), backs_off=False) == 1000
