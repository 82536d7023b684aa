"""Lets another terminal show and change the links of a running emulator.

Requests: `{"verb":"show"}`, and `{"verb":"change","from":"us-east","to":"eu-west",
"is_one_way":false,"change":{"rtt_s":0.08}}`. The answer to both is the new state of all links.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from sim.processes.cluster.line_socket import Document, ask_line_socket, open_line_socket
from sim.processes.wan.conditions import LinkChange
from sim.processes.wan.emulator import Emulator
from sim.processes.wan.setup import SOCKET_NAME


@asynccontextmanager
async def open_wan_control(emulator: Emulator, directory: Path) -> AsyncIterator[None]:
    """Serve requests from other terminals for the duration of the block."""

    async def act(question: Document) -> Document:
        if question["verb"] == "change":
            emulator.change(
                str(question["from"]),
                str(question["to"]),
                LinkChange(**question["change"]),  # type: ignore[arg-type]  # As `ask_change` sends it.
                is_one_way=bool(question["is_one_way"]),
            )
        elif question["verb"] != "show":
            raise ValueError(question["verb"])
        return _description(emulator)

    async with open_line_socket(directory, SOCKET_NAME, act):
        yield


async def ask_show(directory: Path) -> Document:
    """The links of the emulator running for the cluster in `directory`."""
    return await _ask(directory, {"verb": "show"})


async def ask_change(
    directory: Path, here: str, there: str, change: LinkChange, *, is_one_way: bool
) -> Document:
    """Change links and return their new state. NotFoundError, InvalidArgumentError."""
    question: Document = {"verb": "change", "from": here, "to": there}
    question |= {"is_one_way": is_one_way, "change": attrs.asdict(change)}
    return await _ask(directory, question)


async def _ask(directory: Path, question: Document) -> Document:
    missing = (
        f"no demo with an emulated WAN runs in {directory}: start one with `geolog demo`, or "
        "name its directory with --data-dir"
    )
    return await ask_line_socket(directory, SOCKET_NAME, question, missing=missing)


def _description(emulator: Emulator) -> Document:
    links = []
    for status in emulator.status():
        link: Document = {"from": status.here, "to": status.there}
        link |= attrs.asdict(status.conditions)
        for name in ("connections_count", "held_bytes", "carried_bytes"):
            link[name] = getattr(status, name)
        links.append(link)
    setup = emulator.setup
    return {"gateway": setup.gateway, "probes": dict(setup.probes), "links": links}
