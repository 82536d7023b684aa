"""Frames are refused early, and numbered records never overtake one that was refused."""

import math
import random
from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regions.proxy.protocol.append_admission import (
    WRITERS_MAX,
    AppendAdmission,
    Comeback,
    Comebacks,
    RefusedSeqs,
)
from topology.errors import OverCapacityError

PROXY_MAX, PARTITION_MAX, CLIENT_MAX = 100, 50, 30
QUEUE_S_MAX = 1.0
SPREAD = 0.25


def admission(scale: int = 1) -> AppendAdmission:
    return AppendAdmission(
        proxy_bytes_max=PROXY_MAX * scale,
        partition_bytes_max=PARTITION_MAX * scale,
        client_bytes_max=CLIENT_MAX * scale,
        queue_s_max=QUEUE_S_MAX,
        rng=random.Random(0),
    )


def refusal_of(
    core: AppendAdmission,
    partition: str,
    client: str,
    size: int,
    *,
    proxy_bytes: int = 0,
    waited_s: float = 0.0,
    now_s: float = 1.0,
    comeback: Comeback | None = None,
    batches_wait: bool = False,
) -> OverCapacityError | None:
    """Ask about a frame of a session that was not refused before."""
    return core.refusal_of(
        partition,
        client,
        size,
        proxy_bytes=proxy_bytes,
        waited_s=waited_s,
        now_s=now_s,
        comeback=comeback or Comeback(),
        batches_wait=batches_wait,
    )


FRAMES = st.tuples(st.sampled_from("pqr"), st.sampled_from("abcd"), st.integers(1, 40))


@given(st.lists(st.one_of(FRAMES, st.integers(0, 9)), max_size=60))
def test_it_agrees_with_a_list_of_the_frames_in_flight(
    steps: list[tuple[str, str, int] | int],
) -> None:
    core, others_bytes = admission(), 20
    in_flight: list[tuple[str, str, int]] = []

    for step in steps:
        if isinstance(step, int):  # An answer to one of those in flight.
            if in_flight:
                partition, client, size = in_flight.pop(step % len(in_flight))
                core.give_back(partition, client, size, now_s=1.0)
            continue
        partition, client, size = step
        counts: Counter[str] = Counter({"all": others_bytes})
        for one_partition, one_client, one_size in in_flight:
            counts.update({one_partition: one_size, one_client: one_size, "all": one_size})
        bounds = {partition: PARTITION_MAX, client: 0.75 * CLIENT_MAX, "all": PROXY_MAX}
        is_full = any(
            counts[one] and counts[one] + size > bound for one, bound in bounds.items()
        )

        refusal = refusal_of(core, partition, client, size, proxy_bytes=counts["all"])

        assert (refusal is not None) == is_full
        if refusal is None:
            core.take(partition, client, size)
            in_flight.append(step)
    for partition, client, size in in_flight:
        core.give_back(partition, client, size, now_s=2.0)
    assert repr(core) == "AppendAdmission({}, {})"


def full_admission(*, bytes_per_s: int, now_s: float) -> AppendAdmission:
    """A full partition whose frames have been answered at this speed until now."""
    core = admission(scale=100)
    core.take("p", "a", 2500)
    core.take("p", "b", 2500)
    for second in range(3):
        core.give_back("p", "a", bytes_per_s, now_s=now_s - 2 + second)
        core.take("p", "a", bytes_per_s)
    return core


def is_about(found_s: float, told_s: float) -> bool:
    return told_s * (1 - SPREAD) - 0.01 <= found_s <= told_s * (1 + SPREAD) + 0.01


def test_a_refusal_says_when_half_of_the_bound_is_free_at_the_speed_of_the_answers() -> None:
    core = full_admission(bytes_per_s=1000, now_s=5.0)

    refusal = refusal_of(core, "p", "c", 1, now_s=5.0)

    assert refusal is not None
    assert str(refusal) == "p has 5000 bytes of unanswered appends; 5000 are allowed"
    assert is_about(refusal.retry_after_s, 2.5)


def test_a_session_is_told_the_same_time_at_each_refusal_until_then() -> None:
    core, comeback = full_admission(bytes_per_s=1000, now_s=5.0), Comeback()

    told_s = []
    for tenth in range(10):
        now_s = 5.0 + tenth / 10
        refusal = refusal_of(core, "p", "c", 10, now_s=now_s, comeback=comeback)
        assert refusal is not None
        told_s.append(now_s + refusal.retry_after_s)

    assert max(told_s) - min(told_s) <= 0.011


