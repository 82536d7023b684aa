"""A node whose disk is lost is replaced, over real processes: the runbook from end to end."""

import json
import subprocess
from pathlib import Path

from tests.system.demo_process import (
    DemoProcess,
    geolog,
    running_demo,
    wait_until,
)

QUORUMS = ["--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2"]
SESSION_S = 6.0
LOST = "a-storage-1"
LINES = b"".join(b"line %d\n" % number for number in range(20_000))


def instances(demo: DemoProcess) -> dict[str, str]:
    nodes = demo.json("node", "ls")
    assert isinstance(nodes, list)
    return {node["node_id"]: node["instance"] for node in nodes if node["state"] != "replaced"}


def members(demo: DemoProcess, ledger: int) -> dict[str, tuple[str, object]]:
    """By node id, the instance and how many copies it says it has."""
    details = demo.json("ledger", "describe", str(ledger))
    assert isinstance(details, dict)
    return {one["node_id"]: (one["instance"], one["copies"]) for one in details["members"]}


def test_an_empty_directory_at_the_same_address_takes_the_place_of_a_lost_one(
    tmp_path: Path,
) -> None:
    with running_demo(tmp_path, "--regions", "a,b,c", "--nodes-per-region", "1") as demo:
        assert demo.run("stream", "create", "t/s", *QUORUMS).returncode == 0
        assert demo.run("append", "t/s", given=LINES).returncode == 0
        old = instances(demo)[LOST]

        refused = demo.run("node", "replace", LOST)
        at_risk = demo.run("node", "preflight", LOST, "b-storage-1", "c-storage-1")
        demo.run("demo", "kill", LOST)
        data_dir = tmp_path / "a" / "storage-1"
        lost_dir = data_dir.rename(tmp_path / "lost")
        wait_until(lambda: "down" in states(demo), 3 * SESSION_S)
        # Nobody is up to take its place yet: the old disk is given up all the same.
        too_early = demo.run("node", "replace", LOST, "--timeout", "500ms")
        nodes_without = instances(demo)
        states_without = states(demo)
        demo.run("demo", "restart", LOST)
        replaced = demo.run("node", "replace", LOST, "-o", "json")
        new = instances(demo)[LOST]
        copies = members(demo, 1)
        demo.run("demo", "kill", "b")
        read = demo.run("read", "t/s")
        old_disk = start_on(lost_dir, demo)

    assert refused.returncode == 1
    assert b"is up at" in refused.stderr
    assert b"stop it first" in refused.stderr
    assert at_risk.returncode == 10
    assert b"reads" in at_risk.stdout
    assert too_early.returncode == 5
    assert b"the old disk of a-storage-1 is given up: it never starts" in too_early.stderr
    assert b"has not come up" in too_early.stderr
    assert LOST not in nodes_without
    assert "replaced" in states_without
    assert replaced.returncode == 0, replaced.stderr
    report = json.loads(replaced.stdout)
    assert report["is_complete"]
    assert (report["successor"], report["successor_instance"]) == (LOST, new)
    assert new != old
    assert copies[LOST] == (new, copies["b-storage-1"][1])
    assert read.stdout == LINES
    assert old_disk.returncode == 1
    assert b"has been replaced: it is never used again" in old_disk.stderr


def states(demo: DemoProcess) -> list[str]:
    nodes = demo.json("node", "ls")
    assert isinstance(nodes, list)
    return [node["state"] for node in nodes]


def start_on(directory: Path, demo: DemoProcess) -> subprocess.CompletedProcess[bytes]:
    """Start the lost node on its old disk after all."""
    return geolog(
        *("serve", "storage", "--data-dir", str(directory), "--node-id", LOST),
        *("--location", "/a/rack-1", "--listen", "127.0.0.1:0"),
        config=demo.config,
    )
