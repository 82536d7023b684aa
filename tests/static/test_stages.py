"""The script that runs the stages of `make test`, over tests that fail as they are told."""

import shutil
import subprocess
from pathlib import Path

import attrs

from tests.static.checkout import ROOT

FAILS_AT_FIRST = """
from pathlib import Path
def test_a_crowd_disturbs():
    was_here = Path(__file__).with_suffix(".mark")
    if not was_here.exists():
        was_here.touch()
        raise AssertionError("disturbed")
"""
PASSES = "def test_that_passes(): pass\n"
FAILS = "def test_that_fails(): assert 1 == 2\n"


@attrs.frozen
class Stage:
    """How one stage ended."""

    is_passed: bool
    last_lines: list[str]


def run_stage(checkout: Path, stage: str, folder: str, *tests: str) -> Stage:
    """Run a stage of a checkout that holds only these test files."""
    (checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "stages", checkout / ".ci" / "stages")
    (checkout / folder).mkdir(parents=True)
    for number, test in enumerate(tests):
        (checkout / folder / f"test_{number}.py").write_text(test)
    done = subprocess.run(
        [checkout / ".ci" / "stages", stage], capture_output=True, text=True, check=False
    )
    return Stage(done.returncode == 0, done.stdout.splitlines()[-4:])


def test_a_real_process_that_failed_in_the_crowd_runs_again_and_is_named(
    tmp_path: Path,
) -> None:
    ended = run_stage(tmp_path, "system", "tests/system", FAILS_AT_FIRST, PASSES)

    assert ended.is_passed, ended
    assert ended.last_lines[-3].startswith("========== 2 passed in ")
    assert ended.last_lines[-2:] == [
        "Unsteady, passed only by itself: tests/system/test_0.py::test_a_crowd_disturbs",
        "All stages passed.",
    ]


def test_a_real_process_that_fails_twice_fails_its_stage(tmp_path: Path) -> None:
    ended = run_stage(tmp_path, "system", "tests/system", FAILS, FAILS_AT_FIRST, PASSES)

    assert not ended.is_passed
    assert ended.last_lines[-2].startswith("========== 1 failed, 2 passed in ")
    assert ended.last_lines[-1] == "Failed: real processes"


def test_more_than_three_failures_are_no_accident(tmp_path: Path) -> None:
    ended = run_stage(tmp_path, "system", "tests/system", *[FAILS_AT_FIRST] * 4)

    assert not ended.is_passed
    assert ended.last_lines[-2].startswith("========== 4 failed in ")


def test_other_stages_have_one_try(tmp_path: Path) -> None:
    ended = run_stage(tmp_path, "static", "tests/static", FAILS_AT_FIRST)

    assert not ended.is_passed
