"""The ZooKeeper server that answers soonest is tried first."""

import random

import attrs
import trio

from geolog.metadata.nearest_servers import PATIENCE_S, nearest_first
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from sim.fakes.memory_transport import MemoryNetwork

NEAR, FAR, FARTHER = (Address("server", port) for port in (1, 2, 3))
NEVER_S = 1e9


@attrs.frozen
class Distances:
    """A network with a connection time for each server; one without a time refuses."""

    delays_s: dict[Address, float]
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)

    async def connect(self, address: Address) -> ByteStream:
        """Wait for the server's connection time."""
        if address not in self.delays_s:
            raise ConnectionFailedError("refused")
        await trio.sleep(self.delays_s[address])
        transport = self.network.transport("server")
        listener = await transport.listen(Address("server", 0))
        return await transport.connect(listener.address)

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen like any host of the network."""
        return await self.network.transport("server").listen(
            address, first_bytes_min=first_bytes_min
        )


async def ordered(delays_s: dict[Address, float], seed: int = 0) -> list[Address]:
    servers = [FARTHER, NEAR, FAR]
    return await nearest_first(servers, Distances(delays_s), random.Random(seed))


async def test_servers_come_as_they_answer(autojump_clock: trio.testing.MockClock) -> None:
    assert await ordered({NEAR: 0.08, FAR: 0.1, FARTHER: 0.15}) == [NEAR, FAR, FARTHER]


async def test_far_servers_are_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    found = await ordered({NEAR: 0.001, FAR: 0.08, FARTHER: 0.15})

    assert found[0] == NEAR
    assert sorted(found) == [NEAR, FAR, FARTHER]
    assert trio.current_time() <= 0.01


async def test_a_server_that_refuses_comes_last(autojump_clock: trio.testing.MockClock) -> None:
    assert (await ordered({FAR: 0.08, FARTHER: 0.09}))[-1] == NEAR


async def test_if_no_server_answers_all_are_tried_after_a_moment(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = await ordered({NEAR: NEVER_S, FAR: NEVER_S})

    assert sorted(found) == [NEAR, FAR, FARTHER]
    assert trio.current_time() == PATIENCE_S


async def test_clients_spread_over_equally_near_servers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near = dict.fromkeys((NEAR, FAR, FARTHER), 0.0)

    firsts = {(await ordered(near, seed))[0] for seed in range(20)}

    assert firsts == {NEAR, FAR, FARTHER}
