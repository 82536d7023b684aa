"""Programs in JavaScript and Python that know nothing of geolog, as clients of proxies.

Each appends as a named writer, in one of the subprotocols. All begin at a proxy that does not
own the stream, and follow it to the owner in another region. Then the owner is killed.
"""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import cattrs

from sim.processes.drills.drilled_cluster import DemoCluster
from tests.foreign.foreign_programs import ForeignProgram, installed, open_program
from tests.foreign.proxy_urls import QUORUMS, ProxyUrls
from tests.system.demo_process import DemoProcess

CLIENTS = Path(__file__).parent / "clients"
STREAM = "shop/foreign"
SUBPROTOCOLS = ("geolog.v1.json", "geolog.v1.msgpack")
ACKED_COUNT = 50
"""Appends of each client before the kill, and at least as many after it."""


@attrs.frozen
class Report:
    """The last line of a client, which tells of its own run."""

    acked: list[tuple[int, int]]
    """Number and sequence of each record that was acknowledged, in the order of the answers."""
    read: list[tuple[int, str]]
    """Sequence and value of each record of the client that it has read."""
    redirects: int
    lost: int
    """Proxies that ended a session without saying where to go."""
    duplicates: int


async def test_four_clients_follow_the_owner_and_survive_its_death(
    demo: DemoProcess, proxies: dict[str, ProxyUrls]
) -> None:
    demo.json("stream", "create", STREAM, *QUORUMS)
    demo.run("append", STREAM, "--via", "proxy", given=b"first\n")
    cluster = await DemoCluster.find(demo.directory)
    owner = await proxies["a"].owner_of(STREAM)
    dying = next(one for one in proxies.values() if one.name in owner)
    others = [one for one in proxies.values() if one is not dying]
    urls = [one.websocket for one in others]

    reports = {}
    async with AsyncExitStack() as stack:
        clients: dict[str, ForeignProgram] = {}
        for program in ("node", "python"):
            file = CLIENTS / ("client.mjs" if program == "node" else "client.py")
            for subprotocol in SUBPROTOCOLS:
                writer = f"{program}-{subprotocol[-7:]}"
                clients[writer] = await stack.enter_async_context(
                    open_program(
                        installed(program), str(file), subprotocol, STREAM, writer, *urls
                    )
                )
        for client in clients.values():
            await client.wait_lines(ACKED_COUNT)
        await cluster.kill(dying.name)
        counts = {writer: len(client.lines) for writer, client in clients.items()}
        for writer, client in clients.items():
            await client.wait_lines(counts[writer] + ACKED_COUNT)
        for writer, client in clients.items():
            reports[writer] = cattrs.structure(json.loads(await client.end()), Report)
    next_owner = await others[0].owner_of(STREAM)
    await cluster.start(dying.name)

    assert next_owner != owner
    for writer, report in reports.items():
        count = len(report.acked)
        assert count >= 2 * ACKED_COUNT
        assert report.redirects >= 1, f"{writer} was not sent to the owner"
        assert report.lost >= 1, f"{writer} did not notice the death of the owner"
        # Once, in order, and where the answer said.
        assert [number for number, _ in report.acked] == list(range(count))
        assert report.read == [
            (sequence, f"{writer} {number}") for number, sequence in report.acked
        ]
