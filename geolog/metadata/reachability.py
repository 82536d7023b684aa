"""Why metadata did not answer in time: which servers can be reached, and which of them serve.

A ZooKeeper server without a quorum accepts connections, and closes them again. So each server
gets the command `srvr`, which reports its state and which ZooKeeper allows by default.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import attrs
import trio

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Transport

PATIENCE_S = 1.0
"""How long to wait for a server's answer; after that it counts as not answering."""

_QUESTION = b"srvr"
_SERVES_NOBODY = b"not currently serving"
_ANSWER_BYTES_MAX = 4096


@attrs.frozen
class Whereabouts:
    """Where a caller is, and where the servers of its metadata store are."""

    here: str
    """The caller's region."""
    servers: Mapping[Address, str]
    """The region of each server."""


@attrs.frozen
class Reach:
    """The state of the servers of a metadata store, in their order."""

    unreached: tuple[str, ...]
    """For each server that does not answer, the reason."""
    idle: tuple[Address, ...]
    """Servers that answer but do not serve: without a majority, or still looking for it."""
    serving: tuple[Address, ...]
    silent: tuple[Address, ...] = ()
    """The servers that do not answer, as `unreached`."""

    @property
    def away(self) -> tuple[str, ...]:
        """For each server that does not serve, the reason."""
        idle = (f"{server} answers, and serves nobody" for server in self.idle)
        return (*self.unreached, *idle)

    @property
    def spare_count(self) -> int:
        """How many of the serving servers can be lost with a majority left."""
        count = len(self.away) + len(self.serving)
        return max(0, len(self.serving) - (count // 2 + 1))

    def why_away(self, whereabouts: Whereabouts | None = None) -> str | None:
        """The problem, and what to do; None if a server serves. whereabouts: if known."""
        if self.serving:
            return None
        if whereabouts is not None and self._is_alone_in(whereabouts):
            return self._why_cut_off(whereabouts)
        if not self.idle:
            return f"no ZooKeeper server can be reached: {in_short(self.unreached)}"
        count = len(self.idle) + len(self.unreached)
        answer = "answers, and serves" if len(self.idle) == 1 else "answer, and serve"
        away = f"; {in_short(self.unreached)}" if self.unreached else ""
        return (
            f"ZooKeeper has no quorum: {' and '.join(map(str, self.idle))} {answer} nobody"
            f"{away}. Of its {count} servers {count // 2 + 1} must be up, and reach each other"
        )

    def _is_alone_in(self, whereabouts: Whereabouts) -> bool:
        """Whether the servers that answer are those of the caller's region, and no others."""
        heard = {whereabouts.servers.get(server) for server in self.idle}
        silent = {whereabouts.servers.get(server) for server in self.silent}
        here = whereabouts.here
        return heard == {here} and bool(silent) and not silent & {here, None}

    def _why_cut_off(self, whereabouts: Whereabouts) -> str:
        there = " and ".join(sorted({whereabouts.servers[one] for one in self.silent}))
        own = " and ".join(map(str, self.idle))
        count = len(self.idle) + len(self.silent)
        return (
            f"{whereabouts.here} is cut off from ZooKeeper's majority: of {count} servers it"
            f" reaches only its own ({own}), and none in {there}. Regions that reach"
            f" {count // 2 + 1} of them go on; {whereabouts.here} does when the links are back"
            " (or those servers, if they are down)"
        )


def whereabouts_of(
    here: str | None, servers: Sequence[Address], regions: Sequence[str] | None
) -> Whereabouts | None:
    """Whereabouts, with the region of each server in their order; None if not known.

    Nor are they if the numbers differ: then the regions are those of other servers.
    """
    if here is None or regions is None or len(regions) != len(servers):
        return None
    return Whereabouts(here, dict(zip(servers, regions, strict=True)))


AskReach = Callable[[], Awaitable[Reach]]
"""Asks the servers of one metadata store."""


async def reach_of(servers: Sequence[Address], transport: Transport) -> Reach:
    """Ask all servers at once for their state."""
    answers: dict[Address, str | bytes] = {}

    async def ask(server: Address) -> None:
        answers[server] = f"{server} does not answer"
        with trio.move_on_after(PATIENCE_S):
            try:
                answers[server] = await answer_of(server, transport, _QUESTION)
            except ConnectionFailedError as error:
                answers[server] = str(error)

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(ask, server, name=f"ask {server}")
    heard = [(server, answers[server]) for server in servers]
    return Reach(
        unreached=tuple(one for _, one in heard if isinstance(one, str)),
        silent=tuple(server for server, one in heard if isinstance(one, str)),
        idle=tuple(
            server for server, one in heard if isinstance(one, bytes) and _SERVES_NOBODY in one
        ),
        serving=tuple(
            server
            for server, one in heard
            if isinstance(one, bytes) and _SERVES_NOBODY not in one
        ),
    )


async def answer_of(server: Address, transport: Transport, question: bytes) -> bytes:
    """The answer of a server to a command of four letters. ConnectionFailedError."""
    stream = await transport.connect(server)
    try:
        await stream.send([question])
        answer = await _received(stream)
    finally:
        stream.close()
    if not answer:
        raise ConnectionFailedError(f"{server} closes connections without an answer")
    return answer


async def _received(stream: ByteStream) -> bytes:
    """All bytes up to the end, or up to more than an answer can have."""
    received, buffer = b"", bytearray(_ANSWER_BYTES_MAX)
    while len(received) < _ANSWER_BYTES_MAX:
        count = await stream.receive_into(buffer)
        if not count:
            break
        received += buffer[:count]
    return received


def in_short(reasons: Sequence[str]) -> str:
    """The first reason, and the number of further ones: mostly they are the same."""
    more = len(reasons) - 1
    return reasons[0] + (f" (and {more} more of its servers)" if more > 0 else "")
