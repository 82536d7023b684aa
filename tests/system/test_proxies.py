"""Write proxies as real processes: redirects, drains and kills, with any WebSocket client."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio

import geolog
from geolog.transport.gateway import transport_through
from geolog.transport.message_socket import MessageSocket
from geolog.transport.seam import Address
from geolog.transport.websocket import open_websocket
from sim.processes.cluster.local import open_cluster
from sim.processes.cluster.plan import ClusterShape, draw_plan
from sim.processes.cluster.ports import held_ports
from tests.system.demo_process import geolog as run_geolog

STREAM = "shop/orders"


def session(address: str, target: str) -> AbstractAsyncContextManager[MessageSocket]:
    """Open a session of text frames at a proxy."""
    return open_websocket(
        transport_through(None),
        Address.parse(address),
        target,
        subprotocols=(),
        message_bytes_max=1 << 20,
    )


async def ask(socket: MessageSocket, **frame: object) -> dict[str, object]:
    """Send a frame, and return the next one that comes."""
    await socket.send(json.dumps(frame))
    return await receive(socket)


async def receive(socket: MessageSocket) -> dict[str, object]:
    found = json.loads(await socket.receive())
    assert isinstance(found, dict)
    return found


async def test_clients_of_two_proxies_append_and_follow_the_owner_when_it_drains(
    tmp_path: Path,
) -> None:
    shape = ClusterShape(nodes_per_region=1, proxies_per_region=1, zookeeper_count=1)
    with held_ports(shape.ports_count) as ports:
        plan = draw_plan(shape, cluster="proxied", directory=tmp_path, ports=ports)
        first, second, _ = plan.of_kind("proxy")
        path = f"/v1/streams/{STREAM}/append"
        async with (
            open_cluster(plan) as cluster,
            geolog.connect(zookeeper=plan.zookeeper, cluster=plan.cluster) as log,
        ):
            await log.create_stream(
                STREAM, ensemble_size=3, write_quorum=3, ack_quorum=2, min_regions=2
            )
            async with session(first.address, path) as owned:
                hello = await receive(owned)
                ack = await ask(owned, id=1, value="first")
                async with session(second.address, path) as sent_away:
                    moved = await receive(sent_away)
                async with log.open_writer(STREAM, writer_id="till-7") as writer:
                    before = await writer.append(b"second")
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(cluster.stop, first.name)
                        goaway = await receive(owned)
                        after = [await writer.append(b"%d" % number) for number in range(20)]
            async with session(second.address, f"{path}?redirect=forward") as forwarded:
                await receive(forwarded)
                last = await ask(forwarded, id=2, value="last")
            async with log.open_reader(STREAM) as reader:
                read = [record.value async for record in reader]

    assert (hello["type"], hello["owner"]) == ("hello", f"proxy {first.name} in {first.region}")
    assert (ack["type"], ack["sequence"]) == ("ack", 0)
    assert (moved["code"], moved["location"]) == (302, f"ws://{first.address}{path}")
    assert goaway == {"type": "goaway"}
    assert [one.sequence for one in [before, *after]] == list(range(1, 22))
    assert (last["type"], last["sequence"]) == ("ack", 22)
    assert read == [b"first", b"second", *(b"%d" % number for number in range(20)), b"last"]


def test_killing_the_owner_loses_nothing_and_repeats_nothing_for_named_writers() -> None:
    done = run_geolog("drill", "run", "proxy-kill", "--times", "1", "-o", "json")

    assert done.returncode == 0, done.stderr.decode()
    verdict = json.loads(done.stdout)
    counts, (outage,) = verdict["counts"], verdict["rounds"]
    assert counts["faults"] == 1
    assert counts["acknowledged"] > 100
    assert counts["lost"] == counts["repeated"] == counts["swapped"] == counts["unknown"] == 0
    assert verdict["figures"]["rpo_s"] == 0
    assert outage["metadata_writes"] > 0
    assert outage["outage_s_max"] > outage["detection_s"] > 0
    assert len(verdict["regions"]) == 3
