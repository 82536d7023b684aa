"""`geolog serve`: one server, until a signal or the end of its supervisor ends it."""

import os
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.invocation import Noun, Verb, examples, named_zookeeper, this_invocation
from geolog.cli.output import Plain, print_json
from geolog.cli.settings import (
    PARENT_PIPE_VARIABLE,
    STORAGE,
    ZOOKEEPER,
    Setting,
    configured,
    parse_address,
    settings_of,
)
from geolog.cli.signals import ending_at_signals
from topology.location import Location

SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter: a journal thread must not wait 5 ms for it."""


@attrs.frozen
class Service:
    """One server to run: a function that serves until it is cancelled, and what it is."""

    role: str
    serve: Callable[[Callable[[dict[str, Plain]], None]], Awaitable[None]]


class StorageVerb(Verb):
    """Each setting of a storage node is an option too; it counts as a flag."""

    def own_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Its own options, and one for each setting."""
        return [*super().own_params(ctx), *(_option_of(each) for each in settings_of(STORAGE))]


def _option_of(setting: Setting) -> click.Option:
    def note(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.find_root().obj.flags[setting.key] = value

    name = setting.key.rpartition(".")[2].replace("_", "-")
    return click.Option(
        [f"--{name}"],
        callback=note,
        expose_value=False,
        metavar=setting.kind.name,
        help=f"Default: {setting.show(setting.default)}." if setting.default else None,
    )


@click.group(cls=Noun, name="serve")
def command() -> None:
    """Run one server. It prints one JSON line, {"ready":true,…}, when it answers."""


@command.command(
    epilog=examples("geolog serve zookeeper --data-dir zk --id 1 --listen 127.0.0.1:2181")
)
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


@command.command(
    cls=StorageVerb,
    epilog=examples(
        "geolog serve storage --data-dir d --location /eu-west/rack-1 --listen 127.0.0.1:4001",
        "geolog serve storage --data-dir /disk1 --data-dir /disk2 --location /eu-west/r2 \\",
        "    --listen 0.0.0.0:4001 --advertise node-2.example.net:4001",
    ),
)
@click.option(
    "--data-dir",
    "data_dirs",
    type=click.Path(path_type=Path, file_okay=False),
    multiple=True,
    required=True,
    metavar="D",
    help="Where the node keeps all it stores. Again for each further disk, in any order.",
)
def storage(data_dirs: tuple[Path, ...]) -> None:
    """One storage node. --location and --listen are needed, here or in the settings."""
    from geolog.metadata.zookeeper import open_zookeeper
    from geolog.transport.gateway import gateway_of, transport_through
    from regions.storage.config import StorageConfig
    from regions.storage.file_disk import open_file_disk
    from regions.storage.node import open_storage_node

    directories = [each.absolute() for each in data_dirs]
    for each in directories:
        if directories.count(each) > 1:
            raise click.UsageError(
                f"--data-dir {each} is given twice: each disk is one directory"
            )
    invocation = this_invocation()
    decided = invocation.decide(STORAGE)
    for one in decided:
        if one.setting.field in ("location", "listen") and one.value is None:
            raise click.UsageError(f"--{one.setting.field} is needed, here or in the settings")
    zookeeper_servers = named_zookeeper(invocation)
    config = configured(StorageConfig, decided, cluster=invocation.config.cluster)
    region = Location.parse(config.location).region
    gateway = gateway_of(invocation.config.gateway, region)

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        async with (
            AsyncExitStack() as opened,
            open_zookeeper(
                zookeeper_servers,
                connect_timeout_s=invocation.config.timeout_s,
                gateway=gateway,
            ) as metadata,
            open_storage_node(
                config,
                transport=transport_through(gateway),
                disks=[
                    await opened.enter_async_context(open_file_disk(each))
                    for each in directories
                ],
                metadata=metadata,
                random_bytes=os.urandom,  # noqa: TID251 - Identities are born here.
            ) as node,
        ):
            facts: dict[str, Plain] = {"id": node.node_id, "address": str(node.address)}
            tell_ready(facts | {"instance": node.instance, "location": config.location})
            await trio.sleep_forever()

    _run(Service("storage", serve))


@command.command(
    epilog=examples("geolog serve wan --setup wan.json   # As `geolog demo` starts it.")
)
@click.option(
    "--setup",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="What `geolog demo` wrote: regions, links, ports.",
)
def wan(setup: Path) -> None:
    """The WAN emulator of a cluster on this machine. `geolog wan` shows and changes it."""
    from sim.wan.control import open_wan_control
    from sim.wan.emulator import open_emulator
    from sim.wan.setup import WanSetup

    found, directory = WanSetup.read(setup), setup.absolute().parent

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        async with (
            open_emulator(found, random.Random()) as emulator,
            open_wan_control(emulator, directory),
        ):
            tell_ready({"address": found.gateway, "regions": list(found.wan.regions)})
            await trio.sleep_forever()

    _run(Service("wan", serve))


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
