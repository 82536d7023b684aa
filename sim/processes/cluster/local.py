"""Starts, stops, kills, pauses and restarts the servers of one local cluster.

The opener of the cluster owns its processes: none outlives the block, and none outlives the
supervisor, however that ends (see `Lifeline`, `Server`).
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from sim.processes.cluster.plan import ClusterPlan, ServerKind
from sim.processes.cluster.server import (
    STOP_GRACE_S,
    Lifeline,
    Server,
    ServerFailedError,
    ServerState,
)
from sim.processes.wan.setup import SETUP_NAME

START_TIMEOUT_S = 90.0
"""A server without an answer by then has failed; on two busy cores, a tenth suffices."""


class LocalCluster:
    """The servers of one plan. Opened by `open_cluster`."""

    def __init__(self, plan: ClusterPlan, lifeline: Lifeline, nursery: trio.Nursery) -> None:
        self.plan = plan
        self.servers = {
            server.name: Server(server, lifeline.read_end) for server in plan.servers
        }
        self._nursery = nursery

    def named(self, target: str) -> list[Server]:
        """The servers that `target` selects; NotFoundError if it selects none."""
        return [self.servers[plan.name] for plan in self.plan.named(target)]

    async def start(self, target: str = "all") -> list[Server]:
        """Start the servers that are down, and wait until each answers.

        The WAN and ZooKeeper come first: servers waiting for them would only compete for cores.
        """
        chosen = self.named(target)
        started = []
        for kind in ("wan", "zookeeper", "storage", "relay", "proxy"):
            of_kind = [server for server in chosen if server.plan.kind == kind]
            started += await self.start_servers(of_kind)
        return started

    async def start_servers(self, servers: Iterable[Server]) -> list[Server]:
        """Start servers in this order but concurrently; wait until all answer."""
        chosen = [server for server in servers if not server.is_running]
        async with trio.open_nursery() as starting:
            for server in chosen:
                starting.start_soon(self._start_one, server)
        return chosen

    async def kill(self, target: str) -> list[Server]:
        """Send SIGKILL and wait until they are gone."""
        return await self._end(self.named(target), Server.kill)

    async def stop(self, target: str) -> list[Server]:
        """Shut them down cleanly; kill those that take too long."""
        return await self._end(self.named(target), Server.terminate)

    async def restart(self, target: str) -> list[Server]:
        """Stop the running ones, then start all of them."""
        chosen = self.named(target)
        await self._end(chosen, Server.terminate)
        return await self.start(target)

    async def pause(self, target: str) -> list[Server]:
        """Send SIGSTOP."""
        return self._signal(self.named(target), Server.pause)

    async def resume(self, target: str) -> list[Server]:
        """Send SIGCONT."""
        return self._signal(self.named(target), Server.resume)

    async def close(self) -> None:
        """Stop all servers: ZooKeeper late, so that the others can still leave it."""
        await self._end(self._of_kind("proxy"), Server.terminate)
        await self._end(self._of_kind("relay"), Server.terminate)
        await self._end(self._of_kind("storage"), Server.terminate)
        await self._end(self._of_kind("zookeeper"), Server.kill)
        await self._end(self._of_kind("wan"), Server.terminate)

    def _of_kind(self, kind: ServerKind) -> list[Server]:
        return [self.servers[plan.name] for plan in self.plan.of_kind(kind)]

    async def _start_one(self, server: Server) -> None:
        with trio.move_on_after(START_TIMEOUT_S) as scope:
            await self._nursery.start(server.run, name=f"server {server.plan.name}")
        if scope.cancelled_caught:
            raise ServerFailedError(
                f"{server.plan.name} did not answer within {START_TIMEOUT_S:.0f} s; the end of "
                f"{server.plan.log}:\n{server.log_end()}"
            )

    async def _end(
        self, servers: Iterable[Server], signal_server: Callable[[Server], None]
    ) -> list[Server]:
        running = [server for server in servers if server.is_running]
        for server in running:
            signal_server(server)
        with trio.move_on_after(STOP_GRACE_S):
            await _wait_ended(running)
        for server in running:
            server.kill()
        await _wait_ended(running)
        return running

    def _signal(
        self, servers: Iterable[Server], signal_server: Callable[[Server], None]
    ) -> list[Server]:
        running = [server for server in servers if server.is_running]
        for server in running:
            signal_server(server)
        return running


@asynccontextmanager
async def open_cluster(plan: ClusterPlan, *, start: bool = True) -> AsyncIterator[LocalCluster]:
    """Start all servers of the plan; stop them when the block ends."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    if plan.wan is not None:
        (plan.directory / SETUP_NAME).write_text(plan.wan.to_json(), encoding="utf-8")
    lifeline = Lifeline.open()
    try:
        async with trio.open_nursery() as nursery:
            cluster = LocalCluster(plan, lifeline, nursery)
            try:
                if start:
                    await cluster.start()
                yield cluster
            finally:
                with trio.CancelScope(shield=True):
                    await cluster.close()
    finally:
        lifeline.close()


async def _wait_ended(servers: list[Server]) -> None:
    for server in servers:
        await server.wait_ended()


__all__ = ["LocalCluster", "ServerState", "open_cluster"]
