"""The proxy, as its HTTP port shows it."""

import attrs
import trio

from geolog.metadata.proxies import ProxyRecord
from geolog.metadata.seam import Metadata, SessionState
from regions.proxy.early_takeovers import EarlyTakeovers
from regions.proxy.endpoint import Endpoint
from regions.proxy.region_row import RegionRow
from regions.proxy.session_host import SessionHost


@attrs.frozen(kw_only=True)
class ProxyView:
    """A proxy that serves sessions."""

    record: ProxyRecord
    host: SessionHost
    endpoint: Endpoint
    early: EarlyTakeovers
    region_row: RegionRow
    metadata: Metadata
    cluster: str
    is_registered: trio.Event

    def why_not_ready(self) -> list[str]:
        """Reasons to send new clients elsewhere; none if the proxy is ready."""
        reasons = []
        if self.host.draining.is_set():
            reasons.append("the proxy drains")
        if not self.is_registered.is_set():
            reasons.append("the proxy is not registered yet")
        if self.metadata.session_state is not SessionState.CONNECTED:
            reasons.append(f"the ZooKeeper session is {self.metadata.session_state.value}")
        return reasons
