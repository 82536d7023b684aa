"""Round trips from this proxy to every region: its row of `geolog region latency`.

The proxy probes one storage node of each region once a second, and shows the last results on
its HTTP port. Nothing is written to metadata.
"""

from contextlib import suppress

import trio

from geolog.admin.region_latency import LatencyRow, latency_row
from geolog.ledger.replicas.region_prober import RegionProber
from geolog.metadata.proxies import ProxyRecord
from topology.errors import GeologError

PROBE_EVERY_S = 1.0
"""Pause between probes; longer while a region does not answer."""


class RegionRow:
    """Measurements of a proxy. `run` measures."""

    def __init__(self, prober: RegionProber, record: ProxyRecord) -> None:
        self._prober = prober
        self._record = record
        self._regions: list[str] = []

    async def run(self) -> None:
        """Probe all regions again and again; never returns."""
        while True:
            next_s = trio.current_time() + PROBE_EVERY_S
            with suppress(GeologError):  # Metadata is away: the last results age.
                self._regions = await self._prober.probe()
            await trio.sleep_until(next_s)

    def row(self) -> LatencyRow:
        """The last results."""
        return latency_row(
            self._prober.round_trips,
            self._regions,
            region=self._record.region,
            measured_by=self._record.proxy_id,
            now_s=trio.current_time(),
        )
