"""Where a process finds the write proxies of its cluster: in metadata, or told by its user."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from geolog.metadata.proxies import list_live_proxies
from geolog.metadata.seam import Metadata
from geolog.transport.seam import Address


@attrs.frozen
class KnownProxy:
    """A proxy that may be asked."""

    address: Address
    is_near: bool
    """Whether it is of the own region, or was given by the user."""


class ProxyDirectory(Protocol):
    """Lists proxies that may be up."""

    async def list(self) -> Sequence[KnownProxy]:
        """All of them, in any order; draining ones are left out where that is known."""
        ...


@attrs.frozen
class GivenProxies:
    """The proxies that the user named."""

    addresses: Sequence[Address]

    async def list(self) -> Sequence[KnownProxy]:
        """All of them; any may be down."""
        return [KnownProxy(one, is_near=True) for one in self.addresses]


@attrs.frozen
class RegisteredProxies:
    """The proxies that are up, as metadata says; those the user named are asked first."""

    metadata: Metadata
    cluster: str
    region: str | None
    given: Sequence[Address] = ()

    async def list(self) -> Sequence[KnownProxy]:
        """All that are up and do not drain."""
        found = await list_live_proxies(self.metadata, self.cluster)
        return [
            KnownProxy(
                one.address,
                is_near=one.address in self.given if self.given else one.region == self.region,
            )
            for one in found
            if not one.is_draining
        ]
