"""A write proxy's place in the world: its processes follow each other at one address."""

import attrs
import trio

from geolog.transport.seam import Address
from regions.proxy.config import ProxyConfig
from regions.proxy.endpoint import Endpoint
from regions.proxy.held_partitions import HeldPartitions
from sim.world.options import Knobs

PROXY = "proxy-"
"""Hosts of proxies begin with this."""

_PORT = 7000
_IDLE_RELEASE_S = 2.0
_RECORDS_OF_CREDIT = 4


@attrs.define(eq=False)
class WorldProxy:
    """The place of a write proxy."""

    host: str
    region: str
    to_drain: trio.Event = attrs.field(factory=trio.Event)
    """Set to end its process in good order."""
    is_wanted: bool = True
    """Whether another process follows one that has ended."""
    endpoints: list[Endpoint] = attrs.field(factory=list)
    """Those of all its processes."""
    held: HeldPartitions | None = None
    """The partitions of its last process."""

    @property
    def address(self) -> Address:
        """Where its processes take sessions."""
        return Address(self.host, _PORT)

    def config(self, knobs: Knobs) -> ProxyConfig:
        """Settings: partitions move often, and channels have little credit."""
        return ProxyConfig(
            region=self.region,
            listen=self.address,
            proxy_id=self.host,
            credit_bytes=_RECORDS_OF_CREDIT * knobs.value_bytes_max,
            idle_release_s=_IDLE_RELEASE_S,
        )
