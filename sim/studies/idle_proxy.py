"""Measures what idle connections and owned partitions cost a write proxy.

`python -P -m sim.studies.idle_proxy [CONNECTIONS STREAMS OWNED]` (default: 5000 10000 1000)
starts three nodes, a ZooKeeper server and a proxy per region, makes STREAMS streams, and opens
CONNECTIONS sessions to one proxy. OWNED of them append one record to a stream each, so that the
proxy owns it. Then it prints the memory of the proxy's process, and the share of a core that it
takes while nothing happens.
"""

import json
import sys
from contextlib import AsyncExitStack
from functools import partial

import attrs
import trio

from geolog.background import all_of
from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.transport.message_socket import MessageSocket
from geolog.transport.seam import Address
from geolog.transport.tcp import TcpTransport
from geolog.transport.websocket import open_websocket
from geolog.wire.limits import FRAME_BYTES_MAX
from geolog.wire.session.batches import SUBPROTOCOL_BATCHES
from geolog.wire.session.paths import SESSION_PATH
from sim.processes.bench.figures import Figure, figure
from sim.processes.bench.own_cluster import SHAPE, open_own_servers
from sim.processes.bench.processor_time import processor_s
from sim.studies.open_ledgers import resident_bytes

_NEEDED_BYTES = 4 << 30
_AT_ONCE = 16
_SETTLING_S = 15.0
"""After the last append: ledgers made ahead, watches and timers of sessions come to rest."""

_WATCHED_S = 30.0


@attrs.frozen
class IdleLoad:
    """Load on one proxy."""

    connections_count: int = 5_000
    streams_count: int = 10_000
    owned_count: int = 1_000


async def measure_idle_proxy(load: IdleLoad) -> list[Figure]:
    """Memory of the proxy before and after, and its use of a core while all is idle."""
    shape = attrs.evolve(SHAPE, proxies_per_region=1)
    async with open_own_servers(None, needed_bytes=_NEEDED_BYTES, shape=shape) as cluster:
        proxy, *_ = cluster.named("proxy")
        assert proxy.pid is not None
        before_bytes = resident_bytes(proxy.pid)
        address = Address.parse(proxy.plan.address)
        region = cluster.plan.regions[0]
        async with (
            connect(
                zookeeper=cluster.plan.zookeeper, cluster=cluster.plan.cluster, region=region
            ) as log,
            AsyncExitStack() as stack,
        ):
            names = [f"idle/stream-{number}" for number in range(load.streams_count)]
            creations = [partial(_create, log, name) for name in names]
            await all_of(creations, at_once_max=_AT_ONCE)
            owned = names[: load.owned_count]
            sockets = [await _append_session(stack, address, name) for name in owned]
            appends = [partial(_append_one, socket) for socket in sockets]
            await all_of(appends, at_once_max=_AT_ONCE)
            owned_bytes = resident_bytes(proxy.pid)
            for _ in range(load.connections_count - load.owned_count):
                await _open(stack, address, SESSION_PATH, SUBPROTOCOL_BATCHES)
            await trio.sleep(_SETTLING_S)
            before_s, started_s = processor_s(proxy.pid), trio.current_time()
            await trio.sleep(_WATCHED_S)
            share = (processor_s(proxy.pid) - before_s) / (trio.current_time() - started_s)
            after_bytes = resident_bytes(proxy.pid)
    what = f"{load.connections_count:,} connections, {load.owned_count:,} partitions owned"
    return [
        figure("memory of an idle proxy", before_bytes / 1e6, "MB"),
        figure(f"memory with {load.owned_count:,} partitions owned", owned_bytes / 1e6, "MB"),
        figure(f"memory with {what}", after_bytes / 1e6, "MB", goal="< 315 MB (300 MiB)"),
        figure(f"share of a core with {what}", 100 * share, "%", goal="< 10 %"),
    ]


async def _create(log: Log, name: str) -> None:
    await log.create_stream(
        name, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2, if_not_exists=True
    )


async def _append_session(stack: AsyncExitStack, address: Address, name: str) -> MessageSocket:
    return await _open(stack, address, f"/v1/streams/{name}/append", "geolog.v1.json")


async def _open(
    stack: AsyncExitStack, address: Address, target: str, subprotocol: str
) -> MessageSocket:
    return await stack.enter_async_context(
        open_websocket(
            TcpTransport(),
            address,
            target,
            subprotocols=(subprotocol,),
            message_bytes_max=FRAME_BYTES_MAX,
        )
    )


async def _append_one(socket: MessageSocket) -> None:
    hello = json.loads(await socket.receive())
    assert hello["type"] == "hello", hello
    await socket.send(json.dumps({"id": 1, "value": "the only one"}))
    answer = json.loads(await socket.receive())
    assert answer["type"] == "ack", answer


if __name__ == "__main__":
    for one in trio.run(measure_idle_proxy, IdleLoad(*map(int, sys.argv[1:]))):
        goal = "" if one.goal is None else f" (goal: {one.goal})"
        sys.stdout.write(f"{one.name}: {one.value:g} {one.unit}{goal}\n")
