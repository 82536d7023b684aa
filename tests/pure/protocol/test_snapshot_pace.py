"""When a snapshot is repeated: seldom if it is large, never for little."""

import pytest

from geolog.protocol.snapshot_pace import SnapshotPace

MIB = 1 << 20


@pytest.mark.parametrize(
    ("snapshot_bytes", "pause_bytes"), [(0, 16 * MIB), (MIB, 16 * MIB), (10 * MIB, 40 * MIB)]
)
def test_a_snapshot_is_repeated_after_16_mib_or_four_times_its_size(
    snapshot_bytes: int, pause_bytes: int
) -> None:
    pace = SnapshotPace()
    pace.on_snapshot(snapshot_bytes)

    assert [due_after(pace, length_bytes) for length_bytes in (pause_bytes - 1, 1)] == [
        False,
        True,
    ]
    pace.on_snapshot(snapshot_bytes)
    assert not due_after(pace, 1)


def due_after(pace: SnapshotPace, length_bytes: int) -> bool:
    pace.on_entry(length_bytes)
    return pace.is_due


def test_a_short_tail_needs_no_last_snapshot() -> None:
    little, enough = SnapshotPace(), SnapshotPace()
    little.on_entry(255 * 1024)
    enough.on_entry(256 * 1024)

    assert (little.is_worth_ending_with, enough.is_worth_ending_with) == (False, True)
