"""The plan of a local cluster: each server's name, location, address, directory and argv.

A plan is a value. It is drawn once, with its ports, so a restarted server is exactly the one
that was killed.
"""

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import attrs

from geolog.settings.running_demo import SETTINGS_NAME
from sim.processes.cluster import settable_clock
from sim.processes.cluster.settable_clock import set_clock
from sim.processes.cluster.wan_ports import Passages, Voter, draw_passages, draw_wan, peers_of
from sim.processes.wan.conditions import Wan
from sim.processes.wan.setup import SETUP_NAME, WanSetup
from topology.errors import InvalidArgumentError, NotFoundError
from topology.location import Location

ServerKind = Literal["wan", "zookeeper", "storage", "relay", "proxy"]

REGIONS_DEFAULT = ("us-east", "eu-west", "ap-northeast")

DISK_BYTES_MIN = 1 << 30
"""Maximum disk space of a demo, which must be free when it starts."""


@attrs.frozen(kw_only=True)
class ServerPlan:
    """One server process."""

    name: str
    """Short name, e.g. `us-east-storage-1`. It is also the id of a storage node, relay or
    proxy."""
    kind: ServerKind
    region: str
    address: str
    location: str
    """`/us-east/rack-1` for a storage node, `/us-east` for a ZooKeeper server, a relay
    or a proxy, `-` for a WAN emulator."""
    data_dir: Path
    log: Path
    argv: tuple[str, ...]
    http: str | None = None
    """Where a proxy takes HTTP."""
    clock: Path | None = None
    """The file that sets its wall clock, if that can be set."""


@attrs.frozen(kw_only=True)
class ClusterPlan:
    """All servers of one cluster."""

    cluster: str
    directory: Path
    regions: tuple[str, ...]
    servers: tuple[ServerPlan, ...]
    wan: WanSetup | None = None
    """The emulator between the regions, if any."""

    @property
    def gateway(self) -> str | None:
        """The address of the emulator's gateway."""
        return None if self.wan is None else self.wan.gateway

    @property
    def zookeeper(self) -> str:
        """The connection string for all clients."""
        return ",".join(server.address for server in self.of_kind("zookeeper"))

    @property
    def settings_file(self) -> Path:
        """The file to pass with `--config` in another terminal."""
        return self.directory / SETTINGS_NAME

    def of_kind(self, kind: ServerKind) -> tuple[ServerPlan, ...]:
        """The servers of one kind."""
        return tuple(server for server in self.servers if server.kind == kind)

    def named(self, target: str) -> tuple[ServerPlan, ...]:
        """The servers that `target` selects: a region, kind, name or address, or `all`."""
        found = tuple(
            server
            for server in self.servers
            if target.replace("/", "-")
            in ("all", server.region, server.kind, server.name, server.address)
        )
        if not found:
            raise NotFoundError(
                f"unknown target {target!r}: give a region ({', '.join(self.regions)}), "
                f"a server (e.g. {self.servers[-1].name} or its address), zookeeper, "
                f"storage, {'relay, ' if self.of_kind('relay') else ''}"
                f"{'proxy, ' if self.of_kind('proxy') else ''}"
                f"{'' if self.wan is None else 'wan, '}or all"
            )
        return found


@attrs.frozen(kw_only=True)
class ClusterShape:
    """Size and options of a cluster."""

    regions: tuple[str, ...] = REGIONS_DEFAULT
    nodes_per_region: int = 3
    proxies_per_region: int = 0
    relays_per_region: int = 0
    zookeeper_count: int | None = None
    """None for the default: 1 for up to two regions, 3 for three or four, 5 for more."""
    wan: Wan | None = None
    """The links to emulate between the regions; None for direct loopback connections."""
    storage_options: tuple[str, ...] = ("--journal-file-bytes", "8MiB")
    """Passed to each storage node. Small journal files free disk space sooner."""
    proxy_options: tuple[str, ...] = ()
    """Passed to each write proxy."""
    relay_options: tuple[str, ...] = ()
    """Passed to each relay."""
    has_settable_clocks: bool = False
    """Whether the wall clocks of nodes, relays and proxies can be set while they run."""

    def __attrs_post_init__(self) -> None:
        if not self.regions or len(set(self.regions)) != len(self.regions):
            raise InvalidArgumentError(
                f"--regions {','.join(self.regions)!r}: give at least one, and each only once"
            )
        for region in self.regions:
            if region in ("all", "storage", "zookeeper", "relay", "proxy", "wan"):
                raise InvalidArgumentError(
                    f"--regions: {region!r} is reserved for targets; choose another name"
                )
            Location.parse(f"/{region}/rack-1")
        if self.nodes_per_region < 1:
            raise InvalidArgumentError(
                f"--nodes-per-region must be at least 1, got {self.nodes_per_region}"
            )

    @property
    def zookeepers(self) -> int:
        """Number of ZooKeeper servers."""
        if self.zookeeper_count is not None:
            return self.zookeeper_count
        if len(self.regions) < 3:
            return 1
        return 5 if len(self.regions) >= 5 else 3

    @property
    def ports_count(self) -> int:
        """Number of ports that the cluster takes.

        Three per ZooKeeper server, one per node and relay, two per proxy. A WAN adds one for
        the gateway, one probe per region, and two from each ZooKeeper server to each other one.
        """
        per_region = (
            self.nodes_per_region + 2 * self.proxies_per_region + self.relays_per_region
        )
        servers = 3 * self.zookeepers + len(self.regions) * per_region
        if self.wan is None:
            return servers
        return servers + 1 + len(self.regions) + 2 * self.zookeepers * (self.zookeepers - 1)


