"""When a snapshot is written again: seldom where it is large, never for little."""

import pytest

from geolog.protocol.snapshot_pace import SnapshotPace

MIB = 1 << 20


@pytest.mark.parametrize(
    ("snapshot_bytes", "pause_bytes"), [(0, 16 * MIB), (MIB, 16 * MIB), (10 * MIB, 40 * MIB)]
)
def test_it_comes_again_after_16_mib_or_four_times_its_own_size(
    snapshot_bytes: int, pause_bytes: int
) -> None:
    pace = SnapshotPace()
    pace.on_snapshot(snapshot_bytes)
    pace.on_entry(pause_bytes - 1)
    assert not pace.is_due
    pace.on_entry(1)
    assert pace.is_due
    pace.on_snapshot(snapshot_bytes)
    assert not pace.is_due


def test_little_behind_the_last_one_is_soon_read() -> None:
    pace = SnapshotPace()
    pace.on_entry(255 * 1024)
    assert not pace.is_worth_ending_with
    pace.on_entry(1024)
    assert pace.is_worth_ending_with
