"""The drills that load one proxy tell their verdict; they are too brief here to be strict."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.demo_process import DemoProcess, geolog, running_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    """Run one region with three nodes and one proxy."""
    directory = tmp_path_factory.mktemp("demo")
    small = ("--regions", "a", "--nodes-per-region", "3", "--proxies-per-region", "1")
    with running_demo(directory, *small) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "brief", "count"),
    [
        ("proxy-overload", ("--duration", "2s"), "acknowledged"),
        ("proxy-slow-sockets", ("--duration", "500ms"), "slow_opened"),
        ("proxy-mutations", ("--messages", "400"), "messages_batches"),
    ],
)
def test_a_drill_that_loads_a_proxy_tells_its_verdict(
    demo: DemoProcess, tmp_path: Path, name: str, brief: tuple[str, str], count: str
) -> None:
    here = ("--on-demo", "--data-dir", str(demo.directory), "--report", str(tmp_path))

    done = geolog("drill", "run", name, *brief, *here, "-o", "json", cwd=tmp_path)

    assert done.stdout, done.stderr.decode()
    verdict = json.loads(done.stdout, parse_constant=pytest.fail)
    assert done.returncode == (0 if verdict["passed"] else 10), done.stderr.decode()
    assert all(problem in done.stderr.decode() for problem in verdict["problems"])
    assert json.loads((tmp_path / "verdict.json").read_text()) == verdict
    assert verdict["counts"][count] > 0
    assert verdict["counts"]["tracebacks"] == 0
