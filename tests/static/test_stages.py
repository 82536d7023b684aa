"""The script that runs the stages of `make test`, over tests that fail as they are told."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from tests.static.checkout import ROOT

STAGES = ROOT / ".ci" / "stages"

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


def run_stage(
    checkout: Path, stage: str, folder: str, *tests: str, script: str = STAGES.read_text()
) -> Stage:
    """Run a stage of a checkout that holds only these test files."""
    stages = checkout / ".ci" / "stages"
    stages.parent.mkdir(parents=True)
    stages.write_text(script)
    stages.chmod(0o755)
    (checkout / folder).mkdir(parents=True)
    for number, test in enumerate(tests):
        (checkout / folder / f"test_{number}.py").write_text(test)
    (checkout / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    done = subprocess.run([stages, stage], capture_output=True, text=True, check=False)
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


def test_a_stage_leaves_out_what_is_long_and_the_long_stage_runs_only_that(
    tmp_path: Path,
) -> None:
    long = f"import pytest\n@pytest.mark.long\n{FAILS}"

    ended = run_stage(tmp_path / "a", "docs", "tests/docs", long, PASSES)
    ended_long = run_stage(tmp_path / "b", "docs-long", "tests/docs", long, PASSES)

    assert ended.is_passed
    assert ended.last_lines[-2].startswith("========== 1 passed in ")
    assert not ended_long.is_passed
    assert ended_long.last_lines[-2].startswith("========== 1 failed in ")


def test_a_stage_over_its_budget_passes_and_is_named_at_the_end(tmp_path: Path) -> None:
    slow = STAGES.read_text().replace("SECONDS - started", "1000")

    ended = run_stage(tmp_path, "foreign", "tests/foreign", PASSES, script=slow)

    assert ended.is_passed
    assert ended.last_lines[-2:] == [
        "Over budget: foreign clients 1000 s of 60 s",
        "All stages passed.",
    ]


@attrs.frozen
class Run:
    """One call of pytest by a stage."""

    marked: str
    folders: list[str]
    ignored: list[str]

    def has(self, file: str) -> bool:
        """Whether it collects this file."""
        return _is_below(file, self.folders) and not _is_below(file, self.ignored)


def _is_below(file: str, places: list[str]) -> bool:
    return any(file == place or file.startswith(f"{place}/") for place in places)


def runs_of(target: str, scratch: Path) -> list[Run]:
    """The calls of pytest by a target of the Makefile; none of them is run."""
    printed = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        env=os.environ | {"MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [stages] = re.findall(r" \.ci/stages (.+)$", printed, re.MULTILINE)
    calls = scratch / target
    recorder = scratch / "python"
    recorder.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"print(json.dumps(sys.argv[1:]), file=open({str(calls)!r}, 'a'))\n"
    )
    recorder.chmod(0o755)
    path = f"{scratch}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [STAGES, *stages.split()],
        env=os.environ | {"PATH": path},
        capture_output=True,
        check=True,
    )
    return [run_of(json.loads(line)) for line in calls.read_text().splitlines()]


def run_of(arguments: list[str]) -> Run:
    options = arguments[arguments.index("-m", arguments.index("pytest")) :]
    return Run(
        marked=options[1],
        folders=[one for one in arguments if one.startswith("tests/")],
        ignored=[
            one.partition("=")[2] for one in arguments if one.startswith("--ignore=tests/")
        ],
    )


FILES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "tests").rglob("test_*.py")
    if path.relative_to(ROOT).parts[1] != "install"
)


def test_every_test_runs_once_either_in_make_test_or_in_make_test_long(tmp_path: Path) -> None:
    short, long = runs_of("test", tmp_path), runs_of("test-long", tmp_path)

    assert {one.marked for one in short} == {"not long"}
    assert {one.marked for one in long} == {"long"}
    assert [file for file in FILES if sum(one.has(file) for one in short) != 1] == []
    times = {file: sum(one.has(file) for one in long) for file in FILES}
    assert {file: count for file, count in times.items() if count > 1} == {}
    never = sorted({str(Path(file).parent) for file, count in times.items() if count == 0})
    # Their folders have no stage for long tests, so they must not have long tests.
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "long", *never],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, found.stdout


def test_the_page_names_each_stage_with_its_budget() -> None:
    page = (ROOT / "docs" / "TESTING.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    stages = re.findall(r'(?:stage|real_processes) "([^"]+)" (\d+)', STAGES.read_text())
    elsewhere = {"pure tests, quick", "installation", "coverage of the cores"}

    assert elsewhere < {name for name, _ in stages}
    assert [
        name
        for name, budget_s in stages
        if name not in elsewhere
        and not any(
            row.startswith(f"| {name} |") and f"| {budget_s} s |" in row for row in rows
        )
    ] == []
