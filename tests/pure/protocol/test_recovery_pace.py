"""The size of a recovery's batches."""

from geolog.protocol.recovery_pace import RecoveryPace


def sizes_of_batches(length_bytes: int, count: int) -> list[int]:
    pace = RecoveryPace(32, 1 << 20)
    sizes = []
    while count > 0:
        sizes.append(pace.batch_entries)
        for _ in range(sizes[-1]):
            pace.on_entry(length_bytes)
        count -= sizes[-1]
    return sizes


def test_batches_of_small_entries_grow() -> None:
    assert sizes_of_batches(500, 4000) == [32, 64, 192, 576, 1024, 1024, 1024, 1024]


def test_batches_of_large_entries_stay_short() -> None:
    assert set(sizes_of_batches(1 << 18, 1000)) == {32}


def test_a_batch_stays_within_its_bytes() -> None:
    assert max(sizes_of_batches(10_000, 5000)) == (1 << 20) // 10_000
