"""The cluster that a drill breaks: its addresses, its proxies, and ways to end them.

`OwnCluster` is a cluster of the drill's own.
"""

from collections.abc import Mapping
from typing import Protocol

from sim.processes.cluster.local import LocalCluster


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
    def proxies(self) -> Mapping[str, str]:
        """The region of each proxy, by name."""
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


class OwnCluster:
    """A cluster that this process has started."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.zookeeper = cluster.plan.zookeeper
        self.cluster = cluster.plan.cluster
        self.gateway = cluster.plan.gateway
        self.regions = cluster.plan.regions
        self.proxies = {each.name: each.region for each in cluster.plan.of_kind("proxy")}

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
