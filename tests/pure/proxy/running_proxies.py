"""Proxies in tasks of their own, which a test can drain or kill."""

import trio

from regions.proxy.proxy import WriteProxy
from sim.fakes.memory_metadata import MemoryMetadata
from sim.in_process import InProcessCluster
from tests.pure.proxy.proxies import open_proxy


class RunningProxy:
    """A proxy in a task of its own, which can be ended or killed."""

    def __init__(
        self, cluster: InProcessCluster, proxy_id: str, region: str, **settings: object
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._proxy_id = proxy_id
        self._region = region
        self._sessions: list[MemoryMetadata] = []
        self._to_end = trio.Event()
        self._ended = trio.Event()
        self._killed = trio.CancelScope()

    def __repr__(self) -> str:
        return f"RunningProxy({self._proxy_id})"

    async def run(
        self, task_status: trio.TaskStatus["RunningProxy"] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self._killed:
            async with open_proxy(
                self._cluster,
                self._proxy_id,
                self._region,
                on_session=self._sessions.append,
                **self._settings,  # type: ignore[arg-type]
            ) as proxy:
                self.proxy: WriteProxy = proxy
                task_status.started(self)
                await self._to_end.wait()
        self._ended.set()

    async def drain(self) -> None:
        """End it in an orderly way."""
        self._to_end.set()
        await self._ended.wait()

    async def kill(self) -> None:
        """Cut it off from the network and metadata, so that it dies without a word."""
        self._sessions[0].cut_off()
        self._cluster.network.vanish(self._proxy_id)
        self._killed.cancel(reason="killed")
        await self._ended.wait()
