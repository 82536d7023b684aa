"""The write proxies of a cluster, as one process uses them."""

import logging
from typing import Literal

import attrs

from geolog.client.proxies.connection import ProxyConnections
from geolog.client.proxies.routes import ProxyRoutes
from topology.errors import UnavailableError

_log = logging.getLogger(__name__)

Via = Literal["direct", "proxy"]


@attrs.define(eq=False)
class Proxies:
    """Connections and routes to the proxies, and whether writers use them."""

    connections: ProxyConnections
    routes: ProxyRoutes
    via: Via | None = None
    """None: through proxies if any is up when a writer is opened, else directly."""
    _has_told: bool = attrs.field(default=False, init=False)

    async def is_way_to_write(self) -> bool:
        """Whether a writer opened now goes through proxies. UnavailableError if none is up."""
        if self.via == "direct":
            return False
        has_proxies = await self.routes.has_proxies()
        if self.via == "proxy" and not has_proxies:
            raise UnavailableError(
                "no write proxy is up: start one with `geolog serve proxy`, or write with"
                " via='direct'"
            )
        if not has_proxies and not self._has_told:
            self._has_told = True
            _log.info("no write proxy is up: writers own their streams themselves")
        return has_proxies
