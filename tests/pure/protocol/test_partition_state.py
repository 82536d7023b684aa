"""The state of a partition: new batches, repeats, and remembered writers."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import BatchSeqs, RisingSeqs
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import (
    BATCHES_REMEMBERED,
    PartitionState,
    WrittenBatch,
)
from geolog.protocol.writer_standing import NO_NONCE, WriterFence

WRITERS = (b"a", b"b")


def appended(state: PartitionState, writer: bytes, epoch: int, seq: int, count: int) -> None:
    """A batch without gaps in an entry of its own."""
    append(state, writer, epoch, BatchSeqs(seq, count))


def append(
    state: PartitionState,
    writer: bytes,
    epoch: int,
    seqs: BatchSeqs,
    *,
    first: Sequence | None = None,
    at_us: int = 0,
    transaction_id: int | None = None,
    partitions: int = 1,
) -> None:
    """`first`: the batch's first sequence, unless that is where the state ends.

    `at_us`: its append time, if that is later than the first sequence.
    """
    first = state.sequence_next if first is None else first
    state.on_entry(
        next_sequence=Sequence(first + seqs.count),
        append_time_us=max(at_us, first + 1),
        transaction_id=transaction_id,
        batch_bytes=100,
    )
    batch = WrittenBatch(seqs, 1, first, 0, first, 0, 0)
    state.on_batch(writer, epoch, batch, state.append_time_us, partitions=partitions)


def fence(state: PartitionState, writer: bytes, epoch: int, nonce: int = 7) -> None:
    state.on_fence(writer, WriterFence(epoch, nonce), state.append_time_us + 1)


def remembered(state: PartitionState, seqs: BatchSeqs) -> bool:
    """Whether the state knows the places of all these records of one writer."""
    return all(state.writer(b"a").batch_of(seq) is not None for seq in seqs)


def test_a_fence_takes_no_sequence_and_comes_before_any_batch() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 0, 3)
    fence(state, b"a", 2)
    fence(state, b"b", 5)

    assert (state.sequence_next, state.append_time_us) == (3, 3)
    assert [state.writer(one).epoch for one in (b"a", b"b", b"c")] == [2, 5, 0]
    assert [state.writer(one).seq_highest for one in (b"a", b"b", b"c")] == [2, -1, -1]


def test_a_batch_keeps_the_nonce_of_its_own_session_only() -> None:
    state = PartitionState()
    fence(state, b"a", 2, nonce=9)
    appended(state, b"a", 2, 0, 3)
    assert (state.writer(b"a").epoch, state.writer(b"a").nonce) == (2, 9)

    appended(state, b"a", 3, 3, 3)  # As a log without fences has it.
    assert (state.writer(b"a").epoch, state.writer(b"a").nonce) == (3, NO_NONCE)


def test_a_batch_may_be_remembered_in_part() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 0, 3)

    assert remembered(state, BatchSeqs(0, 3))
    assert remembered(state, BatchSeqs(1, 2))
    assert not remembered(state, BatchSeqs(2, 2))


def test_a_gap_within_a_batch_was_never_appended() -> None:
    state = PartitionState()
    append(state, b"a", 1, BatchSeqs(0, 3, b"\x02\x00"))  # 0, 3, 4.

    assert remembered(state, BatchSeqs(3, 2))
    assert remembered(state, BatchSeqs(0, 2, b"\x03"))
    assert not remembered(state, BatchSeqs(2, 1))
    assert not remembered(state, BatchSeqs(0, 2))


def test_a_copy_does_not_change_with_the_original() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 0, 3)
    other = state.copy()
    appended(other, b"a", 1, 3, 3)

    assert state.writer(b"a").seq_highest == 2
    assert other.writer(b"a").seq_highest == 5


def test_only_idle_writers_are_forgotten() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 0, 3)
    appended(state, b"b", 1, 0, 3)

    before_us = state.writer(b"b").last_append_us
    assert not state.forget_idle(before_us, trimmed_before=2)
    assert len(state.forget_idle(before_us, trimmed_before=3)) == 1
    assert state.writer(b"a").seq_highest == -1
    assert state.writer(b"b").seq_highest == 2


def test_a_writer_that_only_began_a_session_is_remembered_as_long_as_one_that_wrote() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 0, 3)
    fence(state, b"b", 1)
    fence(state, b"a", 2)

    heard_us = state.writer(b"b").last_append_us
    assert not state.forget_idle(heard_us, trimmed_before=3)
    assert len(state.forget_idle(heard_us + 1, trimmed_before=3)) == 1
    assert sorted(state.writers) == [b"a"]


def test_a_seq_that_goes_back_fails_an_assertion() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 5, 3)
    with pytest.raises(AssertionError):
        appended(state, b"a", 1, 7, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(WRITERS), st.lists(st.integers(0, 3), min_size=1, max_size=4)
        ),
        max_size=200,
    )
)
def test_each_seq_is_where_a_plain_list_says(steps: list[tuple[bytes, list[int]]]) -> None:
    """The naive model keeps every number for ever. Steps: the gaps before a batch's records."""
    state, naive = PartitionState(), dict[tuple[bytes, int], int]()
    batches: dict[bytes, list[list[int]]] = {writer: [] for writer in WRITERS}
    for writer, gaps in steps:
        seqs = list(accumulate((gap + 1 for gap in gaps), initial=-1))[1:]
        seqs = [state.writer(writer).seq_highest + 1 + seq for seq in seqs]
        for row, seq in enumerate(seqs):
            naive[writer, seq] = state.sequence_next + row
        batches[writer].append(seqs)
        gathering = RisingSeqs(seqs[0])
        for seq in seqs[1:]:
            gathering.add(seq)
        append(state, writer, 1, gathering.gathered())

    for writer in WRITERS:
        last = {n for one in batches[writer][-BATCHES_REMEMBERED:] for n in one}
        highest = state.writer(writer).seq_highest
        assert highest == max((n for one, n in naive if one == writer), default=-1)
        for seq in range(highest + 2):
            batch = state.writer(writer).batch_of(seq)
            assert (batch is not None) == (seq in last)
            if batch is not None:
                found = batch.seqs.row_of(seq)
                assert found is not None
                assert batch.first_sequence + found == naive[writer, seq]


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from(WRITERS),
                st.integers(0, 5),
                st.none() | st.integers(0, 9),
                st.integers(0, 3),
            ),
            max_size=80,
        ),
        max_size=5,
    )
)
def test_runs_folded_separately_agree_with_all_entries_together(
    runs: list[list[tuple[bytes, int, int | None, int]]],
) -> None:
    """Each run starts from an empty state, without knowledge of earlier runs.

    A step of no records is a fence.
    """
    whole, seq, partitions = PartitionState(), 0, 1
    apart = []
    for run in runs:
        state = PartitionState()
        for writer, count, transaction_id, more in run:
            first, seqs = whole.sequence_next, BatchSeqs(seq, count)
            seq, partitions = seq + count, partitions + more
            time_us = whole.append_time_us + 1
            for one in (whole, state):
                if not count:
                    one.on_fence(writer, WriterFence(partitions, 1 + more), time_us)
                    continue
                append(
                    one, writer, partitions, seqs,
                    first=first, at_us=time_us, transaction_id=transaction_id,
                    partitions=partitions,
                )  # fmt: skip
        apart.append(state)

    behind = PartitionState()
    for state in reversed(apart):
        behind.follow(state)
    assert behind == whole


def test_following_a_state_costs_nothing_for_writers_that_it_lacks() -> None:
    """There may be ten thousand writers, and as many runs of entries."""
    before, behind = PartitionState(), PartitionState()
    appended(before, b"a", 1, 0, 1)
    appended(behind, b"a", 1, 1, 1)
    appended(behind, b"b", 1, 0, 1)
    untouched = behind.writers[b"b"]
    behind.follow(before)

    assert behind.writers[b"b"] is untouched
    assert [one.seq_first for one in behind.writers[b"a"].batches] == [0, 1]


def test_a_seq_in_a_gap_was_left_out_unless_it_is_too_old_to_tell() -> None:
    state = PartitionState()
    appended(state, b"a", 1, 5, 2)
    appended(state, b"a", 1, 9, 1)
    writer = state.writer(b"a")

    assert [seq for seq in range(12) if writer.is_left_out(seq)] == [7, 8]
    assert not state.writer(b"b").is_left_out(0)
