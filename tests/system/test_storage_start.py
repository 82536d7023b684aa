"""A storage server started before ZooKeeper answers."""

import json
from pathlib import Path

from tests.system.addresses import free_addresses
from tests.system.demo_process import geolog, read_some, started


def test_a_storage_node_waits_for_zookeeper_and_is_ready_once_it_is_registered(
    tmp_path: Path,
) -> None:
    zookeeper, node = map(str, free_addresses(2))
    with started(
        *("serve", "storage", "--data-dir", str(tmp_path / "disk"), "--location", "/a/rack-1"),
        *("--listen", node, "--zookeeper", zookeeper, "--timeout", "1s"),
    ) as storage:
        # So it goes on after its --timeout, and says why.
        read_some(storage.stderr, f"no ZooKeeper answered at {zookeeper}".encode())
        with started(
            *("serve", "zookeeper", "--data-dir", str(tmp_path / "zk"), "--listen", zookeeper)
        ):
            ready = read_some(storage.stdout, b"\n")
            listed = geolog("--zookeeper", zookeeper, "node", "ls", "-o", "json")

    [found] = json.loads(listed.stdout)
    assert json.loads(ready)["ready"] is True
    assert found["address"] == node
    assert found["state"] == "writable"
