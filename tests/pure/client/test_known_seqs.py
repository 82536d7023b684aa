"""Seqs that a session knows: the same that the state of the partition remembers."""

from hypothesis import given
from hypothesis import strategies as st

from geolog.client.writing.known_seqs import KnownSeqs
from geolog.protocol.batch_seqs import RisingSeqs
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import NO_WRITER_STATE, WrittenBatch


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=90),
    st.integers(0, 90),
)
def test_it_agrees_with_the_state_of_the_partition(
    batches: list[list[int]], told_count: int
) -> None:
    """Batches by the gaps before their records; the first were told when the session began."""
    state, known, told = NO_WRITER_STATE, KnownSeqs(), min(told_count, len(batches))
    for number, gaps in enumerate(batches):
        if number == told:
            known = KnownSeqs(one.seqs for one in state.batches)
        gathering = RisingSeqs(state.seq_highest + 1 + gaps[0])
        for gap in gaps[1:]:
            gathering.add(gathering.last + 1 + gap)
        seqs = gathering.gathered()
        written = WrittenBatch(seqs, 1, number, 0, Sequence(number), 0, 0)
        state = state.with_batch(1, written, 0, 1)
        if number >= told:
            known.add(seqs)
    if told == len(batches):
        known = KnownSeqs(one.seqs for one in state.batches)

    for seq in range(state.seq_highest + 2):
        assert known.has(seq) == (state.batch_of(seq) is not None)
        assert known.is_left_out(seq) == state.is_left_out(seq)
