"""`geolog serve`: runs one server until a signal arrives or its supervisor ends."""

import gc
import math
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import click
import trio

from geolog.cli.exits import Exit
from geolog.cli.freed_memory import keep_freed_memory
from geolog.cli.invocation import (
    Noun,
    Verb,
    examples,
    named_zookeeper,
    tell,
    this_invocation,
)
from geolog.cli.reachable import check_reachable, warn_if_only_here
from geolog.cli.service_manager import tell_service_manager
from geolog.cli.settings.roles import PARENT_PIPE_VARIABLE, PROXY, RELAY, STORAGE, ZOOKEEPER
from geolog.cli.signals import ending_at_signals, ends_in_time
from geolog.cli.terminal.output import Plain, print_json
from geolog.settings.sources import (
    Role,
    Setting,
    ValueKind,
    configured,
    settings_of,
)
from geolog.transport.seam import Address
from topology.location import Location

SWITCH_INTERVAL_S = 0.0005
"""Thread switch interval: a journal thread must not wait 5 ms for the interpreter."""

COLLECT_AFTER_OBJECTS = 10_000
"""New objects, less those freed, after which the collector looks for cycles among them. Next to
500 connections a second, a proxy spends an eighth of its time on that with Python's own 700.
Requests leave no cycles (tests/pure/garbage.py finds them), so memory stays the same."""

END_S = 15.0
"""Time limit for an orderly end: longer than any wait that the server bounds itself."""


@attrs.frozen
class Service:
    """Server to run: its role, and a function that serves until it is cancelled."""

    role: str
    serve: Callable[[Callable[[dict[str, Plain]], None]], Awaitable[None]]
    why_late: Callable[[], str] = str
    """Says what a server that does not end is waiting for; empty if unknown."""


def verb_with_settings(role: Role) -> type[Verb]:
    """A command with an option for each setting of a role; options count as flags."""

    class VerbWithSettings(Verb):
        def own_params(self, ctx: click.Context) -> list[click.Parameter]:
            """Return its own options, and one for each setting."""
            *own, help_ = super().own_params(ctx)
            settings = [SettingOption(role, setting) for setting in settings_of(role)]
            return [*own, *settings, help_]

    return VerbWithSettings


