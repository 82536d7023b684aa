"""Where to ask for a partition: the owner that was found last, else proxies of the own region.

The cache is a hint: a proxy that does not own the partition says which one does.
"""

import random
from collections.abc import Sequence

from geolog.client.proxies.directory import KnownProxy, ProxyDirectory
from geolog.protocol.stream_state import PartitionName
from geolog.transport.seam import Address
from topology.errors import UnavailableError

_CACHED_MAX = 100_000


class ProxyRoutes:
    """Knows the proxies that are up, and who owned which partition."""

    def __init__(self, directory: ProxyDirectory, rng: random.Random) -> None:
        self._directory = directory
        self._rng = rng
        self._owners: dict[PartitionName, Address] = {}

    def __repr__(self) -> str:
        return f"ProxyRoutes({len(self._owners)} partitions known)"

    async def has_proxies(self) -> bool:
        """Whether any proxy of the cluster is up."""
        return bool(await self._directory.list())

    async def first_for(self, name: PartitionName, *, failed: Sequence[Address]) -> Address:
        """The proxy to ask first; those that failed just now come last. UnavailableError."""
        known = self._owners.get(name)
        if known is not None and known not in failed:
            return known
        return await self.any(failed=failed)

    async def known(self) -> Sequence[KnownProxy]:
        """All proxies that may be asked."""
        return await self._directory.list()

    async def any(self, *, failed: Sequence[Address] = ()) -> Address:
        """A proxy, of the own region if possible. UnavailableError."""
        found = list(await self._directory.list())
        if not found:
            raise UnavailableError("no write proxy of the cluster is up")
        self._rng.shuffle(found)

        def rank(one: KnownProxy) -> tuple[bool, bool]:
            return (one.address in failed, not one.is_near)

        return min(found, key=rank).address

    def on_found(self, name: PartitionName, address: Address) -> None:
        """The proxy at this address owns the partition."""
        if len(self._owners) >= _CACHED_MAX:
            self._owners.pop(next(iter(self._owners)))
        self._owners[name] = address

    def on_lost(self, name: PartitionName) -> None:
        """The partition may be elsewhere."""
        self._owners.pop(name, None)
