"""A storage node process with two data directories: where it starts, and where it refuses."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.addresses import free_addresses
from tests.system.demo_process import WAIT_S_MAX, geolog, read_some, started

PLACE = ("--location", "/a/rack-1")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ZooKeeper server."""
    address, data_dir = str(free_addresses(1)[0]), str(tmp_path_factory.mktemp("zookeeper"))
    with started(
        *("serve", "zookeeper", "--data-dir", data_dir, "--listen", address)
    ) as server:
        read_some(server.stdout, b"\n")
        yield address


def arguments(zookeeper: str, *directories: Path, node_id: str = "node-1") -> list[str]:
    (address,) = free_addresses(1)
    data_dirs = [part for each in directories for part in ("--data-dir", str(each))]
    return [
        *("serve", "storage", *data_dirs, *PLACE, "--node-id", node_id),
        *("--listen", str(address), "--zookeeper", zookeeper),
    ]


def start_and_stop(zookeeper: str, *directories: Path) -> str:
    """Start a node, wait until it answers, end it in order; return its instance."""
    with started(*arguments(zookeeper, *directories)) as node:
        ready = json.loads(read_some(node.stdout, b"\n"))
        node.send_signal(signal.SIGTERM)
        assert node.wait(WAIT_S_MAX) == 0
    instance = ready["instance"]
    assert isinstance(instance, str)
    return instance


def refusal(zookeeper: str, *directories: Path, node_id: str = "node-1") -> str:
    """The message of a node that refuses to start."""
    done = geolog(*arguments(zookeeper, *directories, node_id=node_id))
    assert done.returncode == 1
    assert done.stdout == b""
    message = done.stderr.decode()
    assert "Traceback" not in message
    return message


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


def test_a_node_starts_on_all_of_its_directories_in_any_order_and_on_no_others(
    zookeeper: str, tmp_path: Path
) -> None:
    one, two, other = tmp_path / "one", tmp_path / "two", tmp_path / "other"
    instance = start_and_stop(zookeeper, one, two)
    assert {"cookie.json", "0000000000000001.journal"} <= names_in(one) & names_in(two)

    assert start_and_stop(zookeeper, two, one) == instance

    assert "missing: number 2" in refusal(zookeeper, one)
    assert f"{other} is empty" in refusal(zookeeper, one, other)
    assert f"{other} is empty and one too many" in refusal(zookeeper, one, two, other)
    assert names_in(other) == set(), "nothing was begun"
    assert start_and_stop(zookeeper, one, two) == instance


def test_a_node_that_ended_in_order_notices_any_later_loss_of_its_journal(
    zookeeper: str, tmp_path: Path
) -> None:
    data_dir = tmp_path / "whole"
    with started(*arguments(zookeeper, data_dir, node_id="node-2")) as node:
        read_some(node.stdout, b"\n")
        node.send_signal(signal.SIGTERM)
        _, said = node.communicate(timeout=WAIT_S_MAX)

    assert said == b"", "an orderly end needs no warning"
    journal = data_dir / "0000000000000001.journal"
    os.truncate(journal, journal.stat().st_size - 1)
    message = refusal(zookeeper, data_dir, node_id="node-2")
    assert "files were lost or cut, or this is an old copy" in message
