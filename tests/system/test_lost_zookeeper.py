"""A ZooKeeper server is down: all works, and health says what the next loss would end."""

import json
from pathlib import Path

import pytest

from tests.system.demo_process import running_demo

SERVER = "c-zookeeper-3"


@pytest.mark.long
def test_health_reports_a_zookeeper_server_that_is_down(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--regions", "a,b,c", "--nodes-per-region", "1") as demo:
        well = demo.run("cluster", "health", "--wait", "--timeout", "60s")
        assert demo.run("demo", "kill", SERVER).returncode == 0
        unwell = demo.run("cluster", "health", "-o", "json")
        assert demo.run("demo", "restart", SERVER).returncode == 0
        after = demo.run("cluster", "health", "--wait", "--timeout", "60s")

    assert well.returncode == 0, well.stderr
    report = json.loads(unwell.stdout)
    assert (unwell.returncode, report["state"], report["regions_spare"]) == (10, "degraded", 0)
    assert ["a ZooKeeper server is away" in one for one in report["reasons"]] == [True]
    assert after.returncode == 0, after.stderr
