"""Snapshots of a partition's state: it opens to the same state, and damage is detected."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.batch_seqs import GAPS_BYTES_MAX, BatchSeqs
from geolog.protocol.generations import Generation
from geolog.protocol.ids import Sequence
from geolog.protocol.partition_state import PartitionState, WriterState, WrittenBatch
from geolog.protocol.writer_standing import NO_NONCE, NONCE_MAX
from geolog.wire.batch import Batch, open_batch, seal_batch
from geolog.wire.snapshot import open_snapshot, seal_snapshot, snapshot_part
from topology.errors import DamagedBytesError

u32 = st.integers(0, 2**32 - 1)
i63 = st.integers(0, 2**63 - 1)
seqs = st.builds(BatchSeqs, st.integers(0, 2**62), st.integers(1, 2**32 - 1)) | st.lists(
    st.integers(0, 127), min_size=1, max_size=20
).filter(any).map(lambda gaps: BatchSeqs(0, len(gaps) + 1, bytes(gaps)))
written = st.builds(
    WrittenBatch,
    seqs=seqs, segment=i63, entry=i63, slot=u32, first_sequence=i63,
    header_crc=u32, body_crc=u32,
)  # fmt: skip
writers = st.dictionaries(
    st.binary(min_size=1, max_size=255),
    st.builds(
        WriterState,
        epoch=i63, seq_highest=i63, last_append_us=i63,
        batches=st.lists(written, max_size=4).map(tuple),
        generations=st.lists(
            st.builds(Generation, st.integers(1, 1024), i63), max_size=3
        ).map(tuple),
        nonce=st.integers(NO_NONCE, NONCE_MAX),
    ),
    max_size=5,
)  # fmt: skip
states = st.builds(
    PartitionState,
    sequence_next=i63, append_time_us=i63,
    transaction_id=st.none() | st.integers(-(2**63), 2**63 - 1), size_bytes=i63,
    writers=writers, local_only_count=st.just(0) | i63,
)  # fmt: skip


def parts_of(state: PartitionState) -> list[Batch]:
    return [open_batch(sealed.data) for sealed in seal_snapshot(state, now_us=1)]


def opened(parts: list[Batch], state: PartitionState) -> PartitionState:
    return open_snapshot(
        parts, sequence_next=state.sequence_next, append_time_us=state.append_time_us
    )


@given(states)
def test_an_opened_snapshot_equals_the_sealed_state(state: PartitionState) -> None:
    assert opened(parts_of(state), state) == state


@given(states)
def test_equal_states_have_equal_bytes(state: PartitionState) -> None:
    other = PartitionState(
        state.sequence_next,
        state.append_time_us,
        state.transaction_id,
        state.size_bytes,
        dict(reversed(state.writers.items())),
        state.local_only_count,
    )

    assert [bytes(one.data) for one in seal_snapshot(state, now_us=1)] == [
        bytes(one.data) for one in seal_snapshot(other, now_us=1)
    ]


def without_nonces(state: PartitionState) -> PartitionState:
    writers = {name: attrs.evolve(one, nonce=NO_NONCE) for name, one in state.writers.items()}
    return attrs.evolve(state, writers=writers, local_only_count=0)


def as_version_1(part: Batch) -> Batch:
    """The part as code without fences wrote it."""
    values = [b"\x01" + part.value(0)[1:24]]
    values += [part.value(row)[:-16] for row in range(1, len(part))]
    keys = [part.key(row) for row in range(len(part))]
    return open_batch(seal_batch(values, keys=keys, created_us=1).data)


@given(states)
def test_a_snapshot_of_version_1_opens_without_nonces(state: PartitionState) -> None:
    assert opened([as_version_1(one) for one in parts_of(state)], state) == without_nonces(
        state
    )


def a_crowd(count: int) -> PartitionState:
    batch = WrittenBatch(BatchSeqs(5, 1), 1, 1, 0, Sequence(1), 7, 8)
    return PartitionState(
        writers={
            b"writer %d" % number: WriterState(1, 5, number, (batch,) * 64)
            for number in range(count)
        }
    )


@pytest.mark.parametrize(
    ("writers_count", "parts_count"),
    [(0, 1), (950, 1), (970, 2), pytest.param(2500, 3, marks=pytest.mark.long)],
)
def test_a_crowd_of_writers_takes_several_parts(writers_count: int, parts_count: int) -> None:
    state = a_crowd(writers_count)
    parts = parts_of(state)

    assert [snapshot_part(one) for one in parts] == [
        (n, parts_count) for n in range(parts_count)
    ]
    assert opened(parts, state) == state


def test_the_longest_possible_gaps_fit_a_snapshot() -> None:
    gaps = b"\x01" * GAPS_BYTES_MAX
    batch = WrittenBatch(BatchSeqs(0, GAPS_BYTES_MAX + 1, gaps), 1, 1, 0, Sequence(1), 7, 8)
    state = PartitionState(
        writers={b"%255d" % number: WriterState(1, 5, 1, (batch,) * 64) for number in range(30)}
    )

    assert opened(parts_of(state), state) == state


def test_missing_and_misplaced_parts_are_detected() -> None:
    state = a_crowd(2500)
    one, two, three = parts_of(state)

    for wrong in ([one, two], [two, three], [one, three, two], []):
        with pytest.raises(DamagedBytesError):
            opened(wrong, state)


SECOND = b"\x02\x00\x00\x00\x01\x00\x00\x00" + bytes(16)
FIRST = b"\x01\x00\x00\x00\x01\x00\x00\x00" + bytes(16)


@pytest.mark.parametrize(
    "values",
    [
        [b""],
        [bytes(24)],
        [b"\x03" + bytes(23)],
        [FIRST[:-1] + b"\xff"],
        [FIRST, b"short"],
        [FIRST, bytes(24) + b"\x05"],
        [FIRST, bytes(24) + b"\x41" + bytes(65 * 50)],
        [FIRST, bytes(25) + b"cut"],
        [SECOND, bytes(25)],
        [SECOND, bytes(25) + bytes(3) + bytes(16)],
        [FIRST, bytes(24) + b"\x01" + bytes(50)],
        [
            FIRST,
            bytes(24) + b"\x01" + bytes(32) + b"\x01" + bytes(15) + b"\x01\x00",
        ],
    ],
)
def test_bytes_that_are_not_a_snapshot_are_refused(values: list[bytes]) -> None:
    keys = [None, *(b"writer" for _ in values[1:])]
    batch = open_batch(seal_batch(values, keys=keys, created_us=1).data)
    with pytest.raises(DamagedBytesError):
        opened([batch], PartitionState())
