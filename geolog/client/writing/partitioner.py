"""Which partition a record goes to: by its key, else in runs from partition to partition.

The partition of a key is `crc32c(key) mod partitions`: a fixed function of both, so that every
writer of a stream, in any language, sends a key to the same partition. What a named writer
sends without a key goes by its id: its sequence of seqs is then whole in one place. It goes by
the number of partitions that its seq was first divided among, however many there are now.

Rules: PROTOCOL S14.
"""

from collections.abc import Iterable

from crc32c import crc32c

from geolog.protocol.generations import Generation, WriterDivision

STICK_BYTES = 64 * 1024
"""Bytes of records without keys that go to one partition before the next one's turn."""


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition of a key."""
    return crc32c(key) % partitions


class Partitioner:
    """Spreads the records of one writer that has no name.

    Records without a key stick to a partition until it has got `STICK_BYTES`, so that batches
    fill.
    """

    def __init__(self, partitions: int, *, first: int) -> None:
        self._partitions = partitions
        self._current = first % partitions
        self._given_bytes = 0

    def __repr__(self) -> str:
        return f"Partitioner({self._partitions}, at {self._current})"

    def partition_of(self, key: bytes | None, size_bytes: int) -> int:
        """The partition of the next record."""
        if key is not None:
            return partition_of_key(key, self._partitions)
        if self._given_bytes >= STICK_BYTES:
            self._current = (self._current + 1) % self._partitions
            self._given_bytes = 0
        self._given_bytes += size_bytes
        return self._current


class NamedPartitioner:
    """Divides the records of one named writer; what comes again goes where it went first."""

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