class SettingOption(click.Option):
    """Option that sets one setting of a server."""

    def __init__(self, role: Role, setting: Setting) -> None:
        def note(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
            if value is not None:
                ctx.find_root().obj.flags[setting.key] = value

        name = setting.key.rpartition(".")[2].replace("_", "-")
        super().__init__(
            [f"--{name}"],
            callback=note,
            expose_value=False,
            metavar=_METAVARS.get(setting.kind, setting.kind.name),
        )
        self._role = role
        self._setting = setting

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return its row in the help: the first sentence of the setting's description."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        # Imported for help alone: it reads the source of the settings' class.
        from geolog.cli.settings.settings_page import summary_of

        shown = self._setting.show(self._setting.default)
        shown = shown or _DERIVED_DEFAULTS.get(self._setting.field, "")
        default = f" [default: {shown}]" if shown else ""
        return record[0], summary_of(self._role, self._setting) + default


_DERIVED_DEFAULTS = {
    "advertise": "the listen address",
    "http_advertise": "the HTTP address",
    "node_id": "the advertised address",
    "proxy_id": "the advertised address",
    "relay_id": "the advertised address",
}

_METAVARS = {
    ValueKind.SECONDS: "TIME",
    ValueKind.BYTES: "SIZE",
    ValueKind.BYTES_PER_SECOND: "RATE",
    ValueKind.INTEGER: "N",
    ValueKind.NUMBER: "NUMBER",
    ValueKind.ADDRESS: "HOST:PORT",
}


@click.group(cls=Noun, name="serve")
def command() -> None:
    """Run one server. Prints one JSON line, {"ready":true,…}, when the server is ready."""
    this_invocation().takes_demo = False


@command.command(
    cls=verb_with_settings(ZOOKEEPER),
    epilog=examples(
        "geolog serve zookeeper --data-dir zk --listen 127.0.0.1:2181",
        "geolog serve zookeeper --data-dir zk --id 1 --listen zk1.example.net:2181 \\",
        "    --peers 1=zk1.example.net:2888:3888,2=zk2.example.net:2888:3888,"
        "3=zk3.example.net:2888:3888",
    ),
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Directory for the server's data.",
)
def zookeeper(data_dir: Path) -> None:
    """Run an embedded ZooKeeper server, alone or as one voter. --listen is required.

    All options but --data-dir are settings, and may come from the environment or the settings
    file instead; docs/SETTINGS.md describes them in full.
    """
    from regions.zookeeper.server import ZooKeeperConfig, serve_zookeeper

    decided = this_invocation().decide(ZOOKEEPER)
    if any(one.setting.field == "listen" and one.value is None for one in decided):
        raise click.UsageError(
            "--listen is required (or serve.zookeeper.listen in the settings)"
        )
    config = configured(ZooKeeperConfig, decided, data_dir=data_dir.absolute())
    warn_if_only_here(config.listen)

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        facts: dict[str, Plain] = {"id": config.id, "address": str(config.listen)}
        await serve_zookeeper(config, lambda: tell_ready(facts))

    _run(Service("zookeeper", serve))


@command.command(
    cls=verb_with_settings(STORAGE),
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
    metavar="DIR",
    help="Directory to store data in. Repeat for each further disk, in any order.",
)
def storage(data_dirs: tuple[Path, ...]) -> None:
    """Run a storage node. --location and --listen are required.

    All options but --data-dir are settings, and may come from the environment or the settings
    file instead; docs/SETTINGS.md describes them in full.
    """
    from geolog.metadata.zookeeper import open_zookeeper
    from geolog.transport.descriptor_limit import raise_descriptor_limit
    from geolog.transport.gateway import gateway_of, transport_through
    from regions.storage.config import StorageConfig
    from regions.storage.data_directories import open_data_directories, why_late
    from regions.storage.descriptor_limit import plan_descriptors
    from regions.storage.file_disk import FileDisk
    from regions.storage.node import open_storage_node

    directories = [each.absolute() for each in data_dirs]
    for each in directories:
        if directories.count(each) > 1:
            raise click.UsageError(
                f"--data-dir {each} is given twice: give each disk's directory once"
            )
    invocation = this_invocation()
    decided = invocation.decide(STORAGE)
    for one in decided:
        if one.setting.field in ("location", "listen") and one.value is None:
            raise click.UsageError(
                f"--{one.setting.field} is required (or {one.setting.key} in the settings)"
            )
    zookeeper_servers = named_zookeeper(invocation)
    config = configured(StorageConfig, decided, cluster=invocation.config.cluster)
    check_reachable(config.listen, config.advertise, option="--advertise")
    region = Location.parse(config.location).region
    gateway = gateway_of(invocation.config.gateway, region)
    open_files = plan_descriptors(
        raise_descriptor_limit(),
        connections_max=config.connections_max,
        journal_files_open_max=config.journal_files_open_max,
        directories=len(directories),
    )
    config = attrs.evolve(
        config,
        connections_max=open_files.connections_max,
        journal_files_open_max=open_files.journal_files_open_max,
    )
    opened: list[FileDisk] = []

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        async with open_data_directories(
            directories, files_open_max=config.journal_files_open_max
        ) as disks:
            opened.extend(disks)
            async with (
                open_zookeeper(
                    zookeeper_servers,
                    connect_timeout_s=math.inf,  # It logs what it waits for.
                    gateway=gateway,
                ) as metadata,
                open_storage_node(
                    config,
                    transport=transport_through(gateway),
                    disks=disks,
                    metadata=metadata,
                    random_bytes=os.urandom,  # noqa: TID251 - Mints identities.
                ) as node,
            ):
                facts: dict[str, Plain] = {"id": node.node_id, "address": str(node.address)}
                facts |= {"instance": node.instance, "location": config.location}
                tell_ready(facts | {"open_files": attrs.asdict(open_files)})
                await trio.sleep_forever()

    _run(Service("storage", serve, why_late=lambda: why_late(opened)))


@command.command(
    cls=verb_with_settings(PROXY),
    epilog=examples(
        "geolog serve proxy --region eu-west --listen 127.0.0.1:7001 --http 127.0.0.1:7080",
        "geolog serve proxy --region eu-west --listen 0.0.0.0:7001 \\",
        "    --advertise proxy-1.example.net:7001",
    ),
)
def proxy() -> None:
    """Run a write proxy. --region and --listen are required.

    Clients append and read over WebSockets, and over HTTP if --http is set (docs/PROXY.md). All
    options are settings, and may come from the environment or the settings file instead;
    docs/SETTINGS.md describes them in full.
    """
    from geolog.client.connect import machine_clocks
    from geolog.metadata.zookeeper import open_zookeeper
    from geolog.transport.descriptor_limit import raise_descriptor_limit
    from geolog.transport.gateway import gateway_of, transport_through
    from regions.proxy.config import ProxyConfig
    from regions.proxy.descriptor_plan import plan_sockets
    from regions.proxy.proxy import open_write_proxy

    invocation = this_invocation()
    decided = invocation.decide(PROXY)
    region = invocation.config.region
    if region is None:
        raise click.UsageError("--region is required: the region that this proxy serves")
    if any(one.setting.field == "listen" and one.value is None for one in decided):
        raise click.UsageError("--listen is required (or serve.proxy.listen in the settings)")
    zookeeper_servers = named_zookeeper(invocation)
    config = configured(ProxyConfig, decided, region=region)
    check_reachable(config.listen, config.advertise, option="--advertise")
    if config.http is not None:
        check_reachable(config.http, config.http_advertise, option="--http-advertise")
    open_files = plan_sockets(raise_descriptor_limit(), config)
    config = attrs.evolve(
        config,
        connections_max=open_files.connections_max,
        http_connections_max=open_files.http_connections_max or config.http_connections_max,
    )
    gateway = gateway_of(invocation.config.gateway, region)

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        async with (
            open_zookeeper(
                zookeeper_servers,
                connect_timeout_s=math.inf,  # It logs what it waits for.
                gateway=gateway,
            ) as metadata,
            open_write_proxy(
                config,
                metadata=metadata,
                transport=transport_through(gateway),
                cluster=invocation.config.cluster,
                rng=random.Random(),
                lease_clocks=machine_clocks,
                now_us=lambda: time.time_ns() // 1000,  # noqa: TID251 - where it is born.
            ) as opened,
        ):
            facts: dict[str, Plain] = {
                "id": opened.proxy_id,
                "address": str(opened.address),
                "region": region,
            }
            _warn_if_open_to_all(opened.address)
            if opened.http_address is not None:
                _warn_if_open_to_all(opened.http_address)
                facts["http"] = str(opened.http_address)
            tell_ready(facts | {"open_files": attrs.asdict(open_files)})
            await trio.sleep_forever()

    _run(Service("proxy", serve))


@command.command(
    cls=verb_with_settings(RELAY),
    epilog=examples(
        "geolog serve relay --region eu-west --listen 127.0.0.1:7201",
        "geolog serve relay --region eu-west --listen 0.0.0.0:7201 \\",
        "    --advertise relay-1.example.net:7201",
    ),
)
def relay() -> None:
    """Run one member of a region's relay group. --region and --listen are required.

    Relays carry the records of `regional` streams to the regions that mirror them
    (docs/RELAY.md). Run two or more in each region: one coordinates, the next takes over. All
    options are settings, and may come from the environment or the settings file instead;
    docs/SETTINGS.md describes them in full.
    """
    from geolog.metadata.zookeeper import open_zookeeper
    from geolog.transport.gateway import gateway_of, transport_through
    from relay.server.config import RelayConfig
    from relay.server.relay import open_relay

    invocation = this_invocation()
    decided = invocation.decide(RELAY)
    region = invocation.config.region
    if region is None:
        raise click.UsageError("--region is required: the region that this relay belongs to")
    if any(one.setting.field == "listen" and one.value is None for one in decided):
        raise click.UsageError("--listen is required (or serve.relay.listen in the settings)")
    zookeeper_servers = named_zookeeper(invocation)
    config = configured(RelayConfig, decided, region=region)
    check_reachable(config.listen, config.advertise, option="--advertise")
    _ = config.identity  # Wrong files are told before metadata is waited for.
    gateway = gateway_of(invocation.config.gateway, region)

    async def serve(tell_ready: Callable[[dict[str, Plain]], None]) -> None:
        async with (
            open_zookeeper(
                zookeeper_servers,
                connect_timeout_s=math.inf,  # It logs what it waits for.
                gateway=gateway,
            ) as metadata,
            open_relay(
                config,
                metadata=metadata,
                transport=transport_through(gateway),
                cluster=invocation.config.cluster,
                rng=random.Random(),
                now_us=lambda: time.time_ns() // 1000,  # noqa: TID251 - where it is born.
            ) as opened,
        ):
            _warn_if_open_to_all(opened.address)
            facts: dict[str, Plain] = {
                "id": opened.relay_id,
                "address": str(opened.address),
                "region": region,
                "state": opened.role.value,
            }
            if opened.http_address is not None:
                facts["http"] = str(opened.http_address)
            tell_ready(facts)
            await trio.sleep_forever()

    _run(Service("relay", serve))


def _warn_if_open_to_all(address: Address) -> None:
    if not address.is_loopback:
        tell(
            f"listening on {address} without TLS or tokens: everyone who reaches this address"
            " can append and read"
        )


@command.command(
    epilog=examples("geolog serve wan --setup wan.json   # The way `geolog demo` starts it.")
)
@click.option(
    "--setup",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Setup file written by `geolog demo`: regions, links, ports.",
)
def wan(setup: Path) -> None:
    """Run the WAN emulator of a demo; `geolog wan` shows and changes its links."""
    from sim.processes.wan.control import open_wan_control
    from sim.processes.wan.emulator import open_emulator
    from sim.processes.wan.setup import WanSetup

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
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    keep_freed_memory()
    trio.run(ending_at_signals, _serve, service)


async def _serve(service: Service) -> None:
    async with trio.open_nursery() as nursery:
        if (pipe := os.environ.get(PARENT_PIPE_VARIABLE)) is not None:
            nursery.start_soon(_end_with_parent, int(pipe), nursery.cancel_scope)

        def tell_ready(facts: dict[str, Plain]) -> None:
            first: dict[str, Plain] = {"ready": True, "role": service.role, "pid": os.getpid()}
            print_json(first | facts)
            sys.stdout.flush()
            tell_service_manager("READY=1", f"STATUS=ready at {facts['address']}")
            # A full collection of them takes some 40 ms, in which nothing is answered.
            gc.collect()
            gc.freeze()

        async with ends_in_time(END_S, partial(_give_up, service)):
            try:
                await service.serve(tell_ready)
            finally:
                tell_service_manager("STOPPING=1")
        nursery.cancel_scope.cancel(reason="the server has ended")


def _give_up(service: Service) -> None:
    """End the process at once, whatever it is still doing."""
    why = service.why_late()
    sys.stderr.write(
        f"geolog: the {service.role} server did not stop within {END_S:g} s; exiting"
        f" anyway{f': {why}' if why else ''}\n"
    )
    sys.stderr.flush()
    os._exit(Exit.ERROR)


async def _end_with_parent(pipe: int, scope: trio.CancelScope) -> None:
    """End when the pipe becomes readable: nobody writes to it, so its writer is gone."""
    await trio.lowlevel.wait_readable(pipe)
    scope.cancel(reason="the supervisor has ended")
