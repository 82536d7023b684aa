"""Order ZooKeeper servers by how soon they answer: the nearest are tried first.

A server in another region costs each request a round trip to it, on top of those among the
servers themselves. The time to connect to a server measures its distance.
"""

import random

import trio

from geolog.transport.seam import Address, ConnectionFailedError, Transport

PATIENCE_S = 1.0
"""Maximum wait for the first answer."""

FAR_FACTOR = 2.0
"""Do not wait for servers slower than this multiple of the first one's time."""

FAR_S_MIN = 0.002


async def nearest_first(
    servers: list[Address], transport: Transport, rng: random.Random
) -> list[Address]:
    """The same servers: in order of answer, then those that did not answer.

    Servers at equal distance come in random order, so that clients spread over them.
    """
    drawn = rng.sample(servers, len(servers))
    if len(servers) == 1:
        return drawn
    answered: list[Address] = []
    started_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.deadline = started_s + PATIENCE_S

        async def dial(server: Address) -> None:
            try:
                stream = await transport.connect(server)
            except ConnectionFailedError:
                return
            stream.close()
            answered.append(server)
            took_s = max(FAR_S_MIN, trio.current_time() - started_s)
            nursery.cancel_scope.deadline = min(
                nursery.cancel_scope.deadline, started_s + FAR_FACTOR * took_s
            )

        for server in drawn:
            nursery.start_soon(dial, server)
    return answered + [server for server in drawn if server not in answered]
