"""Round trips between the regions of a cluster: a row of each region, measured from there.

Write proxies measure: each probes one storage node of every region once a second, and shows its
row on its HTTP port. This asks one proxy of each region for its row. Where no proxy answers at
all, it measures the row of its own process.
"""

from collections.abc import Collection, Mapping
from functools import partial

import attrs
import cattrs
import trio

from geolog.admin.cluster_access import ClusterAccess
from geolog.background import all_of
from geolog.ledger.replicas.region_prober import RegionProber
from geolog.metadata.proxies import list_live_proxies
from geolog.transport.http_get import http_get
from geolog.transport.seam import Address
from topology.errors import GeologError
from topology.region_round_trips import ANSWERS_MIN, RegionRoundTrips

PATH = "/v1/latency"
"""Path of a proxy's row, on its HTTP port."""

ANSWER_S = 2.0
"""Time limit of a proxy's answer."""

HERE = "(here)"
"""Region of this process, if nobody told it."""

_THIS_PROCESS = "this process"
_AT_ONCE_MAX = 32
_PAUSE_S = 0.05


@attrs.frozen(kw_only=True)
class RegionDistance:
    """Round trips to one region."""

    region: str
    rtt_s: float | None
    """Median of the last few; None if no node of the region answered lately."""
    last_s: float | None
    """The last one."""
    is_silent: bool
    """Whether the last question had no answer."""


@attrs.frozen(kw_only=True)
class LatencyRow:
    """Round trips from one region."""

    region: str
    measured_by: str
    """A proxy of the region."""
    to: list[RegionDistance]


@attrs.frozen(kw_only=True)
class LatencyMatrix:
    """Round trips between regions."""

    regions: list[str]
    """All regions that have nodes or proxies."""
    rows: list[LatencyRow]
    """One for each region from which somebody measures."""


def latency_row(
    round_trips: RegionRoundTrips,
    regions: Collection[str],
    *,
    region: str,
    measured_by: str,
    now_s: float,
) -> LatencyRow:
    """The row of a process in this region, from its round trips."""
    return LatencyRow(
        region=region,
        measured_by=measured_by,
        to=[
            RegionDistance(
                region=one,
                rtt_s=_rounded(round_trips.median_s(one, now_s)),
                last_s=_rounded(round_trips.last_s(one, now_s)),
                is_silent=round_trips.is_silent(one),
            )
            for one in sorted(regions)
        ],
    )


class RegionLatency:
    """Gathers the rows of one cluster, as often as it is asked."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access
        self._transport = access.pool.transport
        self._prober = RegionProber(access.replicas, access.rng)

    async def matrix(self) -> LatencyMatrix:
        """The round trips now. UnavailableError: metadata does not answer."""
        access = self._access
        proxies = dict[str, dict[str, Address]]()
        for proxy in await list_live_proxies(access.metadata, access.cluster):
            if proxy.http is not None and not proxy.is_draining:
                proxies.setdefault(proxy.region, {})[proxy.proxy_id] = proxy.http
        found = await all_of(
            [partial(self._row_of, proxies[region]) for region in sorted(proxies)],
            at_once_max=_AT_ONCE_MAX,
        )
        rows = [row for row in found if row is not None] or [await self._own_row()]
        regions = {one.region for row in rows for one in row.to}
        return LatencyMatrix(regions=sorted(regions | proxies.keys()), rows=rows)

    async def _row_of(self, proxies: Mapping[str, Address]) -> LatencyRow | None:
        """The row of the first proxy of a region that answers."""
        for _, address in sorted(proxies.items()):
            try:
                with trio.fail_after(ANSWER_S):
                    document = await http_get(self._transport, address, PATH)
                return cattrs.structure(document, LatencyRow)
            except (trio.TooSlowError, GeologError, cattrs.BaseValidationError):
                continue
        return None

    async def _own_row(self) -> LatencyRow:
        """Measure, until every region has answered a few times or is silent."""
        prober = self._prober
        regions = await prober.probe()
        for _ in range(ANSWERS_MIN - 1):
            await trio.sleep(_PAUSE_S)
            await prober.probe()
        return latency_row(
            prober.round_trips,
            regions,
            region=self._access.region or HERE,
            measured_by=_THIS_PROCESS,
            now_s=trio.current_time(),
        )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
