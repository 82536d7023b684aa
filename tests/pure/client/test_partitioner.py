"""The partition of a record."""

from collections import Counter

import pytest

from geolog.client.writing.partitioner import (
    STICK_BYTES,
    NamedPartitioner,
    Partitioner,
    partition_of_key,
)
from geolog.protocol.generations import Generation


@pytest.mark.parametrize(
    ("key", "partitions", "expected"),
    [(b"", 7, 0), (b"123456789", 7, 0xE3069283 % 7), (b"123456789", 256, 0x83)],
)
def test_a_key_has_the_same_partition_for_ever(
    key: bytes, partitions: int, expected: int
) -> None:
    """Clients in other languages compute it, too (docs/FORMATS.md)."""
    assert partition_of_key(key, partitions) == expected


@pytest.mark.parametrize("partitions", [2, 3, 8, 12, 256])
def test_keys_spread_evenly(partitions: int) -> None:
    counts = Counter(partition_of_key(b"user-%d" % n, partitions) for n in range(100_000))

    assert len(counts) == partitions
    mean = 100_000 / partitions
    assert max(counts.values()) < 1.3 * mean
    assert min(counts.values()) > 0.7 * mean


def test_records_without_keys_stay_with_a_partition_then_move_on() -> None:
    spread = Partitioner(3, first=1)
    found = [spread.partition_of(None, STICK_BYTES // 4) for _ in range(12)]

    assert found == [1] * 4 + [2] * 4 + [0] * 4


def test_records_with_keys_do_not_move_the_others_on() -> None:
    spread = Partitioner(3, first=0)
    for _ in range(100):
        spread.partition_of(b"key", STICK_BYTES)

    assert spread.partition_of(None, 1) == 0


def test_a_named_writer_stays_in_the_partition_of_its_id() -> None:
    spread = NamedPartitioner(b"till-7", [], 5)

    assert {spread.partition_of(None, seq) for seq in range(20)} == {
        partition_of_key(b"till-7", 5)
    }


@pytest.mark.parametrize("key", [None, b"a", b"b", b"c"])
def test_a_repeated_record_goes_by_the_partitions_of_its_first_append(
    key: bytes | None,
) -> None:
    spread = NamedPartitioner(b"till-7", [(Generation(2, 9),), ()], 5)

    assert spread.partition_of(key, 9) == partition_of_key(key or b"till-7", 2)
    assert spread.partition_of(key, 10) == partition_of_key(key or b"till-7", 5)
