"""Operators forbid placement in a region and allow it again while a writer is running."""

import json
import subprocess

import pytest

from tests.system.demo_process import WAIT_S_MAX, DemoProcess, started, wait_until

STREAM = "test/regions"


@pytest.mark.long
def test_a_writer_leaves_a_forbidden_region_and_comes_back(demo: DemoProcess) -> None:
    refused = demo.run("stream", "create", STREAM, "--survive", "1 region")
    quorums = ["--ensemble", "2", "--ack-quorum", "2", "--min-regions", "2"]
    made = demo.json("stream", "create", STREAM, *quorums)
    try:
        with started("append", STREAM, config=demo.config, stdin=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"before\n")
            writer.stdin.flush()
            wait_until(lambda: len(regions_of(demo)) == 1)
            left = regions_of(demo)[0][0]
            other = ({"a", "b", "c"} - set(regions_of(demo)[0])).pop()
            forbidden = demo.json("region", "forbid-placement", left, "--yes")
            wait_until(lambda: len(regions_of(demo)) == 2)
            listed = demo.json("region", "ls")
            impossible = demo.run("region", "forbid-placement", other)
            writer.stdin.write(b"after\n")
            writer.stdin.close()
            assert writer.wait(WAIT_S_MAX) == 0
    finally:
        allowed = demo.json("region", "allow-placement", left)
    unknown = demo.run("region", "forbid-placement", "aa")

    assert refused.returncode == 5
    assert b"3 nodes must be left in at least 2 regions" in refused.stderr
    assert isinstance(made, dict)
    assert made["policy"] == "region_aware"
    assert "an append waits for 2 of them, in at least 2 regions" in made["explanation"][1]
    assert isinstance(forbidden, dict)
    assert (forbidden["placement"], forbidden["is_changed"]) == ("forbidden", True)
    assert STREAM not in forbidden["streams_without_place"]
    assert set(regions_of(demo)[1]) == {"a", "b", "c"} - {left}
    assert isinstance(listed, list)
    assert {one["region"]: one["placement"] for one in listed}[left] == "forbidden"
    assert all(one["writable"] == 1 and one["free_bytes"] > 0 for one in listed)
    assert impossible.returncode == 2
    assert STREAM.encode() in impossible.stderr
    assert isinstance(allowed, dict)
    assert allowed["placement"] == "allowed"
    assert unknown.returncode == 3
    assert b"did you mean 'a'" in unknown.stderr
    assert demo.run("read", STREAM).stdout == b"before\nafter\n"


def regions_of(demo: DemoProcess) -> list[list[str]]:
    """Return the regions of each segment, in order."""
    done = demo.run("segment", "ls", STREAM, "-o", "json")
    return [one["regions"] for one in json.loads(done.stdout)]
