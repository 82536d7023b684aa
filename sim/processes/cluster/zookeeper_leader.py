"""Finds the ZooKeeper server that leads, by asking each for its mode."""

import trio

from geolog.transport.seam import Address
from topology.errors import UnavailableError

_ANSWER_S_MAX = 2.0
_AGAIN_S = 0.2
_TRIES_MAX = 50


async def leader_of(servers: str) -> str:
    """The address of the leader among the servers of a connection string. UnavailableError."""
    for _ in range(_TRIES_MAX):
        for text in servers.split(","):
            if await _is_leader(Address.parse(text)):
                return text
        await trio.sleep(_AGAIN_S)
    raise UnavailableError(f"none of {servers} leads")


async def _is_leader(address: Address) -> bool:
    answer = b""
    try:
        with trio.move_on_after(_ANSWER_S_MAX):
            async with await trio.open_tcp_stream(address.host, address.port) as stream:
                await stream.send_all(b"srvr")
                async for chunk in stream:
                    answer += chunk
    except OSError:
        return False  # It is down.
    return b"Mode: leader" in answer
