"""Finds the region that a process is in, or nearest to, if nobody told it.

The search begins when a reader needs an order of replicas. It probes a node of each region
until the nearest region is known; until then, all regions count as equally far. It is repeated
now and then, in case the process or the network has moved.

Rules: PROTOCOL R20.
"""

import logging

import trio

from geolog.ledger.replicas.region_prober import RegionProber
from geolog.ledger.replicas.replicas import Replicas
from topology.errors import GeologError

_log = logging.getLogger(__name__)

PLACE_KEPT_S = 600.0
"""How long a place is taken for granted."""

_PAUSE_S = 0.1
"""Pause between probes, and before trying again when metadata does not answer: doubles."""

_PAUSE_S_MAX = 5.0


class RegionSearch:
    """Tells `ReplicaOrder` where this process is."""

    def __init__(self, replicas: Replicas, prober: RegionProber) -> None:
        self._order = replicas.order
        self._prober = prober

    async def run(self) -> None:
        """Search once a reader asks for it, and again now and then; never returns."""
        await self._order.place_wanted.wait()
        place: str | None = None
        while True:
            found = await self._found(place)
            if found != place:
                _log.info("reading: nearest to region %s (by round trips)", found)
                self._order.stand_in(found)
                place = found
            await trio.sleep(PLACE_KEPT_S)

    async def _found(self, place: str | None) -> str:
        pause_s = _PAUSE_S
        while True:
            try:
                regions = await self._prober.probe()
            except GeologError:
                regions = []
            found = self._prober.round_trips.nearest(regions, trio.current_time(), place=place)
            if found is not None:
                return found
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
