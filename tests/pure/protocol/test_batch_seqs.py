"""The seqs of a batch against a plain list of all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import (
    GAPS_BYTES_MAX,
    BatchSeqs,
    RisingSeqs,
    batch_with,
    is_left_out_of,
)

SEQ_MAX = 2**63 - 1
rising = st.one_of(
    st.sets(st.integers(0, 40), min_size=1),
    st.sets(st.integers(0, SEQ_MAX), min_size=1, max_size=20),
    st.builds(range, st.integers(0, 10), st.integers(11, 600)),
).map(sorted)


def gathered(seqs: list[int]) -> BatchSeqs:
    gathering = RisingSeqs(seqs[0])
    for seq in seqs[1:]:
        assert gathering.fits(seq)
        gathering.add(seq)
    return gathering.gathered()


@given(rising)
def test_seqs_agree_with_a_plain_list(seqs: list[int]) -> None:
    batch = gathered(seqs)

    assert list(batch) == seqs
    assert (batch.first, batch.last, batch.count) == (seqs[0], seqs[-1], len(seqs))
    assert batch.fault() is None
    assert [batch.row_of(seq) for seq in seqs] == list(range(len(seqs)))
    beside = {seq + step for seq in seqs for step in (-1, 1)} - set(seqs)
    assert {batch.row_of(seq) for seq in beside} <= {None}


@given(rising)
def test_seqs_without_gaps_cost_no_bytes_and_others_few(seqs: list[int]) -> None:
    gaps = gathered(seqs).gaps

    if seqs[-1] - seqs[0] == len(seqs) - 1:
        assert gaps == b""
    else:
        assert len(seqs) - 1 <= len(gaps) <= 9 * (len(seqs) - 1)


@given(st.integers(0, SEQ_MAX), st.integers(1, 20), st.binary(min_size=1, max_size=40))
def test_bytes_read_are_refused_or_equal_what_would_be_written(
    first: int, count: int, gaps: bytes
) -> None:
    found = BatchSeqs(first, count, gaps)

    if found.fault() is None:
        assert gathered(list(found)) == found


@pytest.mark.parametrize(
    ("seqs", "why"),
    [
        (BatchSeqs(-1, 1), "impossible"),
        (BatchSeqs(0, 0), "impossible"),
        (BatchSeqs(SEQ_MAX, 2), "more than 63 bits"),
        (BatchSeqs(SEQ_MAX - 4, 2, b"\x05"), "more than 63 bits"),
        (BatchSeqs(0, 3, b"\x00\x00"), "all zero"),
        (BatchSeqs(0, 3, b"\x01"), "found 1 gaps between seqs, expected 2"),
        (BatchSeqs(0, 2, b"\x01\x01"), "found 2 gaps between seqs, expected 1"),
        (BatchSeqs(0, 2, b"\x81"), "cut off"),
        (BatchSeqs(0, 2, b"\x81\x00"), "more bytes than it needs"),
        (BatchSeqs(0, 2, b"\x81" * 9 + b"\x01"), "more bytes than it needs"),
        (BatchSeqs(0, GAPS_BYTES_MAX + 2, b"\x01" * (GAPS_BYTES_MAX + 1)), "over the limit"),
    ],
)
def test_impossible_gaps_are_explained(seqs: BatchSeqs, why: str) -> None:
    assert why in (seqs.fault() or "")


@pytest.mark.parametrize("gap", [1, 1000, 2**62])
def test_gaps_stay_within_their_bound(gap: int) -> None:
    """A batch that would exceed it is sealed; one without gaps may be of any length."""
    gathering = RisingSeqs(0)
    for seq in range(1, 8000):
        gathering.add(seq)
    assert gathering.fits(8000)
    while gathering.fits(gathering.last + 1 + gap):
        gathering.add(gathering.last + 1 + gap)

    assert GAPS_BYTES_MAX - 9 < len(gathering.gathered().gaps) <= GAPS_BYTES_MAX


def test_a_run_longer_than_the_bound_takes_no_gap() -> None:
    gathering = RisingSeqs(0)
    for seq in range(1, GAPS_BYTES_MAX + 2):
        gathering.add(seq)

    assert gathering.fits(gathering.last + 1)
    assert not gathering.fits(gathering.last + 2)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=8))
def test_a_seq_is_found_in_its_batch_or_in_a_gap(gaps: list[list[int]]) -> None:
    """Batches as the gaps before their records, from seq 5 on."""
    batches: list[BatchSeqs] = []
    homes: dict[int, BatchSeqs] = {}
    last = 4
    for some in gaps:
        seqs = [last := last + 1 + gap for gap in some]
        rising = RisingSeqs(seqs[0])
        for seq in seqs[1:]:
            rising.add(seq)
        batches.append(rising.gathered())
        homes.update(dict.fromkeys(seqs, batches[-1]))

    for seq in range(last + 3):
        is_within = bool(homes) and min(homes) <= seq <= max(homes)
        assert batch_with(batches, seq, lambda one: one) is homes.get(seq)
        assert is_left_out_of(batches, seq, lambda one: one) == (is_within and seq not in homes)
