"""Lets another terminal ask a running cluster's supervisor to kill, stop or start a server.

One JSON line each way over a Unix socket in the cluster's directory:
`{"verb":"kill","target":"eu-west"}`, answered `{"servers":[…]}` or `{"error":"…","code":400}`.
"""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from sim.cluster.local import LocalCluster
from sim.cluster.server import Server
from topology.errors import GeologError, InvalidArgumentError, NotFoundError, UnavailableError

SOCKET_NAME = "control.socket"

_LINE_BYTES_MAX = 1 << 20


@asynccontextmanager
async def open_control(cluster: LocalCluster) -> AsyncIterator[None]:
    """Obey other terminals while the block lasts."""
    directory = cluster.plan.directory
    (directory / SOCKET_NAME).unlink(missing_ok=True)
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    with _short_path(directory) as path:
        await listening.bind(path)
    (directory / SOCKET_NAME).chmod(0o600)
    listening.listen()
    try:
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(listening)
            nursery.start_soon(trio.serve_listeners, _Answerer(cluster).answer, [listener])
            yield
            nursery.cancel_scope.cancel(reason="the cluster ends")
    finally:
        (directory / SOCKET_NAME).unlink(missing_ok=True)


async def ask_control(directory: Path, verb: str, target: str) -> list[dict[str, object]]:
    """Ask the supervisor of the cluster in `directory`; the servers that it acted on."""
    try:
        with _short_path(directory) as path:
            stream = await trio.open_unix_socket(path)
    except OSError as error:
        raise NotFoundError(
            f"no demo runs in {directory}: start one with `geolog demo`, or name its "
            "directory with --data-dir"
        ) from error
    async with stream:
        await stream.send_all(json.dumps({"verb": verb, "target": target}).encode() + b"\n")
        answer = json.loads(await _line(stream))
    if "error" in answer:
        raise _error_of(answer["code"])(answer["error"])
    servers = answer["servers"]
    assert isinstance(servers, list)
    return servers


class _Answerer:
    """Answers one request a connection."""

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

    async def answer(self, stream: trio.SocketStream) -> None:
        """Read a request, do it, answer it."""
        async with stream:
            answer = await self._act(await _line(stream))
            try:
                await stream.send_all(json.dumps(answer).encode() + b"\n")
            except trio.BrokenResourceError:
                return  # Whoever asked has left; what they asked for is done.

    async def _act(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
            action, target = self._actions[request["verb"]], str(request["target"])
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not a request: {error!r}", "code": InvalidArgumentError.code}
        answer: dict[str, object] = {}
        try:
            answer["servers"] = [server.describe() for server in await action(target)]
        except* GeologError as errors:
            answer = _failure(errors)
        return answer

    async def _list(self, target: str) -> list[Server]:
        return self._cluster.named(target)


def _failure(errors: BaseExceptionGroup[GeologError]) -> dict[str, object]:
    leaf: BaseException = errors
    while isinstance(leaf, BaseExceptionGroup):
        leaf = leaf.exceptions[0]
    assert isinstance(leaf, GeologError)
    return {"error": str(leaf), "code": leaf.code}


def _error_of(code: int) -> type[GeologError]:
    kinds = (InvalidArgumentError, NotFoundError, UnavailableError)
    return next((kind for kind in kinds if kind.code == code), GeologError)


async def _line(stream: trio.SocketStream) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        chunk = await stream.receive_some(_LINE_BYTES_MAX)
        if not chunk or len(line) > _LINE_BYTES_MAX:
            raise UnavailableError("the other side ended in the middle of a line")
        line += chunk
    return line


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """The socket's path, short where the directory's is over the 108 bytes of an address."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
