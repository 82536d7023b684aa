"""What a local cluster consists of: each server's name, place, address, directory and argv.

A plan is a value. It is drawn once, with its ports, so that a server that is started again
comes back as exactly the one that was killed.
"""

import sys
from pathlib import Path
from typing import Literal

import attrs

from topology.errors import InvalidArgumentError
from topology.location import Location

Kind = Literal["zookeeper", "storage"]

REGIONS_DEFAULT = ("us-east", "eu-west", "ap-northeast")

DISK_BYTES_MIN = 1 << 30
"""What a demo may use, and so what must be free where it starts."""


@attrs.frozen(kw_only=True)
class ServerPlan:
    """One server process."""

    name: str
    """`us-east-storage-1`: what a person types; of a storage node it is the node id too."""
    kind: Kind
    region: str
    address: str
    location: str
    """`/us-east/rack-1` of a storage node; a ZooKeeper server has no rack."""
    data_dir: Path
    log: Path
    argv: tuple[str, ...]


@attrs.frozen(kw_only=True)
class ClusterPlan:
    """All servers of one cluster."""

    cluster: str
    directory: Path
    regions: tuple[str, ...]
    servers: tuple[ServerPlan, ...]

    @property
    def zookeeper(self) -> str:
        """The connection string that all clients use."""
        return ",".join(server.address for server in self.of_kind("zookeeper"))

    @property
    def settings_file(self) -> Path:
        """What `--config` names in another terminal."""
        return self.directory / "geolog.toml"

    def of_kind(self, kind: Kind) -> tuple[ServerPlan, ...]:
        """The servers of one kind."""
        return tuple(server for server in self.servers if server.kind == kind)

    def named(self, target: str) -> tuple[ServerPlan, ...]:
        """The servers that `target` means: a region, kind, name or address, or `all`."""
        found = tuple(
            server
            for server in self.servers
            if target.replace("/", "-")
            in ("all", server.region, server.kind, server.name, server.address)
        )
        if not found:
            raise InvalidArgumentError(
                f"{target!r} names no server: say a region ({', '.join(self.regions)}), "
                f"a server (such as {self.servers[-1].name} or its address), zookeeper, "
                "storage, or all"
            )
        return found


@attrs.frozen(kw_only=True)
class Shape:
    """How large a cluster is to be."""

    regions: tuple[str, ...] = REGIONS_DEFAULT
    nodes_per_region: int = 3
    zookeeper_count: int | None = None
    """Without a number, a demo's quorum: three, or five from five regions on."""
    storage_options: tuple[str, ...] = ("--journal-file-bytes", "8MiB")
    """Given to each storage node. Small journal files give disk space back sooner."""

    def __attrs_post_init__(self) -> None:
        if not self.regions or len(set(self.regions)) != len(self.regions):
            raise InvalidArgumentError(
                f"--regions {','.join(self.regions)!r}: name each region once, at least one"
            )
        for region in self.regions:
            if region in ("all", "storage", "zookeeper"):
                raise InvalidArgumentError(
                    f"--regions: {region!r} means servers of all regions: choose another name"
                )
            Location.parse(f"/{region}/rack-1")
        if self.nodes_per_region < 1:
            raise InvalidArgumentError(
                f"--nodes-per-region {self.nodes_per_region}: at least 1 is needed"
            )

    @property
    def zookeepers(self) -> int:
        """How many ZooKeeper servers there are."""
        if self.zookeeper_count is not None:
            return self.zookeeper_count
        if len(self.regions) < 3:
            return 1
        return 5 if len(self.regions) >= 5 else 3

    @property
    def ports_count(self) -> int:
        """How many ports the cluster takes: three a ZooKeeper server, one a node."""
        return 3 * self.zookeepers + len(self.regions) * self.nodes_per_region


def draw_plan(shape: Shape, *, cluster: str, directory: Path, ports: list[int]) -> ClusterPlan:
    """The plan of a cluster of that shape, in that directory, on those ports."""
    assert len(ports) >= shape.ports_count
    remaining = iter(ports)
    regions = [shape.regions[i % len(shape.regions)] for i in range(shape.zookeepers)]
    # Each ZooKeeper server has three ports: for clients, for followers, for elections.
    triples = [(next(remaining), next(remaining), next(remaining)) for _ in regions]
    peers = ",".join(
        f"{number}=127.0.0.1:{quorum_port}:{election_port}"
        for number, (_, quorum_port, election_port) in enumerate(triples, start=1)
    )
    servers = [
        _zookeeper(directory, number, region, f"127.0.0.1:{triple[0]}", peers)
        for number, (region, triple) in enumerate(zip(regions, triples, strict=True), start=1)
    ]
    zookeeper = ",".join(server.address for server in servers)
    common = ("--zookeeper", zookeeper, "--cluster", cluster, *shape.storage_options)
    for region in shape.regions:
        servers += [
            _storage(directory, region, number, f"127.0.0.1:{next(remaining)}", common)
            for number in range(1, shape.nodes_per_region + 1)
        ]
    return ClusterPlan(
        cluster=cluster, directory=directory, regions=shape.regions, servers=tuple(servers)
    )


def _zookeeper(
    directory: Path, number: int, region: str, address: str, peers: str
) -> ServerPlan:
    data_dir = directory / region / f"zookeeper-{number}"
    options = ["--id", str(number), "--data-dir", str(data_dir), "--listen", address]
    return ServerPlan(
        name=f"{region}-zookeeper-{number}",
        kind="zookeeper",
        region=region,
        address=address,
        location=f"/{region}",
        data_dir=data_dir,
        log=directory / "logs" / f"{region}-zookeeper-{number}.log",
        argv=_argv("zookeeper", *options, "--peers", peers),
    )


def _storage(
    directory: Path, region: str, number: int, address: str, common: tuple[str, ...]
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


def _argv(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "geolog", "serve", *arguments)
