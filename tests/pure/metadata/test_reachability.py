"""Whoever waited in vain is told what cannot be reached, and what to do next."""

from collections.abc import Sequence

import attrs
import trio
import trio.testing

from geolog.metadata.reachability import in_short, unreached
from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from sim.memory_transport import MemoryNetwork

UP, DOWN, SILENT = (Address("server", port) for port in (1, 2, 3))


@attrs.frozen
class Servers:
    """A network with one server that answers, one that refuses, and one that is silent."""

    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)

    async def connect(self, address: Address) -> ByteStream:
        """Reach the one that is up."""
        if address == DOWN:
            raise ConnectionFailedError(f"cannot connect to {address}: refused")
        if address == SILENT:
            await trio.sleep_forever()
        transport = self.network.transport("server")
        listener = await transport.listen(Address("server", 0))
        return await transport.connect(listener.address)

    async def listen(self, address: Address) -> Listener:
        """As any host of the network may."""
        return await self.network.transport("server").listen(address)


async def reasons_of(servers: Sequence[Address]) -> list[str]:
    return await unreached(servers, Servers())


async def test_each_server_is_asked_at_once_and_told_in_its_order(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await reasons_of([SILENT, UP, DOWN, SILENT]) == [
        "server:3 does not answer",
        "cannot connect to server:2: refused",
        "server:3 does not answer",
    ]
    assert trio.current_time() <= 1.0


async def test_servers_that_answer_are_not_told(autojump_clock: trio.testing.MockClock) -> None:
    assert await reasons_of([UP, UP]) == []


def test_of_many_reasons_the_first_is_told_and_how_many_more_there_are() -> None:
    assert in_short(["one: refused"]) == "one: refused"
    assert in_short(["one: refused", "two: refused", "three: refused"]) == (
        "one: refused (and 2 more of its servers)"
    )
