"""A node whose disk is lost is replaced, over real processes: the runbook from end to end."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.system.demo_process import (
    WAIT_S_MAX,
    DemoProcess,
    geolog,
    running_demo,
    started,
    wait_until,
)

SPREAD = ["--ensemble", "6", "--write-quorum", "6", "--ack-quorum", "4", "--min-regions", "2"]
SMALL = ["--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2"]
LOST = "a-storage-1"
LINES = b"".join(b"line %d\n" % number for number in range(20_000))


def instances(demo: DemoProcess) -> dict[str, str]:
    nodes = demo.json("node", "ls")
    assert isinstance(nodes, list)
    return {node["node_id"]: node["instance"] for node in nodes if node["state"] != "replaced"}


def members(demo: DemoProcess, ledger: int) -> dict[str, tuple[str, object]]:
    """By node id, the instance and the number of copies it reports."""
    details = demo.json("ledger", "describe", str(ledger))
    assert isinstance(details, dict)
    return {one["node_id"]: (one["instance"], one["copies"]) for one in details["members"]}


def fragments(demo: DemoProcess, stream: str) -> list[tuple[str, str, bool]]:
    """For each fragment with entries: its adherence then and now, and if it is repairable."""
    document = demo.json("placement", "show", stream)
    assert isinstance(document, dict)
    return [
        (one["adherence"], one["adherence_now"], one["is_repairable"])
        for one in document["fragments"]
        if one["entries"] != 0
    ]


@pytest.mark.long
def test_a_lost_disk_and_a_lost_region_are_repaired_under_load(
    tmp_path: Path,
) -> None:
    with running_demo(tmp_path, "--regions", "a,b,c", "--nodes-per-region", "2") as demo:
        for stream, quorums in (("t/s", SPREAD), ("t/outage", SMALL), ("t/load", SMALL)):
            assert demo.run("stream", "create", stream, *quorums).returncode == 0
        assert demo.run("append", "t/s", given=LINES).returncode == 0
        old = instances(demo)
        others = [node_id for node_id in old if node_id != LOST]

        refused = demo.run("node", "replace", LOST)
        at_risk = demo.run("node", "preflight", LOST, *others)
        with started("append", "t/load", config=demo.config, stdin=subprocess.PIPE) as load:
            assert load.stdin is not None
            load.stdin.write(LINES)
            load.stdin.flush()
            demo.run("demo", "kill", LOST)
            demo.run("demo", "kill", "b")
            lost_dir = (tmp_path / "a" / "storage-1").rename(tmp_path / "lost")
            wait_until(lambda: states(demo).count("down") == 3)
            down = fragments(demo, "t/s")
            assert demo.run("append", "t/outage", given=LINES).returncode == 0
            # No node is up to take its place yet; the old disk is still given up.
            too_early = replaced_too_early(demo)
            nodes_without = demo.json("node", "ls")
            given_up = demo.run("placement", "show", "t/s", "--check")
            unwell = demo.run("cluster", "health")
            demo.run("demo", "restart", "b")
            demo.run("demo", "restart", LOST)
            load.stdin.write(LINES)
            load.stdin.flush()
            replaced = demo.run("node", "replace", LOST, "--keep-waiting", "-o", "json")
            copies = members(demo, 1)
            load.stdin.write(LINES)
            load.stdin.close()
            load_code = load.wait(WAIT_S_MAX)
        new = instances(demo)
        outage = fragments(demo, "t/outage")
        repaired = demo.run("placement", "repair", "-o", "json")
        mended = fragments(demo, "t/s") + fragments(demo, "t/outage")
        demo.run("demo", "kill", "b")
        read = demo.run("read", "t/s"), demo.run("read", "t/outage")
        old_disk = start_on(lost_dir, demo)

    assert refused.returncode == 1
    assert b"is up at" in refused.stderr
    assert b"stop it first" in refused.stderr
    assert at_risk.returncode == 10
    assert b"reads" in at_risk.stdout
    assert down == [("strict", "fail", False)]
    assert too_early.returncode == 5
    assert b"the old disk of a-storage-1 is given up; it will never start" in too_early.stderr
    assert b"did not come up within --timeout" in too_early.stderr
    assert isinstance(nodes_without, list)
    assert [one["state"] for one in nodes_without if one["node_id"] == LOST] == ["replaced"]
    assert given_up.returncode == 10
    assert f"the disk of {LOST} was given up" in given_up.stdout.decode()
    told = " ".join(unwell.stdout.decode().split())
    assert f"run `geolog node replace {LOST}` again" in told
    assert replaced.returncode == 0, replaced.stderr
    report = json.loads(replaced.stdout)
    assert report["is_complete"]
    assert (report["successor"], report["successor_instance"]) == (LOST, new[LOST])
    assert new[LOST] != old[LOST]
    assert copies[LOST] == (new[LOST], copies["b-storage-1"][1])
    assert load_code == 0
    assert outage == [("soft", "soft", True)]
    assert repaired.returncode == 0, repaired.stderr
    assert json.loads(repaired.stdout)["is_complete"]
    assert set(mended) == {("strict", "strict", False)}
    assert [one.stdout for one in read] == [LINES, LINES]
    assert old_disk.returncode == 1
    assert b"has been replaced: it must never be used again" in old_disk.stderr


def replaced_too_early(demo: DemoProcess) -> subprocess.CompletedProcess[bytes]:
    """Try to replace it, until it says that no node can take its place."""
    for patience in ("500ms", "4s"):
        done = demo.run("node", "replace", LOST, "--timeout", patience)
        if b"is given up" in done.stderr:
            return done
    return demo.run("node", "replace", LOST, "--timeout", "30s")


def states(demo: DemoProcess) -> list[str]:
    nodes = demo.json("node", "ls")
    assert isinstance(nodes, list)
    return [node["state"] for node in nodes]


def start_on(directory: Path, demo: DemoProcess) -> subprocess.CompletedProcess[bytes]:
    """Start the lost node on its old disk."""
    return geolog(
        *("serve", "storage", "--data-dir", str(directory), "--node-id", LOST),
        *("--location", "/a/rack-1", "--listen", "127.0.0.1:0"),
        config=demo.config,
    )
