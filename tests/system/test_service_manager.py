"""A server tells the service manager that started it when it is ready, and that it stops."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.addresses import free_addresses

GEOLOG = Path(sys.executable).parent / "geolog"
PATIENCE_S = 100.0


@contextmanager
def manager_at(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(PATIENCE_S)
        manager.bind(name)
        yield manager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_server_says_when_it_is_ready_and_that_it_stops(
    tmp_path: Path, *, is_abstract: bool
) -> None:
    name = f"\0geolog-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    [address] = free_addresses(1)
    with manager_at(name) as manager:
        server = subprocess.Popen(
            [
                *(GEOLOG, "serve", "zookeeper", "--data-dir", tmp_path / "zk"),
                *("--listen", str(address)),
            ],
            env=os.environ | {"NOTIFY_SOCKET": name.replace("\0", "@")},
            stdout=subprocess.DEVNULL,
        )
        try:
            ready = manager.recv(1000)
            server.send_signal(signal.SIGTERM)
            stops = manager.recv(1000)
        finally:
            server.kill()
            server.wait()

    assert ready == f"READY=1\nSTATUS=ready at {address}".encode()
    assert stops == b"STOPPING=1"
