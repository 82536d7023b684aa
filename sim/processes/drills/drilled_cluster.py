"""The cluster that a drill breaks: its addresses, its proxies, and ways to end them.

`OwnCluster` is a cluster of the drill's own, `DemoCluster` a demo that runs already.
"""

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

import attrs

from geolog.client.connect import connect
from geolog.client.log import Log
from geolog.settings.running_demo import SETTINGS_NAME
from sim.processes.cluster.control import ask_control
from sim.processes.cluster.local import LocalCluster
from sim.processes.cluster.plan import ServerKind
from sim.processes.cluster.settable_clock import set_clock
from sim.processes.wan.conditions import LinkChange
from sim.processes.wan.control import ask_change
from topology.errors import NotFoundError


@attrs.frozen
class DrilledProxy:
    """One write proxy."""

    region: str
    address: str


class DrilledCluster(Protocol):
    """A running cluster. A target is a region, or the name of a server."""

    @property
    def zookeeper(self) -> str:
        """The connection string of its ZooKeeper servers."""
        ...

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        ...

    @property
    def gateway(self) -> str | None:
        """The gateway of its emulated WAN, if it has one."""
        ...

    @property
    def regions(self) -> tuple[str, ...]:
        """The names of its regions."""
        ...

    @property
    def proxies(self) -> Mapping[str, DrilledProxy]:
        """Its proxies, by name."""
        ...

    async def kill(self, target: str) -> None:
        """Send SIGKILL, and wait until the processes are gone."""
        ...

    async def stop(self, target: str) -> None:
        """Send SIGTERM, and wait until the processes are gone."""
        ...

    async def pause(self, target: str) -> None:
        """Send SIGSTOP."""
        ...

    async def resume(self, target: str) -> None:
        """Send SIGCONT."""
        ...

    async def start(self, target: str) -> None:
        """Start the processes that are down, and wait until they answer."""
        ...

    async def change_link(
        self, here: str, there: str, change: LinkChange, *, is_one_way: bool = False
    ) -> None:
        """Change a link of the emulated WAN. NotFoundError if there is none."""
        ...

    def set_clock(self, target: str, offset_s: float) -> None:
        """Set these processes' wall clocks off by so much. NotFoundError if that cannot be."""
        ...


class OwnCluster:
    """A cluster that this process has started."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._directory = cluster.plan.directory
        self.zookeeper = cluster.plan.zookeeper
        self.cluster = cluster.plan.cluster
        self.gateway = cluster.plan.gateway
        self.regions = cluster.plan.regions
        self.proxies = {
            each.name: DrilledProxy(each.region, each.address)
            for each in cluster.plan.of_kind("proxy")
        }

    async def kill(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await self._cluster.kill(target)

    async def stop(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await self._cluster.stop(target)

    async def pause(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await self._cluster.pause(target)

    async def resume(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await self._cluster.resume(target)

    async def start(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await self._cluster.start(target)

    async def change_link(
        self, here: str, there: str, change: LinkChange, *, is_one_way: bool = False
    ) -> None:
        """As of `DrilledCluster`."""
        await ask_change(self._directory, here, there, change, is_one_way=is_one_way)

    def set_clock(self, target: str, offset_s: float) -> None:
        """As of `DrilledCluster`."""
        for server in self._cluster.named(target):
            if server.plan.clock is None:
                raise NotFoundError(f"{server.plan.name} has the machine's clock")
            set_clock(server.plan.clock, offset_s)


class DemoCluster:
    """A demo of another process, which is asked to end and start its servers."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], servers: Sequence[Mapping[str, str]]
    ) -> None:
        self._directory = directory
        self.zookeeper = settings["zookeeper"]
        self.cluster = settings["cluster"]
        self.gateway = settings.get("gateway")
        regions = {each["name"]: each["location"].split("/")[1:2] for each in servers}
        self.proxies = {
            each["name"]: DrilledProxy(regions[each["name"]][0], each["address"])
            for each in servers
            if each["kind"] == "proxy"
        }
        self.regions = tuple(
            dict.fromkeys(name for names in regions.values() for name in names)
        )

    @classmethod
    async def find(cls, directory: Path, kind: ServerKind = "proxy") -> "DemoCluster":
        """The demo that runs in this directory, with servers of this kind. NotFoundError."""
        servers = await ask_control(directory, "ls", "all")
        if not any(each["kind"] == kind for each in servers):
            what, option = {
                "relay": ("relays", "--relays-per-region"),
            }.get(kind, ("write proxies", "--proxies-per-region"))
            raise NotFoundError(
                f"the demo in {directory} has no {what}: start one with "
                f"`geolog demo --stay {option} 2`"
            )
        settings = tomllib.loads((directory / SETTINGS_NAME).read_text(encoding="utf-8"))
        return cls(
            directory, settings, [{name: str(each[name]) for name in each} for each in servers]
        )

    async def kill(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await ask_control(self._directory, "kill", target)

    async def stop(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await ask_control(self._directory, "stop", target)

    async def pause(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await ask_control(self._directory, "pause", target)

    async def resume(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await ask_control(self._directory, "resume", target)

    async def start(self, target: str) -> None:
        """As of `DrilledCluster`."""
        await ask_control(self._directory, "restart", target)

    async def change_link(
        self, here: str, there: str, change: LinkChange, *, is_one_way: bool = False
    ) -> None:
        """As of `DrilledCluster`."""
        await ask_change(self._directory, here, there, change, is_one_way=is_one_way)

    def set_clock(self, target: str, offset_s: float) -> None:
        """NotFoundError: a demo's servers have the machine's clock."""
        raise NotFoundError(
            f"{target} cannot be set {offset_s:g} s off: the servers of a demo have the"
            " machine's clock. Run this fault without --on-demo"
        )


def connect_in(
    cluster: DrilledCluster, region: str, *, via: Literal["direct", "proxy"]
) -> AbstractAsyncContextManager[Log]:
    """The log as a client in this region sees it."""
    return connect(
        zookeeper=cluster.zookeeper,
        cluster=cluster.cluster,
        region=region,
        gateway=cluster.gateway,
        via=via,
    )