def test_sessions_are_told_to_come_back_one_after_the_other_as_far_as_they_can_be_served() -> (
    None
):
    core = full_admission(bytes_per_s=1000, now_s=5.0)

    told_s = []
    for _ in range(4):
        refusal = refusal_of(core, "p", "c", 200, now_s=5.0)
        assert refusal is not None
        told_s.append(refusal.retry_after_s)

    # Three bytes are expected back for each refused one: 0.6 s of answers for each session.
    assert all(is_about(found, 2.5 + 0.6 * place) for place, found in enumerate(told_s))


def test_a_program_that_opens_a_session_for_each_append_is_reckoned_with_once() -> None:
    core, left = full_admission(bytes_per_s=1000, now_s=5.0), Comebacks()
    for _ in range(50):
        comeback = left.take("c", 5.0)
        refusal_of(core, "p", "c", 200, now_s=5.0, comeback=comeback)
        left.leave("c", comeback, 5.0)

    refusal = refusal_of(core, "p", "d", 1, now_s=5.0)

    assert refusal is not None
    assert is_about(refusal.retry_after_s, 2.5 + 2.5)  # As if it had sent all in one session.


def test_a_comeback_is_left_to_one_session_of_its_client_until_its_time() -> None:
    left, first, second = Comebacks(), Comeback(until_s=7.0), Comeback(until_s=9.0)
    for comeback in (first, second, Comeback(until_s=5.0)):
        left.leave("c", comeback, 5.0)

    assert left.take("d", 6.0) not in (first, second)
    assert left.take("c", 8.0) is second
    assert left.take("c", 8.0) not in (first, second)
    assert repr(left) == "Comebacks({})"


def test_the_comebacks_of_few_clients_and_sessions_are_kept() -> None:
    left = Comebacks()
    for number in range(10_001):
        left.leave(f"{number}", Comeback(until_s=7.0), 5.0)
    for number in range(101):
        left.leave("c", Comeback(until_s=7.0, room_bytes=number), 5.0)

    assert [left.take(one, 6.0).until_s for one in ("0", "1", "2")] == [-math.inf] * 2 + [7.0]
    assert left.take("c", 6.0).room_bytes == 1


