"""Compaction on a real disk: deleted space is freed, at a bounded cost."""

from pathlib import Path

from sim.studies.write_amplification import measure_write_amplification


async def test_space_is_freed_and_little_is_written_twice(tmp_path: Path) -> None:
    written, copied, used = await measure_write_amplification(64 << 20, tmp_path)
    assert 1.0 < written.value < 2.5
    assert copied.value > 0
    assert used.value < 3.0
