"""Frames are refused early, and numbered records never overtake one that was refused."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regions.proxy.protocol.append_admission import AppendAdmission, RefusedSeqs
from topology.errors import OverCapacityError

PROXY_MAX, PARTITION_MAX, CLIENT_MAX = 100, 50, 30


def admission() -> AppendAdmission:
    return AppendAdmission(
        proxy_bytes_max=PROXY_MAX,
        partition_bytes_max=PARTITION_MAX,
        client_bytes_max=CLIENT_MAX,
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
        bounds = {partition: PARTITION_MAX, client: CLIENT_MAX, "all": PROXY_MAX}
        is_full = any(
            counts[one] and counts[one] + size > bound for one, bound in bounds.items()
        )

        refusal = core.refusal_of(partition, client, size, proxy_bytes=counts["all"])

        assert (refusal is not None) == is_full
        if refusal is None:
            core.take(partition, client, size)
            in_flight.append(step)
    for partition, client, size in in_flight:
        core.give_back(partition, client, size, now_s=2.0)
    assert repr(core) == "AppendAdmission({}, {})"


def test_a_refusal_says_when_half_of_the_bound_is_free_at_the_speed_of_the_answers() -> None:
    core = admission()
    for second in range(3):  # 25 bytes a second.
        core.take("p", "a", 25)
        core.give_back("p", "a", 25, now_s=float(second))
    core.take("p", "a", 25)
    core.take("p", "b", 25)

    refusal = core.refusal_of("p", "c", 1, proxy_bytes=50)

    assert refusal is not None
    assert str(refusal) == "p has 50 bytes of unanswered appends; 50 are allowed"
    assert refusal.retry_after_s == 1.0


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


def test_a_frame_above_a_bound_is_taken_alone() -> None:
    assert admission().refusal_of("p", "a", 1_000, proxy_bytes=0) is None


def test_later_numbers_wait_until_the_refused_one_comes_again() -> None:
    refused = RefusedSeqs()
    refused.on_refused("till", 5)
    refused.on_refused("till", 7)  # As it came in the meantime.

    assert isinstance(refused.refusal_of("till", 6), OverCapacityError)
    assert refused.refusal_of("till", 5) is None
    assert refused.refusal_of("other", 6) is None
    refused.on_taken("till", 5)
    assert refused.refusal_of("till", 6) is None


def test_a_number_below_the_refused_one_ends_the_wait() -> None:
    refused = RefusedSeqs()
    refused.on_refused("till", 5)

    refused.on_taken("till", 4)

    assert refused.refusal_of("till", 6) is None


@pytest.mark.parametrize("seqs", [[3, 4, 5], [5, 4, 3]])
def test_the_lowest_number_of_those_refused_counts(seqs: list[int]) -> None:
    refused = RefusedSeqs()
    for seq in seqs:
        refused.on_refused("till", seq)

    assert refused.refusal_of("till", 3) is None
    assert refused.refusal_of("till", 4) is not None
