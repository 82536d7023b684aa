"""Appends to a proxy that was stopped and lost its partitions meanwhile, and its answers.

The records are sent after the takeover and before the proxy wakes up, so they wait in its
socket. It must acknowledge none of them.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from geolog.transport.gateway import gateway_of, transport_through
from geolog.transport.message_socket import MessageSocket, SocketClosedError
from geolog.transport.seam import Address
from geolog.transport.websocket import open_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from sim.processes.drills.drilled_cluster import DrilledCluster

RECORDS_COUNT = 10

_ANSWERS_S_MAX = 30.0


class ZombieSession:
    """A session of text frames with one proxy, opened while it was well."""

    def __init__(self, socket: MessageSocket) -> None:
        self._socket = socket

    async def send(self) -> None:
        """Send records that the proxy will find when it wakes up."""
        for number in range(RECORDS_COUNT):
            await self._socket.send(json.dumps({"id": number, "value": f"zombie/{number}"}))

    async def acknowledged_count(self) -> int:
        """How many the proxy acknowledges until it has answered all, or ends the session."""
        acknowledged_count = 0
        with trio.move_on_after(_ANSWERS_S_MAX):
            for _ in range(RECORDS_COUNT):
                try:
                    answer = json.loads(await self._socket.receive())
                except SocketClosedError:
                    break
                acknowledged_count += answer["type"] == "ack"
        return acknowledged_count


@asynccontextmanager
async def open_zombie_session(
    cluster: DrilledCluster, proxy: str, stream: str
) -> AsyncIterator[ZombieSession]:
    """A session with the stream's owner, which is still well."""
    through = gateway_of(cluster.gateway, cluster.proxies[proxy].region)
    async with open_websocket(
        transport_through(through),
        Address.parse(cluster.proxies[proxy].address),
        f"/v1/streams/{stream}/append",
        subprotocols=(),
        message_bytes_max=FRAME_BYTES_MAX,
    ) as socket:
        hello = json.loads(await socket.receive())
        assert hello["type"] == "hello", hello
        yield ZombieSession(socket)
