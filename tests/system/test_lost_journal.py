"""A node loses one of its journal files: health reports it, and one command repairs it."""

import json
from pathlib import Path

from tests.system.demo_process import DemoProcess, running_demo

NODE = "c-storage-1"
QUORUMS = ["--ensemble", "3", "--write-quorum", "3", "--ack-quorum", "2", "--min-regions", "2"]
LINES = b"".join(b"line %d\n" % number for number in range(1000))


def lose_a_sealed_file(demo: DemoProcess, directory: Path) -> None:
    """Remove the oldest non-empty journal file while the node is down."""
    assert demo.run("demo", "stop", NODE).returncode == 0
    journals = sorted(directory.glob("**/*.journal"))
    assert len(journals) > 1, "the newest is not a sealed one"
    max(journals[:-1], key=lambda each: each.stat().st_blocks).unlink()
    assert demo.run("demo", "restart", NODE).returncode == 0


def test_a_lost_journal_file_is_reported_by_health_and_repaired_by_the_queue(
    tmp_path: Path,
) -> None:
    with running_demo(tmp_path, "--regions", "a,b,c", "--nodes-per-region", "1") as demo:
        assert demo.run("stream", "create", "t/lost", *QUORUMS).returncode == 0
        assert demo.run("append", "t/lost", given=LINES).returncode == 0
        assert demo.run("demo", "restart", NODE).returncode == 0  # It begins a new file.
        well = demo.run("cluster", "health", "--wait", "--timeout", "60s")
        lose_a_sealed_file(demo, tmp_path / "c" / "storage-1")

        unwell = demo.run("cluster", "health", "-o", "json")
        repaired = demo.run("ledger", "repair", "--queue", "-o", "json")
        after = demo.run("cluster", "health")
        verified = demo.run("verify", "t/lost", "--full-copies")

    assert well.returncode == 0, well.stderr
    report = json.loads(unwell.stdout)
    assert (unwell.returncode, report["state"]) == (10, "degraded")
    assert report["nodes_in_doubt"] == {NODE: 1}
    assert any(
        NODE in one and "`geolog ledger repair --queue`" in one for one in report["reasons"]
    )
    assert repaired.returncode == 0, repaired.stderr
    done = json.loads(repaired.stdout)
    assert [one["is_complete"] for one in done["ledgers"]] == [True]
    assert done["ledgers"][0]["copies_stored"] > 0
    assert [(one["node_id"], one["is_settled"]) for one in done["doubts"]] == [(NODE, True)]
    assert after.returncode == 0, after.stderr
    assert verified.returncode == 0, verified.stderr
