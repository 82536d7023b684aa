"""`geolog demo`: its processes end with it, and its counts are right."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.system.demo_process import WAIT_S_MAX, DemoProcess, geolog, running_demo, wait_until

SMALL = ("--regions", "a,b,c", "--nodes-per-region", "1")


def is_gone(pid: int) -> bool:
    """True if the process does not exist, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pids: list[int]) -> None:
    wait_until(lambda: all(is_gone(pid) for pid in pids))


@pytest.mark.parametrize(
    ("number", "proxies_per_region"),
    [
        pytest.param(signal.SIGTERM, 0, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.long),
        (signal.SIGKILL, 1),
    ],
)
@pytest.mark.usefixtures("interruptible")
def test_all_processes_end_with_the_demo_even_paused_ones(
    tmp_path: Path, number: signal.Signals, proxies_per_region: int
) -> None:
    proxies = ("--proxies-per-region", str(proxies_per_region))
    with running_demo(tmp_path, *SMALL, *proxies) as demo:
        pids = demo.pids()
        # Three nodes, the proxies, and three ZooKeeper servers with a Java process each.
        assert len(pids) == 9 + 3 * proxies_per_region
        assert demo.run("demo", "pause", "b").returncode == 0

        demo.process.send_signal(number)
        wait_gone(pids)
        demo.process.wait(WAIT_S_MAX)


def test_restart_brings_back_a_server_that_something_else_killed(demo: DemoProcess) -> None:
    servers = demo.json("demo", "ls")
    assert isinstance(servers, list)
    [victim] = [server for server in servers if server["name"] == "a-storage-1"]
    os.kill(victim["pid"], signal.SIGKILL)

    def state() -> str:
        listed = demo.json("demo", "ls")
        assert isinstance(listed, list)
        return str(next(s["state"] for s in listed if s["name"] == "a-storage-1"))

    wait_until(lambda: state() == "down")
    assert demo.run("demo", "restart", "a-storage-1").returncode == 0
    assert state() == "up"
    # Writers may have left ledgers that lack the copies of the killed node.
    assert demo.run("ledger", "repair", "--queue").returncode == 0
    assert demo.run("cluster", "health", "--wait", "--timeout", "60s").returncode == 0


def test_the_ready_file_has_all_that_is_needed_to_kill_and_start_a_server(
    demo: DemoProcess,
) -> None:
    assert isinstance(demo.ready, dict)
    assert list(demo.ready) == ["cluster", "zookeeper", "config", "console", "wan", "regions"]
    for region in demo.ready["regions"].values():
        assert list(region) == ["proxies", "storage", "relays", "zookeeper"]
        for server in [*region["storage"], region["zookeeper"]]:
            assert {"address", "pid", "argv", "log"} <= server.keys()
            assert Path(server["log"]).exists()
        for node in region["storage"]:
            assert {"id", "location", "data_dir"} <= node.keys()


def test_a_port_in_use_is_refused_before_anything_starts(
    demo: DemoProcess, tmp_path: Path
) -> None:
    assert isinstance(demo.ready, dict)
    port = demo.ready["zookeeper"].split(",")[0].rpartition(":")[2]

    done = geolog("demo", "--no-stay", "--base-port", port, "--data-dir", str(tmp_path / "d"))

    assert done.returncode == 5
    assert f"port {port} is in use" in done.stderr.decode()


@pytest.mark.long
def test_a_demo_without_settings_is_found_by_commands_and_keeps_its_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    one = ("--regions", "a", "--nodes-per-region", "1")
    here = f"geolog-demo-{os.getuid()}"
    told = f"no settings: using the demo that runs in {tmp_path / here}\n"
    with running_demo(tmp_path, *one, has_place=False) as demo:
        assert isinstance(demo.ready, dict)
        servers = demo.ready["zookeeper"]

        found = geolog("node", "ls", "-o", "jsonl", cwd=tmp_path)
        assert found.returncode == 0, found.stderr.decode()
        assert "a-storage-1" in json.loads(found.stdout).values()
        assert found.stderr.decode() == told
        place = ("--location", "/a/r", "--listen", "127.0.0.1:0")
        server = geolog("serve", "storage", "--data-dir", "n", *place, cwd=tmp_path)
        assert server.returncode == 2
        assert "no ZooKeeper servers" in server.stderr.decode()
        second = geolog("demo", "--no-workload", *one)
        assert second.returncode == 5
        assert "a demo runs in" in second.stderr.decode()
    assert not (tmp_path / here).exists()

    stale = geolog("node", "ls", config=tmp_path / here / "geolog.toml")
    assert stale.returncode == 3
    assert "GEOLOG_CONFIG names" in stale.stderr.decode()
    with running_demo(tmp_path, *one, has_place=False) as demo:
        assert isinstance(demo.ready, dict)
        assert demo.ready["zookeeper"] == servers