def test_it_is_calm_while_half_of_each_bound_is_free() -> None:
    core = admission()
    core.take("p", "a", CLIENT_MAX // 2)
    core.take("q", "b", CLIENT_MAX // 2)
    is_calm = [core.is_calm(*one) for one in (("p", "a"), ("p", "c"))]
    core.take("p", "a", 1)
    is_calm += [core.is_calm(*one) for one in (("p", "a"), ("p", "c"))]
    core.take("p", "d", PARTITION_MAX // 2)
    is_calm += [core.is_calm(*one) for one in (("p", "c"), ("r", "c"))]

    assert is_calm == [True, True, False, True, False, False]


def test_one_session_cannot_put_off_all_others_for_long() -> None:
    core, comeback = full_admission(bytes_per_s=1000, now_s=5.0), Comeback()
    for _ in range(1000):
        refusal_of(core, "p", "c", 1000, now_s=5.0, comeback=comeback)

    refusal = refusal_of(core, "p", "d", 1, now_s=5.0)

    assert refusal is not None
    assert is_about(refusal.retry_after_s, 2.5 + 2.5)


def test_the_speed_is_that_of_a_loaded_partition() -> None:
    core = full_admission(bytes_per_s=1000, now_s=5.0)
    core.give_back("p", "a", 2400, now_s=5.0)
    core.give_back("p", "b", 2400, now_s=5.0)
    for second in range(100):  # Clients send little.
        core.take("p", "a", 1)
        core.give_back("p", "a", 1, now_s=6.0 + second)
    core.take("p", "a", 4800)
    core.take("q", "b", 5000)

    for partition in ("p", "q"):  # Of the other one there is no speed yet.
        refusal = refusal_of(core, partition, "c", 1, now_s=105.0)
        assert refusal is not None
        assert is_about(refusal.retry_after_s, 2.5)


@given(st.lists(st.integers(1, 5000), max_size=200), st.integers(0, 10_000))
def test_nobody_is_told_to_stay_away_for_more_than_ten_seconds(
    sizes: list[int], bytes_per_s: int
) -> None:
    core = full_admission(bytes_per_s=min(bytes_per_s, 2500), now_s=5.0)
    for size in sizes:
        refusal = refusal_of(core, "p", "c", size, now_s=5.0)

        assert refusal is not None
        assert 0 < refusal.retry_after_s <= 10


def test_a_frame_that_the_proxy_had_no_time_for_is_refused() -> None:
    core = admission()

    refusal = refusal_of(core, "p", "a", 1, waited_s=QUEUE_S_MAX + 0.5)

    assert refusal_of(core, "p", "a", 1, waited_s=QUEUE_S_MAX) is None
    assert str(refusal) == "this proxy had no time for the append for 1.5 s"
    assert core.refusals_count == 1


@given(st.lists(FRAMES, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_whatever_batches_wait_for_is_freed_before_all_is_answered(
    batches: list[tuple[str, str, int]], rng: random.Random
) -> None:
    core, waited_for = admission(), set()
    for partition, client, size in batches:
        core.take(None, client, size)  # As a session has it before it knows the partition.
        core.give_back(None, client, size, now_s=1.0)
        core.take(partition, client, size)
        waited_for |= {core.full_of(partition, None), core.full_of(None, client)} - {None}
    rng.shuffle(batches)

    freed = []
    for partition, client, size in batches:
        for name in core.give_back(partition, client, size, now_s=1.0):
            freed.append(name)
            assert name not in (core.full_of(partition, None), core.full_of(None, client))

    assert waited_for <= set(freed)
    assert len(freed) == len(set(freed))


@given(st.integers(1, 10))
def test_frames_that_come_all_the_time_leave_room_for_batches_that_wait(frame: int) -> None:
    core, in_flight, client = admission(), deque[int](), 0
    while refusal_of(core, "p", f"{client}", frame) is None:
        core.take("p", f"{client}", frame)
        in_flight.append(client)
        client += 1
    core.take("p", "batches", PARTITION_MAX - len(in_flight) * frame or 1)
    assert core.full_of("p", None) == "p"

    freed: list[str] = []
    for _ in range(len(in_flight)):  # After each answer, frames take all that they may.
        freed += core.give_back("p", f"{in_flight.popleft()}", frame, now_s=1.0)
        while refusal_of(core, "p", f"{client}", frame, batches_wait=True) is None:
            core.take("p", f"{client}", frame)
            in_flight.append(client)
            client += 1

    assert "p" in freed


def test_a_frame_above_a_bound_is_taken_alone() -> None:
    assert refusal_of(admission(), "p", "a", 1_000) is None


def test_later_numbers_wait_until_the_refused_one_comes_again() -> None:
    refused = RefusedSeqs()
    refused.on_refused("till", 5)
    refused.on_refused("till", 7)  # As it came in the meantime.

    assert isinstance(refused.refusal_of("till", 6), OverCapacityError)
    assert refused.refusal_of("till", 5) is None
    assert refused.refusal_of("other", 6) is None
    refused.on_taken("till", 5, 1)
    assert refused.refusal_of("till", 6) is None


def test_refused_records_of_ever_more_writers_are_too_much() -> None:
    refused = RefusedSeqs()
    for number in range(WRITERS_MAX):
        refused.on_refused(f"{number}", 5)
    refused.on_refused("0", 4)

    with pytest.raises(OverCapacityError, match="records of 64 writers"):
        refused.on_refused("another", 5)


@pytest.mark.parametrize(
    ("seq", "count", "ends"), [(3, 1, False), (4, 1, False), (4, 2, True), (3, 9, True)]
)
def test_only_a_frame_that_holds_the_refused_number_ends_the_wait(
    seq: int, count: int, *, ends: bool
) -> None:
    """The client may send one again that came before it and whose outcome is unknown."""
    refused = RefusedSeqs()
    refused.on_refused("till", 5)

    refused.on_taken("till", seq, count)

    assert (refused.refusal_of("till", 6) is None) == ends


@pytest.mark.parametrize("seqs", [[3, 4, 5], [5, 4, 3]])
def test_the_lowest_number_of_those_refused_counts(seqs: list[int]) -> None:
    refused = RefusedSeqs()
    for seq in seqs:
        refused.on_refused("till", seq)

    assert refused.refusal_of("till", 3) is None
    assert refused.refusal_of("till", 4) is not None
