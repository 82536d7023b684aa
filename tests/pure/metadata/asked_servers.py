"""Servers of a metadata store that answer one command of four letters."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs
import trio

from geolog.transport.seam import Address, ByteStream, ConnectionFailedError, Listener
from sim.fakes.memory_transport import MemoryNetwork

DOWN, SILENT = Address("server", 2), Address("server", 3)
"""Two that give no answer: one refuses, one says nothing."""


@attrs.frozen
class AskedServers:
    """A network of servers: some answer, one refuses, one is silent."""

    question: bytes
    answers: Mapping[Address, bytes]
    network: MemoryNetwork = attrs.field(factory=MemoryNetwork)

    async def connect(self, address: Address) -> ByteStream:
        """Reach one that is up."""
        if address == DOWN:
            raise ConnectionFailedError(f"cannot connect to {address}: refused")
        if address == SILENT:
            await trio.sleep_forever()
        return await self.network.transport("client").connect(address)

    async def listen(self, address: Address, *, first_bytes_min: int = 1) -> Listener:
        """Listen like any host of the network."""
        return await self.network.transport("server").listen(
            address, first_bytes_min=first_bytes_min
        )

    async def serve(self, listener: Listener) -> None:
        """Answer one question after the other."""
        while True:
            stream = await listener.accept()
            question = bytearray(9)
            count = await stream.receive_into(question)
            assert question[:count] == self.question
            await stream.send([self.answers[listener.address]])
            stream.close()


@asynccontextmanager
async def running_servers(
    question: bytes, answers: Mapping[Address, bytes]
) -> AsyncIterator[AskedServers]:
    """Run those that answer, for the length of the block."""
    servers = AskedServers(question, answers)
    async with trio.open_nursery() as nursery:
        for address in answers:
            nursery.start_soon(servers.serve, await servers.listen(address))
        yield servers
        nursery.cancel_scope.cancel(reason="the block is over")
