"""Measures round trips to regions, by asking one storage node of each.

A node that answers is asked again; when it is silent, another node of its region is next.
"""

import math
import random
from collections.abc import Iterable
from functools import partial

import trio

from geolog.background import all_of
from geolog.ledger.replicas.replicas import Replicas
from geolog.metadata.nodes import NodeRecord
from geolog.protocol.ids import InstanceId
from topology.errors import GeologError
from topology.region_round_trips import RegionRoundTrips

PROBE_S = 2.0
"""Time limit of a probe, with the connection if there is none."""

NODES_KEPT_S = 10.0
"""How long a list of the nodes that are up is used."""

GONE_KEPT_S = 600.0
"""How long a region is probed whose nodes are listed no more: they may only have lost their
sessions, and if they are down, people want to see it."""

_AT_ONCE_MAX = 64


class RegionProber:
    """Probes the regions of one cluster. `round_trips` is what it measured."""

    def __init__(self, replicas: Replicas, rng: random.Random) -> None:
        self._pool = replicas.pool
        self._replicas = replicas.within(PROBE_S)
        self._rng = rng
        self._nodes: dict[str, list[NodeRecord]] = {}  # By region; read from metadata at:
        self._nodes_s = -math.inf
        self._listed_s: dict[str, float] = {}  # By region: when it last had nodes.
        self._asked: dict[str, InstanceId] = {}  # By region: the node that answered last.

    @property
    def round_trips(self) -> RegionRoundTrips:
        """Measured by the probes, and by every greeting of a node by this process."""
        return self._pool.round_trips

    async def probe(self) -> list[str]:
        """Probe one node of each region that has any, or had lately; returns these regions.

        UnavailableError: metadata does not say which nodes there are.
        """
        now_s = trio.current_time()
        if now_s >= self._nodes_s + NODES_KEPT_S:
            self._list(await self._pool.live_nodes(), now_s)
        regions = self._nodes
        await all_of(
            [partial(self._probe_region, name, nodes) for name, nodes in regions.items()],
            at_once_max=_AT_ONCE_MAX,
        )
        return list(regions)

    def _list(self, live: Iterable[NodeRecord], now_s: float) -> None:
        listed = dict[str, list[NodeRecord]]()
        for node in live:
            listed.setdefault(node.location.region, []).append(node)
            self._listed_s[node.location.region] = now_s
        gone = {
            region: nodes
            for region, nodes in self._nodes.items()
            if region not in listed and now_s < self._listed_s[region] + GONE_KEPT_S
        }
        self._nodes = dict(sorted({**listed, **gone}.items()))
        self._nodes_s = now_s

    async def _probe_region(self, region: str, nodes: list[NodeRecord]) -> None:
        asked = self._asked.get(region)
        node = next((one for one in nodes if one.instance == asked), None)
        if node is None:
            node = self._rng.choice(nodes)
            self._asked[region] = node.instance
        try:
            took_s = await self._replicas.round_trip_s(node.instance)
        except GeologError:
            self.round_trips.note_silent(region)
            del self._asked[region]
            self._nodes_s = -math.inf  # It may be gone.
        else:
            self.round_trips.note(region, took_s, trio.current_time())
