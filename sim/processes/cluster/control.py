"""Lets another terminal tell a running cluster's supervisor to kill, stop or start a server.

A request is `{"verb":"kill","target":"eu-west"}`, its answer `{"servers":[…]}`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sim.processes.cluster.line_socket import Document, ask_line_socket, open_line_socket
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.server import Server

SOCKET_NAME = "control.socket"


@asynccontextmanager
async def open_control(cluster: LocalCluster) -> AsyncIterator[None]:
    """Serve requests from other terminals for the duration of the block."""
    answerer = _Answerer(cluster)
    async with open_line_socket(cluster.plan.directory, SOCKET_NAME, answerer.act):
        yield


async def ask_control(directory: Path, verb: str, target: str) -> list[dict[str, object]]:
    """Ask the supervisor of the cluster in `directory`; return the servers it acted on."""
    missing = (
        f"no demo runs in {directory}: start one with `geolog demo`, or name its "
        "directory with --data-dir"
    )
    question: Document = {"verb": verb, "target": target}
    answer = await ask_line_socket(directory, SOCKET_NAME, question, missing=missing)
    servers = answer["servers"]
    assert isinstance(servers, list)
    return servers


class _Answerer:
    """Carries out requests."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._actions: dict[str, Callable[[str], Awaitable[list[Server]]]] = {
            "ls": self._list,
            "kill": cluster.kill,
            "stop": cluster.stop,
            "pause": cluster.pause,
            "resume": cluster.resume,
            "restart": cluster.restart,
        }

    async def act(self, question: Document) -> Document:
        """Carry out a request; return the servers it acted on."""
        action = self._actions[str(question["verb"])]
        servers = await action(str(question["target"]))
        return {"servers": [server.describe() for server in servers]}

    async def _list(self, target: str) -> list[Server]:
        return self._cluster.named(target)
