"""One request and one answer, a JSON line each, over a Unix socket in a cluster's directory.

Both are objects. The answer to a refused request is `{"error":"…","code":400}`.
"""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from topology.errors import GeologError, InvalidArgumentError, NotFoundError, UnavailableError

Document = dict[str, object]
Act = Callable[[Document], Awaitable[Document]]

_LINE_BYTES_MAX = 1 << 20


@asynccontextmanager
async def open_line_socket(directory: Path, name: str, act: Act) -> AsyncIterator[None]:
    """Answer requests with the results of `act` for the duration of the block."""
    (directory / name).unlink(missing_ok=True)
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    with _short_path(directory, name) as path:
        await listening.bind(path)
    (directory / name).chmod(0o600)
    listening.listen()

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                said = await _answer(await _line(stream), act)
                await stream.send_all(json.dumps(said).encode() + b"\n")
            except (trio.BrokenResourceError, UnavailableError):
                return  # The client has gone; its request was carried out.

    try:
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(listening)
            nursery.start_soon(trio.serve_listeners, answer, [listener])
            yield
            nursery.cancel_scope.cancel(reason="the server of the socket ends")
    finally:
        (directory / name).unlink(missing_ok=True)


async def ask_line_socket(
    directory: Path, name: str, question: Document, *, missing: str
) -> Document:
    """Send a request; NotFoundError with the text `missing` if nothing listens."""
    try:
        with _short_path(directory, name) as path:
            stream = await trio.open_unix_socket(path)
    except OSError as error:
        raise NotFoundError(missing) from error
    async with stream:
        await stream.send_all(json.dumps(question).encode() + b"\n")
        answer = json.loads(await _line(stream))
    assert isinstance(answer, dict)
    if "error" in answer:
        raise _error_of(answer["code"])(answer["error"])
    return answer


async def _answer(line: bytes, act: Act) -> Document:
    answer: Document = {}
    try:
        answer = await act(json.loads(line))
    except* GeologError as errors:
        answer = _failure(errors)
    except* (ValueError, KeyError, TypeError) as errors:
        answer = {"error": f"invalid request: {errors!r}", "code": InvalidArgumentError.code}
    return answer


def _failure(errors: BaseExceptionGroup[GeologError]) -> Document:
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
            raise UnavailableError("the demo closed the connection in the middle of an answer")
        line += chunk
    return line


@contextmanager
def _short_path(directory: Path, name: str) -> Iterator[str]:
    """A path to the socket within the 108 bytes of an address, for any `directory`."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
