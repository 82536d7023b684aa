"""Asks storage nodes for their status, over the clients' protocol."""

import json
from collections.abc import Iterable

import trio

from geolog.ledger.nodes.connection import ConnectionConfig, NodeConnection
from geolog.protocol.messages import Status, StatusRequest
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport

Document = dict[str, object]


async def status_of(address: Address, *, cluster: str) -> Document:
    """The status document of the node at `address`."""
    stream = await TcpTransport().connect(address)
    connection = NodeConnection(stream, ConnectionConfig(), str(address))
    ready = trio.Event()
    document: Document = {}
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await connection.run(cluster=cluster, on_ready=lambda _: ready.set())

        nursery.start_soon(run)
        await ready.wait()
        status = await connection.ask(StatusRequest, Status)
        document = json.loads(status.document)
        nursery.cancel_scope.cancel(reason="the node has answered")
    return document


async def group_writes(addresses: Iterable[Address], *, cluster: str) -> tuple[int, int]:
    """Total bytes and group writes (one sync each) of these nodes since their start."""
    written_bytes = groups_count = 0
    for address in addresses:
        document = await status_of(address, cluster=cluster)
        directories = document["directories"]
        assert isinstance(directories, list)
        for each in directories:
            written_bytes += each["journal"]["written_bytes"]
            groups_count += each["journal"]["groups_count"]
    return written_bytes, groups_count
