"""The fence of a session as bytes: it opens as sealed, and is never taken for a snapshot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geolog.protocol.partition_state import PartitionState
from geolog.protocol.writer_standing import NONCE_MAX, WriterFence
from geolog.wire.batch import Batch, open_batch, seal_batch
from geolog.wire.snapshot import seal_snapshot, snapshot_part
from geolog.wire.writer_fence import OpenedFence, is_fence, open_fence, seal_fence
from topology.errors import DamagedBytesError

fences = st.builds(WriterFence, st.integers(1, 2**32 - 1), st.integers(1, NONCE_MAX))
writer_ids = st.binary(min_size=1, max_size=255)


def sealed(writer_id: bytes, fence: WriterFence) -> Batch:
    return open_batch(seal_fence(writer_id, fence, now_us=1).data)


@given(writer_ids, fences)
def test_an_opened_fence_equals_the_sealed_one(writer_id: bytes, fence: WriterFence) -> None:
    batch = sealed(writer_id, fence)

    assert is_fence(batch)
    assert open_fence(batch) == OpenedFence(writer_id, fence)


def test_a_snapshot_is_no_fence() -> None:
    (snapshot,) = seal_snapshot(PartitionState(), now_us=1)

    assert not is_fence(open_batch(snapshot.data))


@given(writer_ids, fences)
def test_code_that_knows_only_snapshots_refuses_a_fence_by_its_version(
    writer_id: bytes, fence: WriterFence
) -> None:
    """It would otherwise take over the partition and forget who may append."""
    with pytest.raises(DamagedBytesError, match="unknown version 70 of snapshots"):
        snapshot_part(sealed(writer_id, fence))


GOOD = b"F\x00\x00\x00\x01\x00\x00\x00" + b"\x01" * 16


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([GOOD[:-1]], b"w"),
        ([GOOD + b"\x00"], b"w"),
        ([GOOD, GOOD], b"w"),
        ([GOOD], None),
        ([GOOD], b"w" * 256),
        ([GOOD[:1] + b"\x01" + GOOD[2:]], b"w"),
        ([GOOD[:4] + bytes(4) + GOOD[8:]], b"w"),
        ([GOOD[:8] + bytes(16)], b"w"),
    ],
)
def test_bytes_that_are_not_a_fence_are_refused(values: list[bytes], key: bytes | None) -> None:
    batch = open_batch(seal_batch(values, keys=[key] * len(values), created_us=1).data)
    with pytest.raises(DamagedBytesError):
        open_fence(batch)
