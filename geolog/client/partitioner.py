"""Which partition a record goes to: by its key, else in runs from partition to partition.

The partition of a key is `crc32c(key) mod partitions`: a fixed function of both, so that every
writer of a stream, in any language, sends a key to the same partition.
"""

from crc32c import crc32c

STICK_BYTES = 64 * 1024
"""Bytes of records without keys that go to one partition before the next one's turn."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return crc32c(key) % partitions


class Partitioner:
    """Spreads the records of one writer.

    Records without a key stick to a partition until it has got `STICK_BYTES`, so that batches
    fill. Those of a named writer go to the partition of its id: its sequence of seqs is then
    whole in one place.
    """

    def __init__(self, partitions: int, *, writer_id: bytes | None, first: int) -> None:
        self._partitions = partitions
        self._is_fixed = writer_id is not None
        self._current = (
            first % partitions if writer_id is None else partition_of_key(writer_id, partitions)
        )
        self._given_bytes = 0

    def __repr__(self) -> str:
        return f"Partitioner({self._partitions}, at {self._current})"

    def partition_of(self, key: bytes | None, size_bytes: int) -> int:
        """The partition of the next record."""
        if key is not None:
            return partition_of_key(key, self._partitions)
        if not self._is_fixed and self._given_bytes >= STICK_BYTES:
            self._current = (self._current + 1) % self._partitions
            self._given_bytes = 0
        self._given_bytes += size_bytes
        return self._current
