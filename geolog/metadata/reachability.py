"""Why nothing was answered in time: which metadata servers can be reached, and which serve.

A ZooKeeper server that has no quorum takes connections, and ends them again. So each is asked
how it is, by the command `srvr`, which ZooKeeper allows unless it is told otherwise.
"""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport

PATIENCE_S = 1.0
"""How long a server may take to answer. Then it is told that it did not."""

_QUESTION = b"srvr"
_SERVES_NOBODY = b"not currently serving"
_ANSWER_BYTES_MAX = 4096


@attrs.frozen
class Reach:
    """How the servers of a metadata store are, in their order."""

    unreached: tuple[str, ...]
    """For each that does not answer why that is."""
    idle: tuple[Address, ...]
    """Those that answer, and serve nobody: they are no majority, or have not found it yet."""
    serving: tuple[Address, ...]

    @property
    def away(self) -> tuple[str, ...]:
        """Of each server that serves nobody, why that is."""
        idle = (f"{server} answers, and serves nobody" for server in self.idle)
        return (*self.unreached, *idle)

    @property
    def spare_count(self) -> int:
        """How many of those that serve can be lost with a majority left."""
        count = len(self.away) + len(self.serving)
        return max(0, len(self.serving) - (count // 2 + 1))

    def why_away(self) -> str | None:
        """What is wrong, and what to do; None if a server serves."""
        if self.serving:
            return None
        if not self.idle:
            return f"no ZooKeeper server can be reached: {in_short(self.unreached)}"
        count = len(self.idle) + len(self.unreached)
        answer = "answers, and serves" if len(self.idle) == 1 else "answer, and serve"
        away = f"; {in_short(self.unreached)}" if self.unreached else ""
        return (
            f"ZooKeeper has no quorum: {' and '.join(map(str, self.idle))} {answer} nobody"
            f"{away}. Of its {count} servers {count // 2 + 1} must be up, and reach each other"
        )


AskReach = Callable[[], Awaitable[Reach]]
"""Asks the servers of one metadata store."""


async def reach_of(servers: Sequence[Address], transport: Transport) -> Reach:
    """Ask all servers at once how they are."""
    answers: dict[Address, str | bytes] = {}

    async def ask(server: Address) -> None:
        answers[server] = f"{server} does not answer"
        with trio.move_on_after(PATIENCE_S):
            try:
                answers[server] = await _answer_of(server, transport)
            except ConnectionFailedError as error:
                answers[server] = str(error)

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(ask, server, name=f"ask {server}")
    heard = [(server, answers[server]) for server in servers]
    return Reach(
        unreached=tuple(one for _, one in heard if isinstance(one, str)),
        idle=tuple(
            server for server, one in heard if isinstance(one, bytes) and _SERVES_NOBODY in one
        ),
        serving=tuple(
            server
            for server, one in heard
            if isinstance(one, bytes) and _SERVES_NOBODY not in one
        ),
    )


async def _answer_of(server: Address, transport: Transport) -> bytes:
    stream = await transport.connect(server)
    try:
        await stream.send([_QUESTION])
        answer = await _received(stream)
    finally:
        stream.close()
    if not answer:
        raise ConnectionFailedError(f"{server} ends connections without an answer")
    return answer


async def _received(stream: ByteStream) -> bytes:
    """All that comes, to the end or to more than it can be."""
    received, buffer = b"", bytearray(_ANSWER_BYTES_MAX)
    while len(received) < _ANSWER_BYTES_MAX:
        count = await stream.receive_into(buffer)
        if not count:
            break
        received += buffer[:count]
    return received


def in_short(reasons: Sequence[str]) -> str:
    """The first reason, and how many more there are: mostly they are the same."""
    more = len(reasons) - 1
    return reasons[0] + (f" (and {more} more of its servers)" if more > 0 else "")