def draw_plan(
    shape: ClusterShape, *, cluster: str, directory: Path, ports: list[int]
) -> ClusterPlan:
    """Draw the plan of a cluster of this shape, in this directory, on these ports."""
    assert len(ports) >= shape.ports_count
    addresses = (f"127.0.0.1:{port}" for port in ports)
    # Each ZooKeeper server has three: for clients, for followers, for elections.
    voters = [
        Voter(number, shape.regions[(number - 1) % len(shape.regions)], *islice(addresses, 3))
        for number in range(1, shape.zookeepers + 1)
    ]
    nodes = [
        (region, number, next(addresses))
        for region in shape.regions
        for number in range(1, shape.nodes_per_region + 1)
    ]
    proxies = [
        (region, number, next(addresses), next(addresses))
        for region in shape.regions
        for number in range(1, shape.proxies_per_region + 1)
    ]
    relays = [
        (region, number, next(addresses))
        for region in shape.regions
        for number in range(1, shape.relays_per_region + 1)
    ]
    wan, passages = None, Passages()
    if shape.wan is not None:
        places = {voter.clients: voter.region for voter in voters}
        places |= {address: region for region, _, address in nodes}
        places |= {address: region for region, _, address, _ in proxies}
        places |= {address: region for region, _, address in relays}
        passages = draw_passages(voters, addresses)
        wan = draw_wan(shape.wan, passages, places=places, addresses=addresses)
    zookeeper = ",".join(voter.clients for voter in voters)
    common = ["--zookeeper", zookeeper, "--cluster", cluster]
    if wan is not None:
        common += ["--gateway", wan.gateway]
    servers = [] if wan is None else [_emulator(directory, wan)]
    servers += [
        _zookeeper(directory, voter, peers_of(voter, voters, passages)) for voter in voters
    ]
    servers += [_storage(directory, *node, [*shape.storage_options, *common]) for node in nodes]
    servers += [_relay(directory, *each, [*shape.relay_options, *common]) for each in relays]
    servers += [_proxy(directory, *each, [*shape.proxy_options, *common]) for each in proxies]
    if shape.has_settable_clocks:
        servers = [_with_clock(directory, server) for server in servers]
    return ClusterPlan(
        cluster=cluster,
        directory=directory,
        regions=shape.regions,
        servers=tuple(servers),
        wan=wan,
    )


def _emulator(directory: Path, wan: WanSetup) -> ServerPlan:
    return ServerPlan(
        name="wan",
        kind="wan",
        region="",
        address=wan.gateway,
        location="-",
        data_dir=directory,
        log=directory / "logs" / "wan.log",
        argv=_argv("wan", "--setup", str(directory / SETUP_NAME)),
    )


def _zookeeper(directory: Path, voter: Voter, peers: str) -> ServerPlan:
    name = f"zookeeper-{voter.number}"
    data_dir = directory / voter.region / name
    options = ["--id", str(voter.number), "--data-dir", str(data_dir)]
    return ServerPlan(
        name=f"{voter.region}-{name}",
        kind="zookeeper",
        region=voter.region,
        address=voter.clients,
        location=f"/{voter.region}",
        data_dir=data_dir,
        log=directory / "logs" / f"{voter.region}-{name}.log",
        argv=_argv("zookeeper", *options, "--listen", voter.clients, "--peers", peers),
    )


def _storage(
    directory: Path, region: str, number: int, address: str, common: Sequence[str]
) -> ServerPlan:
    data_dir = directory / region / f"storage-{number}"
    location = f"/{region}/rack-{number}"
    name = f"{region}-storage-{number}"
    options = ["--data-dir", str(data_dir), "--location", location, "--listen", address]
    options += ["--node-id", name]
    return ServerPlan(
        name=name,
        kind="storage",
        region=region,
        address=address,
        location=location,
        data_dir=data_dir,
        log=directory / "logs" / f"{name}.log",
        argv=_argv("storage", *options, *common),
    )


def _proxy(
    directory: Path, region: str, number: int, address: str, http: str, common: Sequence[str]
) -> ServerPlan:
    name = f"{region}-proxy-{number}"
    options = ["--region", region, "--listen", address, "--http", http, "--proxy-id", name]
    return ServerPlan(
        name=name,
        kind="proxy",
        region=region,
        address=address,
        location=f"/{region}",
        data_dir=directory / region,
        log=directory / "logs" / f"{name}.log",
        http=http,
        argv=_argv("proxy", *options, *common),
    )


def _relay(
    directory: Path, region: str, number: int, address: str, common: Sequence[str]
) -> ServerPlan:
    name = f"{region}-relay-{number}"
    options = ["--region", region, "--listen", address, "--relay-id", name]
    return ServerPlan(
        name=name,
        kind="relay",
        region=region,
        address=address,
        location=f"/{region}",
        data_dir=directory / region,
        log=directory / "logs" / f"{name}.log",
        argv=_argv("relay", *options, *common),
    )


def _with_clock(directory: Path, server: ServerPlan) -> ServerPlan:
    """The server with a clock that can be set, if it is one of geolog's own."""
    if server.kind not in ("storage", "relay", "proxy"):
        return server
    clock = directory / "clocks" / server.name
    set_clock(clock, 0)
    started = (sys.executable, "-P", "-m", settable_clock.__name__, str(clock))
    return attrs.evolve(server, argv=(*started, *server.argv[4:]), clock=clock)


def _argv(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "geolog", "serve", *arguments)
