"""Permits to take partitions from proxies that metadata still shows as alive.

A permit is an ephemeral node of the proxy that takes the partition. It stands for a while, and
nobody else gets one for the same partition meanwhile. So proxies that take each other for dead
do not depose each other again and again.

Rules: PROTOCOL S26.
"""

import logging

import trio

from geolog.metadata.paths import ClusterPaths
from geolog.metadata.seam import Create, Metadata, NodeExistsError, NoNodeError
from geolog.protocol.stream_state import PartitionName
from topology.errors import GeologError

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


class EarlyTakeovers:
    """Early takeovers by one proxy."""

    def __init__(
        self, metadata: Metadata, cluster: str, *, pause_s: float, nursery: trio.Nursery
    ) -> None:
        """`pause_s`: how long a permit stands."""
        self._metadata = metadata
        self._paths = ClusterPaths(cluster)
        self._pause_s = pause_s
        self._nursery = nursery
        self.count = 0
        """Permits that this proxy got."""

    def __repr__(self) -> str:
        return f"EarlyTakeovers({self.count})"

    async def prepare(self) -> None:
        """Make the folder of the permits: during a takeover, that would cost two writes."""
        try:
            await self._metadata.ensure_path(self._paths.early_takeovers)
        except GeologError as error:
            _log.info("folder of permits not made: %s; the first takeover makes it", error)

    async def ask(self, name: PartitionName) -> bool:
        """Get a permit for the partition; False if another one stands."""
        path = self._paths.early_takeover(name)
        while True:
            try:
                await self._metadata.multi([Create(path, b"", is_ephemeral=True)])
            except NodeExistsError:
                return False
            except NoNodeError:
                await self._metadata.ensure_path(self._paths.early_takeovers)
            except BaseException:
                self._nursery.start_soon(self._let_end, path)  # It may have been made.
                raise
            else:
                self.count += 1
                self._nursery.start_soon(self._let_end, path)
                return True

    async def _let_end(self, path: str) -> None:
        """Remove a permit when its time is over; at the latest, it goes with the session."""
        await trio.sleep(self._pause_s)
        while True:
            try:
                found = await self._metadata.find(path)
                if found is not None and found.session_id == self._metadata.session_id:
                    await self._metadata.delete(path)
                return
            except NoNodeError:
                return
            except GeologError as error:
                _log.info("permit not removed: %s; retrying", error)
            await trio.sleep(_RETRY_S)
