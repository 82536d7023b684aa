"""Why nothing was answered in time: whether any metadata server can be reached at all."""

from collections.abc import Sequence

import trio

from geolog.transport.seam import Address, ConnectionFailedError, Transport

PATIENCE_S = 1.0
"""How long a server may take to be connected to. Then it is told that it did not answer."""


async def unreached(servers: Sequence[Address], transport: Transport) -> list[str]:
    """For each server that cannot be reached why that is, in their order."""
    reasons: dict[Address, str] = {}

    async def dial(server: Address) -> None:
        reasons[server] = f"{server} does not answer"
        with trio.move_on_after(PATIENCE_S):
            try:
                stream = await transport.connect(server)
            except ConnectionFailedError as error:
                reasons[server] = str(error)
                return
            stream.close()
            reasons.pop(server, None)

    async with trio.open_nursery() as nursery:
        for server in servers:
            nursery.start_soon(dial, server, name=f"dial {server}")
    return [reasons[server] for server in servers if server in reasons]


def in_short(reasons: Sequence[str]) -> str:
    """The first reason, and how many more there are: mostly they are the same."""
    more = len(reasons) - 1
    return reasons[0] + (f" (and {more} more of its servers)" if more > 0 else "")
