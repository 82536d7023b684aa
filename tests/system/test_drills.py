"""The drills pass and report their counts."""

import json
from pathlib import Path

import pytest

from tests.system.demo_process import geolog


@pytest.mark.long
def test_killing_all_processes_at_once_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    report_file = tmp_path / "report.json"

    done = geolog("drill", "run", "kill-all", "--times", "2", "--report", str(report_file))

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(report_file.read_text())["counts"]
    assert counts["acknowledged"] > 100
    assert counts["read"] >= counts["acknowledged"]
    assert counts["lost"] == counts["unequal"] == counts["repeated"] == 0


@pytest.mark.long
def test_nothing_is_acknowledged_to_a_writer_after_its_fence() -> None:
    done = geolog("drill", "run", "zombie-writer", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)["counts"]
    assert counts["acknowledged_after_fence"] == 0
    assert counts["lost"] == counts["unequal"] == counts["repeated"] == 0


def test_killing_random_storage_nodes_under_load_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    report = tmp_path / "report"

    done = geolog(
        "drill", "run", "kill-random", "--kills", "3", "-o", "json", "--report", str(report)
    )

    assert done.returncode == 0, done.stderr.decode()
    verdict = json.loads(done.stdout)
    assert verdict["counts"]["kills"] == 3
    assert verdict["counts"]["acknowledged"] > 100
    assert verdict["counts"]["lost"] == verdict["counts"]["repeated"] == 0
    assert verdict["figures"]["pause_s_max"] < 100.0
    assert json.loads((report / "verdict.json").read_text()) == verdict
    assert (report / "timeline.svg").read_text().count("s: killed ") == 3
    assert "# Drill kill-random: passed" in (report / "verdict").with_suffix(".md").read_text()


def test_nodes_that_lose_power_keep_what_they_acknowledged(tmp_path: Path) -> None:
    report_file = tmp_path / "report.json"
    power_loss = ("drill", "run", "power-loss", "--report", str(report_file))

    one = geolog(*power_loss, "--loops", "20")
    all_nodes = geolog(*power_loss, "--loops", "2", "--all-nodes", "-o", "json")

    assert (one.returncode, all_nodes.returncode) == (0, 0), all_nodes.stderr.decode()
    assert json.loads(report_file.read_text()) == json.loads(all_nodes.stdout)
    assert json.loads(all_nodes.stdout)["counts"]["power_losses"] == 2


@pytest.mark.long
def test_a_mirror_whose_disks_were_wiped_is_sent_everything_again() -> None:
    done = geolog("drill", "run", "relay-wipe", "--times", "1", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)["counts"]
    assert (counts.pop("wipes"), counts.pop("acknowledged") > 100) == (1, True)
    assert set(counts.values()) == {0}


@pytest.mark.long
def test_a_home_that_moves_by_plan_loses_nothing_though_the_command_is_killed() -> None:
    faults = ("--fault", "none", "--fault", "mover")
    done = geolog("drill", "run", "switch-over", *faults, "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)["counts"]
    assert counts["moves"] == 2
    assert counts["moved"] >= 1
    assert counts["acknowledged"] > 100
    assert counts["lost"] == counts["repeated"] == counts["mirrors_unequal"] == 0


def test_a_home_that_is_cut_off_and_failed_over_loses_no_record_that_it_answered() -> None:
    done = geolog("drill", "run", "failover", "--fault", "cut-off", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    counts = json.loads(done.stdout)["counts"]
    assert counts["failovers"] == 1
    assert counts["left_behind"] > 0
    assert counts["gone"] == counts["outside_of_ranges"] == counts["repeated"] == 0
