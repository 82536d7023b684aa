"""Where to ask for a partition: the owner that was found last, else proxies of the own region.

The cache is a hint: a proxy that does not own the partition says which one does.
"""

import random
from collections.abc import Sequence

from geolog.metadata.proxies import ProxyRecord, list_live_proxies
from geolog.metadata.seam import Metadata
from geolog.protocol.stream_state import PartitionName
from geolog.transport.seam import Address
from topology.errors import UnavailableError

_CACHED_MAX = 100_000


class ProxyRoutes:
    """Knows the proxies that are up, and who owned which partition."""

    def __init__(
        self, metadata: Metadata, cluster: str, region: str | None, rng: random.Random
    ) -> None:
        self._metadata = metadata
        self._cluster = cluster
        self._region = region
        self._rng = rng
        self._owners: dict[PartitionName, Address] = {}

    def __repr__(self) -> str:
        return f"ProxyRoutes({len(self._owners)} partitions known)"

    async def has_proxies(self) -> bool:
        """Whether any proxy of the cluster is up."""
        return bool(await self._live())

    async def first_for(self, name: PartitionName, *, failed: Sequence[Address]) -> Address:
        """The proxy to ask first; those that failed just now come last. UnavailableError."""
        known = self._owners.get(name)
        if known is not None and known not in failed:
            return known
        live = await self._live()
        if not live:
            raise UnavailableError(f"no write proxy of cluster {self._cluster!r} is up")
        self._rng.shuffle(live)
        live.sort(key=lambda one: (one.address in failed, one.region != self._region))
        return live[0].address

    def on_found(self, name: PartitionName, address: Address) -> None:
        """The proxy at this address owns the partition."""
        if len(self._owners) >= _CACHED_MAX:
            self._owners.pop(next(iter(self._owners)))
        self._owners[name] = address

    def on_lost(self, name: PartitionName) -> None:
        """The partition may be elsewhere."""
        self._owners.pop(name, None)

    async def _live(self) -> list[ProxyRecord]:
        found = await list_live_proxies(self._metadata, self._cluster)
        return [one for one in found if not one.is_draining]
