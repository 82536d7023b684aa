"""`geolog serve`: one server, until a signal or the end of its supervisor ends it."""

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.invocation import Noun, this_invocation
from geolog.cli.output import Plain, print_json
from geolog.cli.settings import PARENT_PIPE_VARIABLE, ZOOKEEPER, configured, parse_address
from geolog.cli.signals import ending_at_signals

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter: a journal thread must not wait 5 ms for it."""


@attrs.frozen
class Service:
    """One server to run: a function that serves until it is cancelled, and what it is."""

    role: str
    serve: Callable[[Callable[[dict[str, Plain]], None]], Awaitable[None]]


@click.group(cls=Noun, name="serve")
def command() -> None:
    """Run one server. It prints one JSON line, {"ready":true,…}, when it answers."""


@command.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True)
@click.option("--id", "server_id", type=int, default=1, show_default=True)
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where clients connect.")
@click.option(
    "--peers",
    default="",
    metavar="ID=HOST:QUORUM_PORT:ELECTION_PORT,…",
    help="All voters, this one included; none: it stands alone.",
)
def zookeeper(data_dir: Path, server_id: int, listen: str, peers: str) -> None:
    """One embedded ZooKeeper server, alone or one voter of a quorum."""
    from regions.zookeeper import ZooKeeperConfig, parse_peers, serve_zookeeper

    config = configured(
        ZooKeeperConfig,
        this_invocation().decide(ZOOKEEPER),
        data_dir=data_dir.absolute(),
        server_id=server_id,
        listen=parse_address(listen),
        peers=parse_peers(peers),
    )

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        facts: dict[str, Plain] = {"id": server_id, "address": str(config.listen)}
        await serve_zookeeper(config, lambda: tell_ready(facts))

    _run(Service("zookeeper", serve))


def _run(service: Service) -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    trio.run(ending_at_signals, _serve, service)


async def _serve(service: Service) -> None:
    async with trio.open_nursery() as nursery:
        if (pipe := os.environ.get(PARENT_PIPE_VARIABLE)) is not None:
            nursery.start_soon(_end_with_parent, int(pipe), nursery.cancel_scope)

        def tell_ready(facts: dict[str, Plain]) -> None:
            first: dict[str, Plain] = {"ready": True, "role": service.role, "pid": os.getpid()}
            print_json(first | facts)
            sys.stdout.flush()

        await service.serve(tell_ready)
        nursery.cancel_scope.cancel(reason="the server has ended")


async def _end_with_parent(pipe: int, scope: trio.CancelScope) -> None:
    """Nothing is ever written to the pipe: that it can be read means its writer is gone."""
    await trio.lowlevel.wait_readable(pipe)
    scope.cancel(reason="the supervisor has ended")
