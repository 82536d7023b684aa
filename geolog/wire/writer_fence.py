"""The fence of a named writer's session, as a control entry holds it.

The entry has one batch with one record. Its key is the writer's id. Layout of its value,
little-endian:

    0  tag u8, 0x46 ("F")
    1  zero, 3 bytes
    4  writer epoch u32, from 1
    8  nonce, 16 bytes, not zero

The value is as long as the first record of a snapshot, and its tag stands where a snapshot has
its version. So code that knows no fences says `unknown version 70 of snapshots` when it takes
over a partition with one.
"""

import struct

import attrs

from geolog.protocol.writer_standing import NO_NONCE, WriterFence, is_possible_fence
from geolog.wire.batch import Batch, SealedBatch, seal_batch
from geolog.wire.limits import WRITER_ID_BYTES_MAX
from topology.errors import DamagedBytesError

TAG = 0x46

_FENCE = struct.Struct("<B3xI16s")


@attrs.frozen
class OpenedFence:
    """A fence in the log, with its writer."""

    writer_id: bytes
    fence: WriterFence


def seal_fence(writer_id: bytes, fence: WriterFence, *, now_us: int) -> SealedBatch:
    """The batch of the fence's control entry."""
    assert is_possible_fence(fence), f"{fence} is impossible"
    value = _FENCE.pack(TAG, fence.epoch, fence.nonce.to_bytes(16, "little"))
    return seal_batch([value], keys=[writer_id], created_us=now_us)


def is_fence(batch: Batch) -> bool:
    """Whether a control entry's batch is a fence; it is part of a snapshot otherwise."""
    return batch.value(0)[:1] == bytes([TAG])


def open_fence(batch: Batch) -> OpenedFence:
    """Decode a control entry's batch that is a fence. DamagedBytesError."""
    value, writer_id = batch.value(0), batch.key(0)
    if len(batch) != 1 or len(value) != _FENCE.size or any(value[1:4]):
        raise DamagedBytesError(f"a writer's fence has {len(batch)} records, {value!r} first")
    _, epoch, data = _FENCE.unpack(value)
    nonce = int.from_bytes(data, "little")
    if not writer_id or len(writer_id) > WRITER_ID_BYTES_MAX:
        raise DamagedBytesError(f"invalid writer id in a fence: {writer_id!r}")
    if not epoch or nonce == NO_NONCE:
        raise DamagedBytesError(f"a writer's fence has epoch {epoch} and nonce {nonce}")
    return OpenedFence(writer_id, WriterFence(epoch, nonce))
