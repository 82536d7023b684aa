"""Chooses the partition of a record: by its key, or else in runs from partition to partition.

The partition of a key is `crc32c(key) mod partitions`. This is fixed, so every writer of a
stream, in any language, sends a key to the same partition. A named writer uses its id as the
key of records without one, which keeps its seqs together in one partition. It divides by the
number of partitions under which a seq was first sent, however many there are now.

Rules: PROTOCOL S14.
"""

from collections.abc import Iterable

from crc32c import crc32c

from geolog.protocol.generations import Generation, WriterDivision

STICK_BYTES = 64 * 1024
"""Send this many bytes of records without keys to a partition, then go to the next."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return crc32c(key) % partitions


class Partitioner:
    """Spreads the records of a writer without an id.

    Records without a key stay with one partition for `STICK_BYTES`, so that batches fill.
    """

    def __init__(self, partitions: int, *, first: int) -> None:
        self._partitions = partitions
        self._current = first % partitions
        self._given_bytes = 0

    def __repr__(self) -> str:
        return f"Partitioner({self._partitions}, at {self._current})"

    def partition_of(self, key: bytes | None, size_bytes: int) -> int:
        """The partition of the next record, which is given to it."""
        partition = self.look(key)
        self.give(partition, key, size_bytes)
        return partition

    def look(self, key: bytes | None) -> int:
        """The partition of the next record, if one comes."""
        if key is not None:
            return partition_of_key(key, self._partitions)
        if self._given_bytes < STICK_BYTES:
            return self._current
        return (self._current + 1) % self._partitions

    def give(self, partition: int, key: bytes | None, size_bytes: int) -> None:
        """Count a record that the partition was given."""
        if key is None:
            is_next = self._given_bytes >= STICK_BYTES
            self._current = partition
            self._given_bytes = size_bytes if is_next else self._given_bytes + size_bytes


class NamedPartitioner:
    """Divides the records of a named writer; a repeated record goes to its first partition."""

    def __init__(
        self, writer_id: bytes, found: Iterable[tuple[Generation, ...]], partitions: int
    ) -> None:
        """`found`: the writer's generations in each partition; `partitions`: how many now."""
        self._writer_id = writer_id
        self._division = WriterDivision(found, partitions)

    def __repr__(self) -> str:
        return f"NamedPartitioner({self._writer_id!r}, {self._division!r})"

    def partition_of(self, key: bytes | None, seq: int) -> int:
        """The partition of this record."""
        return partition_of_key(
            self._writer_id if key is None else key, self._division.partitions_of(seq)
        )
