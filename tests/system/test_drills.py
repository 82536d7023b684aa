"""The drills pass, and say what they counted."""

import json
from pathlib import Path

from tests.system.demo_process import geolog


def test_all_processes_are_killed_at_once_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    report_file = tmp_path / "report.json"

    done = geolog("drill", "run", "kill-all", "--times", "2", "--report", str(report_file))

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(report_file.read_text())["counts"]
    assert counts["acknowledged"] > 1000
    assert counts["read"] >= counts["acknowledged"]
    assert counts["lost"] == counts["unequal"] == counts["repeated"] == 0


def test_nothing_is_acknowledged_to_a_writer_after_its_fence() -> None:
    done = geolog("drill", "run", "zombie-writer", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)["counts"]
    assert counts["acknowledged_after_fence"] == 0
    assert counts["lost"] == counts["unequal"] == counts["repeated"] == 0
